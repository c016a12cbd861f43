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
    ids::format_uuid_v4,
    ir::{ErrorClass, HoldReason, WorkerSpec},
    limits,
    time::{Millis, Timestamp},
};

use super::{
    ExecutorContext,
    attempt::{file_failure, non_retryable},
    attempt_spec::{AttemptSpec, takes_default_model},
    fallback,
    prompt::{self, PromptContext},
    run_settings::{AgentProgram, AgentSettings},
    sandbox_setup,
    session_carryover::SessionCarryover,
    worker_output::truncate_message,
};
use crate::{
    agent::{
        self, AgentAdapter, AgentAnswer, AgentFailure, AgentHalt, AgentHome, AgentNote, AgentPermissions,
        AgentRequest, AgentSession, AgentStream, AgentStreamConfig, CostMeter, LoginLink, RemainingBudget,
        account::AgentAccount,
    },
    clock::Clock,
    process::{self, CommandDeadline, ExceededLimit, MarkedWork, ProcessOutcome, ProcessReport, ProcessSpec},
    random,
    sandbox::SandboxEnforcement,
    secret::SecretValue,
    workspace::{RootFolder, RunDir},
};

/// An agent that works on an attempt.
#[derive(Debug)]
pub struct AgentLaunch {
    adapter: &'static dyn AgentAdapter,
    ear: AgentStream,
    home: AgentHome,
    login: LoginLink,
    account: AgentAccount,
    /// The state folder, which others look into.
    state: RootFolder,
}

/// What the host lends to agents, which nobody may read in what they print.
pub fn host_credentials() -> Vec<SecretValue> {
    let names = agent::ALL.iter().flat_map(|adapter| adapter.credential_variables());
    let names = names.filter(|name| !name.ends_with("_URL"));
    names.filter_map(|name| SecretValue::new(&std::env::var(name).ok()?).ok()).collect()
}

/// Finds the agent of an attempt and fits the task to it. None: another kind of worker does it.
pub fn prepare_agent_launch(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    run: &RunDir,
    around: PromptContext<'_>,
    task: &mut ProcessSpec,
) -> Result<Option<AgentLaunch>, AttemptEnd> {
    let Some(agent) = job.agent() else { return Ok(None) };
    let Some(word) = agent.worker.as_deref() else { return Ok(None) };
    let adapter = agent::find_adapter(word)
        .ok_or_else(|| non_retryable(format!("no agent here is called `{word}`")))?;
    if let Some(path) = adapter.find_overriding_config(around.folder) {
        return Err(non_retryable(format!(
            "{word} obeys {} in the repository that it works on, and runs what it finds there; take it away, or let \
             another agent do this",
            path.display()
        )));
    }
    let usual = AgentProgram::default();
    let program = job.about.programs.get(word).unwrap_or(&usual);
    let given = agent_variables(adapter, program);
    let account = AgentAccount::from_variables(word, &given);
    let now = Clock::new().now();
    if let Some(until) = account.limited_until(&shared.state, now).filter(|_| !job.released) {
        let end = match job.relay.has_alternatives() {
            true => fallback::handle_account_limit(job, &shared.state, around.files.root(), until),
            false => {
                job.waits.then(|| blocked_by_quota(account.reserve_turn(&shared.state, now).unwrap_or(until)))
            }
        };
        if let Some(end) = end {
            return Err(end);
        }
    }
    let login = adapter.login_link();
    let home = open_home(job, run, adapter, program, &login)?;
    let sandbox = shared.sandbox_enforcement() != Some(SandboxEnforcement::WritesOnly);
    let hiring = AgentTaskBuilder { job, agent, adapter, program, home: &home, around, sandbox };
    let before = SessionCarryover::load(job, run, adapter, &home);
    // A name for a session that nobody else has.
    let fresh = format_uuid_v4(random::random_bytes());
    hiring.fit_task(task, &before, &fresh, given)?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox_setup::grant_agent_places(&mut sandbox.spec, &home, adapter, &task.program)
            .map_err(file_failure)?;
        let servers = job.tool_servers();
        let servers = servers.iter().filter_map(|(_, server)| server.command.first());
        for program in servers.map(Path::new).chain([task.program.as_path()]) {
            sandbox_setup::show_programs(&mut sandbox.spec, program, &task.environment)
                .map_err(file_failure)?;
        }
    }
    let ear = hiring.open_stream(shared, before, fresh, &task.command)?;
    attach_stream(shared, task, &ear);
    Ok(Some(AgentLaunch { adapter, ear, home, login, account, state: shared.state.clone() }))
}

