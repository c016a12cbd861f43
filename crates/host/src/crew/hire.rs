//! A coding agent for an attempt: found, configured, listened to while it works, and judged when it ends.
//!
//! Owns what an attempt and an agent have to do with each other: which session it goes on with, what it may do and spend,
//! and what its end means for the attempt. What is different from agent to agent is in [`crate::agent`].

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use skein_core::{
    engine::{AttemptEnd, Cost, code},
    ids::uuid,
    ir::{ErrorClass, HoldReason, Worker},
    limits,
    time::{Millis, Time},
};

use super::{
    Shared,
    about::{Agent, Program},
    attempt::{never, wrong},
    back::cut,
    before::Before,
    confine,
    job::{Job, takes_usual},
    prompt::{self, Around},
    relay,
};
use crate::{
    agent::{
        self, Adapter, Done, Ear, Failure, Halt, Home, Left, Listening, Login, May, Meter, Note, Request,
        Session, account::Account,
    },
    chance,
    clock::Clock,
    sandbox::Enforcement,
    secret::Secret,
    worker::{self, Due, Ended, How, Task, Which, Work},
    workspace::{Root, RunDir},
};

/// An agent that works on an attempt.
#[derive(Debug)]
pub struct Hired {
    adapter: &'static dyn Adapter,
    ear: Ear,
    home: Home,
    login: Login,
    account: Account,
    /// The state folder, which others look into.
    state: Root,
}

/// What the host lends to agents, which nobody may read in what they print.
pub fn lent() -> Vec<Secret> {
    let names = agent::ALL.iter().flat_map(|adapter| adapter.credentials());
    let names = names.filter(|name| !name.ends_with("_URL"));
    names.filter_map(|name| Secret::new(&std::env::var(name).ok()?).ok()).collect()
}

/// Finds the agent of an attempt and fits the task to it. None: another kind of worker does it.
pub fn hire(
    shared: &Arc<Shared>,
    job: &Job,
    run: &RunDir,
    around: Around<'_>,
    task: &mut Task,
) -> Result<Option<Hired>, AttemptEnd> {
    let Some(agent) = job.agent() else { return Ok(None) };
    let Some(word) = agent.worker.as_deref() else { return Ok(None) };
    let adapter = agent::of(word).ok_or_else(|| never(format!("no agent here is called `{word}`")))?;
    if let Some(path) = adapter.obstacle(around.folder) {
        return Err(never(format!(
            "{word} obeys {} in the repository that it works on, and runs what it finds there; take it away, or let \
             another agent do this",
            path.display()
        )));
    }
    let usual = Program::default();
    let program = job.about.programs.get(word).unwrap_or(&usual);
    let given = given(adapter, program);
    let account = Account::of(word, &given);
    let now = Clock::new().now();
    if let Some(until) = account.limited(&shared.state, now).filter(|_| !job.released) {
        let end = match job.relay.is_shared() {
            true => relay::limited(job, &shared.state, around.files.root(), until),
            false => job.waits.then(|| waits(account.turn(&shared.state, now).unwrap_or(until))),
        };
        if let Some(end) = end {
            return Err(end);
        }
    }
    let login = adapter.login();
    let home = home(job, run, adapter, program, &login)?;
    let sandbox = shared.enforced() != Some(Enforcement::WritesOnly);
    let hiring = Hiring { job, agent, adapter, program, home: &home, around, sandbox };
    let before = Before::of(job, run, adapter, &home);
    // A name for a session that nobody else has.
    let fresh = uuid(chance::random());
    hiring.fit(task, &before, &fresh, given)?;
    if let Some(sandbox) = &mut task.sandbox {
        confine::fit(&mut sandbox.spec, &home, adapter, &task.program).map_err(wrong)?;
        let servers = job.servers();
        let servers = servers.iter().filter_map(|(_, server)| server.command.first());
        for program in servers.map(Path::new).chain([task.program.as_path()]) {
            confine::show_programs(&mut sandbox.spec, program, &task.environment).map_err(wrong)?;
        }
    }
    let ear = hiring.listening(shared, before, fresh, &task.command)?;
    listen(shared, task, &ear);
    Ok(Some(Hired { adapter, ear, home, login, account, state: shared.state.clone() }))
}

/// The account that a coding agent works with here. None: it is a program of the project's own.
pub fn account(job: &Job, agent: &Agent) -> Option<Account> {
    let (adapter, usual) = (agent::of(agent.worker.as_deref()?)?, Program::default());
    let program = job.about.programs.get(adapter.word()).unwrap_or(&usual);
    Some(Account::of(adapter.word(), &given(adapter, program)))
}

/// A home of its own, or the person's.
fn home(
    job: &Job,
    run: &RunDir,
    adapter: &dyn Adapter,
    program: &Program,
    login: &Login,
) -> Result<Home, AttemptEnd> {
    if program.inherit_config {
        return Ok(Home::inherited());
    }
    let place = run.home(job.attempt.at, adapter.word()).map_err(never)?;
    Home::open(place.path(), login).map_err(|error| never(format!("its home cannot be made: {error}")))
}