/// The account that a coding agent works with here. None: it is a program of the project's own.
pub fn find_account(job: &AttemptSpec, agent: &AgentSettings) -> Option<AgentAccount> {
    let (adapter, usual) = (agent::find_adapter(agent.worker.as_deref()?)?, AgentProgram::default());
    let program = job.about.programs.get(adapter.agent_name()).unwrap_or(&usual);
    Some(AgentAccount::from_variables(adapter.agent_name(), &agent_variables(adapter, program)))
}

/// A home of its own, or the person's.
fn open_home(
    job: &AttemptSpec,
    run: &RunDir,
    adapter: &dyn AgentAdapter,
    program: &AgentProgram,
    login: &LoginLink,
) -> Result<AgentHome, AttemptEnd> {
    if program.inherit_config {
        return Ok(AgentHome::user_home());
    }
    let place = run.agent_home(job.attempt.at, adapter.agent_name()).map_err(non_retryable)?;
    AgentHome::open(place.path(), login)
        .map_err(|error| non_retryable(format!("its home cannot be made: {error}")))
}

/// An agent that is found, and not yet at work.
struct AgentTaskBuilder<'a> {
    job: &'a AttemptSpec,
    agent: &'a AgentSettings,
    adapter: &'static dyn AgentAdapter,
    program: &'a AgentProgram,
    home: &'a AgentHome,
    around: PromptContext<'a>,
    /// Whether it can have a sandbox of its own.
    sandbox: bool,
}

impl AgentTaskBuilder<'_> {
    /// Makes the task one that this agent can be given. A new session would have the name that is `fresh`.
    fn fit_task(
        &self,
        task: &mut ProcessSpec,
        before: &SessionCarryover,
        fresh: &str,
        given: Vec<(OsString, OsString)>,
    ) -> Result<(), AttemptEnd> {
        let may = agent_permissions(self.job, self.around, self.sandbox);
        if !may.network && !self.adapter.blocks_network(&may) {
            let word = self.adapter.agent_name();
            return Err(non_retryable(format!("nothing keeps the commands of {word} from the network")));
        }
        if let Some((name, _)) = self.job.tool_servers().first().filter(|_| !may.network) {
            return Err(non_retryable(format!(
                "nothing keeps the server `{name}` of its agent from the network"
            )));
        }
        let schema = self.job.outputs.document().filter(|schema| schema["type"] == "object");
        let call = self.adapter.build_invocation(&AgentRequest {
            model: self.model(),
            may: &may,
            session: before.session.as_deref().map_or(AgentSession::New(fresh), AgentSession::Resume),
            schema,
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            servers: &self.job.tool_servers(),
            micro_usd: self.job.left.iter().filter_map(|left| left.micro_usd).min(),
            home: self.home,
            folder: self.around.folder,
            files: self.around.files.root().path(),
            arguments: &self.program.arguments,
        });
        for (path, bytes) in &call.files {
            write_config_file(path, bytes)
                .map_err(|error| non_retryable(format!("{} cannot be written: {error}", path.display())))?;
        }
        let (goes_on, answers) = (before.session.is_some(), self.adapter.answer_is_output(&may, schema));
        let prompt =
            prompt::build_prompt(self.job, self.agent, PromptContext { goes_on, answers, ..self.around });
        task.stdin = prompt.into_bytes().into();
        task.arguments = call.arguments;
        // What the project says comes last, and so wins.
        task.environment.extend(call.environment.into_iter().chain(given));
        task.program = find_agent_program(self.adapter, self.program, task).into();
        // Until its servers are there, it may say nothing.
        let servers = self.job.tool_servers().iter().map(|(_, server)| server.start_timeout().0).max();
        task.start = task.start.or(Some(Millis(limits::AGENT_START + servers.unwrap_or_default())));
        task.idle = task.idle.or(Some(Millis(limits::AGENT_IDLE)));
        Ok(())
    }

    /// Who listens to it. What is known of its session is on disk before it starts.
    fn open_stream(
        &self,
        shared: &Arc<ExecutorContext>,
        before: SessionCarryover,
        fresh: String,
        due: &CommandDeadline,
    ) -> Result<AgentStream, AttemptEnd> {
        let files = self.around.files;
        let note = AgentNote {
            worker: self.adapter.agent_name().to_owned(),
            session: before.session.or_else(|| self.adapter.accepts_session_id().then_some(fresh)),
            model: self.model().map(str::to_owned),
            cost: before.carried,
            total: before.total,
            goes_on: false,
        };
        note.write(files.root()).map_err(non_retryable)?;
        let price = self.model().and_then(|model| self.job.about.prices.get(model)).copied();
        Ok(AgentStream::new(AgentStreamConfig {
            reader: self.adapter.new_reader(self.home, &self.job.tool_servers()),
            meter: CostMeter::new(before.carried, before.total, price, self.job.left.clone()),
            note,
            folder: files.root().clone(),
            events: File::create(files.events_path()).ok(),
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            due: due.clone(),
            stop: stop_callback(shared, self.job),
        }))
    }

    fn model(&self) -> Option<&str> {
        let WorkerSpec::Agent { model, .. } = &self.job.worker else { return None };
        // The step's own model is its own agent's.
        let own = model.as_deref().filter(|_| self.job.relay.current_substitute().is_none());
        let usual =
            || self.job.usual_model.as_deref().filter(|_| takes_default_model(self.adapter.agent_name()));
        own.or(self.agent.model.as_deref()).or_else(usual)
    }
}

fn write_config_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)?;
    // A script is there to be run.
    let mode = if bytes.starts_with(b"#!") { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// What the agent is given beside what every worker has: an account that the host lends, and what the project says.
fn agent_variables(adapter: &dyn AgentAdapter, program: &AgentProgram) -> Vec<(OsString, OsString)> {
    let lent = adapter.credential_variables().iter().filter(|name| !program.env.contains_key(**name));
    let lent = lent.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    lent.chain(program.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

fn max_turns(job: &AttemptSpec) -> Option<u32> {
    let WorkerSpec::Agent { max_turns, .. } = &job.worker else { return None };
    *max_turns
}

fn command_time(job: &AttemptSpec) -> Option<Millis> {
    let WorkerSpec::Agent { command_timeout, .. } = &job.worker else { return None };
    *command_timeout
}

fn agent_permissions(job: &AttemptSpec, around: PromptContext<'_>, sandbox: bool) -> AgentPermissions {
    let tests = job.tests.as_ref().unwrap_or(&job.about.test_commands);
    AgentPermissions {
        network: !job.isolation.no_network,
        back: around.files.output_path().parent().map(Into::into).unwrap_or_default(),
        folder: around.folder.to_owned(),
        files: job.own_files().filter(|_| !job.writes_in_attempt_folder()).map(str::to_owned).collect(),
        sandbox,
        ..AgentPermissions::from_capabilities(job.capabilities(), tests)
    }
}

/// The program itself. One that is not found is looked for again when it is started, which says why.
fn find_agent_program(adapter: &dyn AgentAdapter, program: &AgentProgram, task: &ProcessSpec) -> OsString {
    let name = OsString::from(program.program.as_deref().unwrap_or(adapter.program()));
    let path = task.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    match process::find_program(&name, &path, std::slice::from_ref(&task.directory)) {
        Ok(found) => adapter.find_native_program(found).into_os_string(),
        Err(_) => name,
    }
}

/// Asks for the end of the attempt's program, once it has one.
fn stop_callback(shared: &Arc<ExecutorContext>, job: &AttemptSpec) -> Box<dyn Fn() + Send> {
    let (shared, key) = (Arc::downgrade(shared), (job.run.clone(), MarkedWork::Attempt(job.attempt)));
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.stop_work(&key);
        }
    })
}