/// An agent that is found, and not yet at work.
struct Hiring<'a> {
    job: &'a Job,
    agent: &'a Agent,
    adapter: &'static dyn Adapter,
    program: &'a Program,
    home: &'a Home,
    around: Around<'a>,
    /// Whether it can have a sandbox of its own.
    sandbox: bool,
}

impl Hiring<'_> {
    /// Makes the task one that this agent can be given. A new session would have the name that is `fresh`.
    fn fit(
        &self,
        task: &mut Task,
        before: &Before,
        fresh: &str,
        given: Vec<(OsString, OsString)>,
    ) -> Result<(), AttemptEnd> {
        let may = may(self.job, self.around, self.sandbox);
        if !may.network && !self.adapter.keeps_from_network(&may) {
            let word = self.adapter.word();
            return Err(never(format!("nothing keeps the commands of {word} from the network")));
        }
        if let Some((name, _)) = self.job.servers().first().filter(|_| !may.network) {
            return Err(never(format!("nothing keeps the server `{name}` of its agent from the network")));
        }
        let schema = self.job.outputs.document().filter(|schema| schema["type"] == "object");
        let call = self.adapter.call(&Request {
            model: self.model(),
            may: &may,
            session: before.session.as_deref().map_or(Session::New(fresh), Session::Resume),
            schema,
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            servers: &self.job.servers(),
            micro_usd: self.job.left.iter().filter_map(|left| left.micro_usd).min(),
            home: self.home,
            folder: self.around.folder,
            files: self.around.files.root().path(),
            arguments: &self.program.arguments,
        });
        for (path, bytes) in &call.files {
            write(path, bytes)
                .map_err(|error| never(format!("{} cannot be written: {error}", path.display())))?;
        }
        let (goes_on, answers) = (before.session.is_some(), self.adapter.answers(&may, schema));
        let prompt = prompt::of(self.job, self.agent, Around { goes_on, answers, ..self.around });
        task.stdin = prompt.into_bytes().into();
        task.arguments = call.arguments;
        // What the project says comes last, and so wins.
        task.environment.extend(call.environment.into_iter().chain(given));
        task.program = found(self.adapter, self.program, task).into();
        // Until its servers are there, it may say nothing.
        let servers = self.job.servers().iter().map(|(_, server)| server.start_timeout().0).max();
        task.start = task.start.or(Some(Millis(limits::AGENT_START + servers.unwrap_or_default())));
        task.idle = task.idle.or(Some(Millis(limits::AGENT_IDLE)));
        Ok(())
    }

    /// Who listens to it. What is known of its session is on disk before it starts.
    fn listening(
        &self,
        shared: &Arc<Shared>,
        before: Before,
        fresh: String,
        due: &Due,
    ) -> Result<Ear, AttemptEnd> {
        let files = self.around.files;
        let note = Note {
            worker: self.adapter.word().to_owned(),
            session: before.session.or_else(|| self.adapter.takes_session().then_some(fresh)),
            model: self.model().map(str::to_owned),
            cost: before.carried,
            total: before.total,
            goes_on: false,
        };
        note.write(files.root()).map_err(never)?;
        let price = self.model().and_then(|model| self.job.about.prices.get(model)).copied();
        Ok(Ear::new(Listening {
            reader: self.adapter.reader(self.home, &self.job.servers()),
            meter: Meter::new(before.carried, before.total, price, self.job.left.clone()),
            note,
            folder: files.root().clone(),
            events: File::create(files.events()).ok(),
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            due: due.clone(),
            stop: stop(shared, self.job),
        }))
    }

    fn model(&self) -> Option<&str> {
        let Worker::Agent { model, .. } = &self.job.worker else { return None };
        // The step's own model is its own agent's.
        let own = model.as_deref().filter(|_| self.job.relay.instead().is_none());
        let usual = || self.job.usual_model.as_deref().filter(|_| takes_usual(self.adapter.word()));
        own.or(self.agent.model.as_deref()).or_else(usual)
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)?;
    // A script is there to be run.
    let mode = if bytes.starts_with(b"#!") { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// What the agent is given beside what every worker has: an account that the host lends, and what the project says.
fn given(adapter: &dyn Adapter, program: &Program) -> Vec<(OsString, OsString)> {
    let lent = adapter.credentials().iter().filter(|name| !program.env.contains_key(**name));
    let lent = lent.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    lent.chain(program.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

fn max_turns(job: &Job) -> Option<u32> {
    let Worker::Agent { max_turns, .. } = &job.worker else { return None };
    *max_turns
}

fn command_time(job: &Job) -> Option<Millis> {
    let Worker::Agent { command_timeout, .. } = &job.worker else { return None };
    *command_timeout
}

fn may(job: &Job, around: Around<'_>, sandbox: bool) -> May {
    let tests = job.tests.as_ref().unwrap_or(&job.about.test_commands);
    May {
        network: !job.isolation.no_network,
        back: around.files.output().parent().map(Into::into).unwrap_or_default(),
        folder: around.folder.to_owned(),
        files: job.own_files().filter(|_| !job.writes_apart()).map(str::to_owned).collect(),
        sandbox,
        ..May::of(job.capabilities(), tests)
    }
}

/// The program itself. One that is not found is looked for again when it is started, which says why.
fn found(adapter: &dyn Adapter, program: &Program, task: &Task) -> OsString {
    let name = OsString::from(program.program.as_deref().unwrap_or(adapter.program()));
    let path = task.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    match worker::find(&name, &path, std::slice::from_ref(&task.directory)) {
        Ok(found) => adapter.native(found).into_os_string(),
        Err(_) => name,
    }
}

/// Asks for the end of the attempt's program, once it has one.
fn stop(shared: &Arc<Shared>, job: &Job) -> Box<dyn Fn() + Send> {
    let (shared, key) = (Arc::downgrade(shared), (job.run.clone(), Work::Attempt(job.attempt)));
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.stop(&key);
        }
    })
}

/// Both its streams are listened to.
fn listen(shared: &Shared, task: &mut Task, ear: &Ear) {
    let (ear, redactor) = (ear.clone(), shared.redactor.fresh());
    // The first filter that is made is that of standard output.
    let first = AtomicBool::new(true);
    task.filter = Some(Arc::new(move || match first.swap(false, Ordering::SeqCst) {
        true => ear.output(redactor.fresh()),
        false => ear.errors(redactor.fresh()),
    }));
}

/// Nothing can be had from its account before then.
fn waits(until: Time) -> AttemptEnd {
    let message = "its account has reached its limit".to_owned();
    AttemptEnd::Blocked { reason: HoldReason::Quota, until: Some(until), message }
}

impl Hired {
    pub fn cost(&self) -> Cost {
        self.ear.cost()
    }

    /// What the agent gave, or what its end means. None: what it means for any program.
    pub fn judge(&self, ended: &Ended, job: &Job) -> Result<Done, Option<AttemptEnd>> {
        // A login that cannot be put back is still in the home, and put back the next time.
        let _ = self.home.take_back(&self.login);
        let told = match (self.ear.halt(), &ended.how) {
            (Some(Halt::Budget(left)), _) => return Err(Some(self.spent(&left))),
            (Some(Halt::Failed(failure)), _) => Err(failure),
            (None, How::Exited(status)) => self.ear.end(*status, &ended.tail),
            (None, how) => {
                // It hung, and not because of what was said in its session.
                self.ear.close(matches!(how, How::TimedOut(Which::Silence(_) | Which::Command(_))), false);
                return Err(None);
            }
        };
        match told {
            Ok(done) => {
                self.ear.close(false, false);
                if job.released {
                    self.account.forget_limit(&self.state);
                }
                Ok(done)
            }
            Err(failure) => {
                let left = job.left.iter().find(|left| failure.is_budget() && left.micro_usd.is_some());
                Err(Some(left.map_or_else(|| self.failed(failure.clone(), job), |left| self.spent(left))))
            }
        }
    }

    /// A budget is spent: a person is asked, or the step fails.
    fn spent(&self, left: &Left) -> AttemptEnd {
        self.ear.close(left.pause, false);
        let message = format!("{} budget is spent", left.whose);
        match left.pause {
            true => AttemptEnd::Blocked { reason: HoldReason::Budget, until: None, message },
            false => AttemptEnd::Failed {
                class: ErrorClass::NonRetryable,
                code: Some(code::BUDGET.to_owned()),
                message,
                retry_at: None,
            },
        }
    }

    fn failed(&self, failure: Failure, job: &Job) -> AttemptEnd {
        self.ear.close(failure.goes_on, failure.lost);
        if failure.lost {
            // Without its session, it is the same as an attempt that was cut off.
            return AttemptEnd::Interrupted;
        }
        let until = match failure.class {
            ErrorClass::RateLimit => self.limited(failure.until, job),
            _ => None,
        };
        AttemptEnd::Failed {
            class: failure.class,
            code: failure.code.map(str::to_owned),
            message: cut(format!("{}: {}", self.adapter.word(), failure.message)),
            retry_at: until,
        }
    }

    /// Everyone with the same account is told until when it is limited. One that does not wait for that may still be tried
    /// again when it ends soon.
    fn limited(&self, until: Option<Time>, job: &Job) -> Option<Time> {
        let now = Clock::new().now();
        let waits = job.waits || job.relay.is_shared();
        let until = until.or_else(|| waits.then(|| now.after(Millis(limits::ACCOUNT_WAIT))))?;
        let turn = self.account.limit(&self.state, until, now);
        (waits || until.since(now) <= Millis(limits::ACCOUNT_SOON)).then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_random_uuids() {
        let (one, two) = (uuid(chance::random()), uuid(chance::random()));
        assert_ne!(one, two);
        assert_eq!((one.len(), one.as_bytes()[14]), (36, b'4'));
        assert!("89ab".contains(char::from(one.as_bytes()[19])), "{one}");
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