/// Both its streams are listened to.
fn attach_stream(shared: &ExecutorContext, task: &mut ProcessSpec, ear: &AgentStream) {
    let (ear, redactor) = (ear.clone(), shared.redactor.new_stream());
    // The first filter that is made is that of standard output.
    let first = AtomicBool::new(true);
    task.filter = Some(Arc::new(move || match first.swap(false, Ordering::SeqCst) {
        true => ear.output_filter(redactor.new_stream()),
        false => ear.error_filter(redactor.new_stream()),
    }));
}

/// Nothing can be had from its account before then.
fn blocked_by_quota(until: Timestamp) -> AttemptEnd {
    let message = "its account has reached its limit".to_owned();
    AttemptEnd::Blocked { reason: HoldReason::Quota, until: Some(until), message }
}

impl AgentLaunch {
    pub fn cost(&self) -> Cost {
        self.ear.cost()
    }

    /// What the agent gave, or what its end means. None: what it means for any program.
    pub fn judge(&self, ended: &ProcessReport, job: &AttemptSpec) -> Result<AgentAnswer, Option<AttemptEnd>> {
        // A login that cannot be put back is still in the home, and put back the next time.
        let _ = self.home.restore_login(&self.login);
        let told = match (self.ear.halt_reason(), &ended.how) {
            (Some(AgentHalt::Budget(left)), _) => return Err(Some(self.end_over_budget(&left))),
            (Some(AgentHalt::Failed(failure)), _) => Err(failure),
            (None, ProcessOutcome::Exited(status)) => self.ear.final_result(*status, &ended.tail),
            (None, how) => {
                // It hung, and not because of what was said in its session.
                self.ear.close(
                    matches!(
                        how,
                        ProcessOutcome::TimedOut(ExceededLimit::Silence(_) | ExceededLimit::Command(_))
                    ),
                    false,
                );
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
                let left =
                    job.left.iter().find(|left| failure.is_budget_exceeded() && left.micro_usd.is_some());
                Err(Some(left.map_or_else(
                    || self.end_after_failure(failure.clone(), job),
                    |left| self.end_over_budget(left),
                )))
            }
        }
    }

    /// A budget is spent: a person is asked, or the step fails.
    fn end_over_budget(&self, left: &RemainingBudget) -> AttemptEnd {
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

    fn end_after_failure(&self, failure: AgentFailure, job: &AttemptSpec) -> AttemptEnd {
        self.ear.close(failure.goes_on, failure.lost);
        if failure.lost {
            // Without its session, it is the same as an attempt that was cut off.
            return AttemptEnd::Interrupted;
        }
        let until = match failure.class {
            ErrorClass::RateLimit => self.record_limit(failure.until, job),
            _ => None,
        };
        AttemptEnd::Failed {
            class: failure.class,
            code: failure.code.map(str::to_owned),
            message: truncate_message(format!("{}: {}", self.adapter.agent_name(), failure.message)),
            retry_at: until,
        }
    }

    /// Everyone with the same account is told until when it is limited. One that does not wait for that may still be tried
    /// again when it ends soon.
    fn record_limit(&self, until: Option<Timestamp>, job: &AttemptSpec) -> Option<Timestamp> {
        let now = Clock::new().now();
        let waits = job.waits || job.relay.has_alternatives();
        let until = until.or_else(|| waits.then(|| now.saturating_add(Millis(limits::ACCOUNT_WAIT))))?;
        let turn = self.account.record_limit(&self.state, until, now);
        (waits || until.duration_since(now) <= Millis(limits::ACCOUNT_SOON)).then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_random_uuids() {
        let (one, two) = (format_uuid_v4(random::random_bytes()), format_uuid_v4(random::random_bytes()));
        assert_ne!(one, two);
        assert_eq!((one.len(), one.as_bytes()[14]), (36, b'4'));
        assert!("89ab".contains(char::from(one.as_bytes()[19])), "{one}");
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
