//! One attempt from its start to its end: what it needs is laid out, the program runs, what it left is taken up.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, Cost, Proof, Report, Role},
    ir::{ErrorClass, HoldReason},
    limits,
};

use super::{
    Doing, Shared,
    artifacts::{keep_from, take_in, unkept, without},
    back, briefing,
    command::{Command, Speaks},
    company::Stay,
    confine,
    environment::{self, Environment},
    evidence::{Ground, Proving},
    git::Git,
    handoff,
    hire::{self, Hired},
    job::Job,
    prompt::{self, Around},
    protect::Protected,
    record, relay, tool,
    tree::{self, Place, Visit},
    verdict,
};
use crate::{
    agent::Done,
    chance,
    worker::{Ended, How, Mark, Task, Work},
    workspace::{
        AttemptDir, Context, Grants, Root, RunDir,
        root::{Identity, PathError},
    },
};

/// So much of what an agent printed is searched for a decision.
const SAID: u64 = 256 * 1024;

/// Everything of an attempt that is needed when its program has ended.
pub(super) struct Laid {
    job: Arc<Job>,
    run: RunDir,
    files: AttemptDir,
    /// The workspace that it is for, and where it works: there, or in a tree of its own.
    base: Root,
    folder: Root,
    /// Where the files are that it was to write.
    own_files: Root,
    /// The folders that are no part of what it gives.
    without: Vec<Identity>,
    speaks: Speaks,
    /// The coding agent that does it.
    hired: Option<Hired>,
    check: Option<String>,
    /// The run's workspace, where changed files are looked for.
    workspace: Option<Root>,
    /// What was made in its folder so that it may write it.
    made: Vec<String>,
    /// What it must prove.
    proving: Option<Proving>,
    /// What it must leave as it is, and who else works there.
    protected: Option<(Protected, Stay)>,
    walled: bool,
    /// The state folder.
    state: PathBuf,
    mark: Mark,
    tree: Place,
}

/// An attempt that was laid out.
pub(super) enum Begun {
    Ready(Box<(Task, Laid)>),
    /// It cannot begin, or the work was done before and only its end was not told.
    Over(Report),
}

/// Lays out what an attempt needs.
pub(super) fn lay_out(shared: &Arc<Shared>, mut job: Job) -> Begun {
    let found = find(shared, &mut job);
    let (by, job) = (job.relay.by(), Arc::new(job));
    let report = |end| Report { by, ..Report::new(end, Cost::default()) };
    let (run, files) = match found {
        Ok(found) => found,
        Err(end) => return Begun::Over(report(end)),
    };
    lay(shared, &job, run.clone(), files.clone()).unwrap_or_else(|end| {
        let (report, mark) = (report(end), mark(shared, &job));
        let around = record::Around { run: &run, files: &files, folder: None, mark: &mark };
        record::end(shared, &job, &around, &report);
        Begun::Over(report)
    })
}

fn mark(shared: &Shared, job: &Job) -> Mark {
    Mark { state: shared.mark.clone(), run: job.run.clone(), work: Work::Attempt(job.attempt) }
}

/// The folders of an attempt, and whose turn it is.
fn find(shared: &Shared, job: &mut Job) -> Result<(RunDir, AttemptDir), AttemptEnd> {
    let run = shared.run_dir(&job.run).map_err(wrong)?;
    let files = run.attempt(job.attempt).map_err(wrong)?;
    relay::choose(job, &run, files.root())?;
    Ok((run, files))
}

fn lay(shared: &Arc<Shared>, job: &Arc<Job>, run: RunDir, files: AttemptDir) -> Result<Begun, AttemptEnd> {
    if let Some(tool) = job.tool() {
        tool::check_inputs(tool, &job.given.inputs)?;
    }
    let grants = job.about.grants(shared.state.path()).map_err(never)?;
    let base = grants.make_folder(job.isolation.workspace.as_deref()).map_err(never)?;
    let mark = mark(shared, job);
    let around = record::Around { run: &run, files: &files, folder: Some(&base), mark: &mark };
    record::begin(shared, job, &around).map_err(|why| never(format!("it cannot be recorded: {why}")))?;
    let context = tell_context(shared, &run, &grants, job)?;
    let place = context.as_ref().map(|context| context.root().path());
    let visit = Visit { shared, job, run: &run, mark: &mark };
    if let Some(report) = tree::finished(visit, &base, place)? {
        record::end(shared, job, &around, &report);
        return Ok(Begun::Over(report));
    }
    write_inputs(job, &files).map_err(wrong)?;
    let mut tree = Place::enter(visit, base.clone(), place)?;
    let folder = tree.folder.clone();
    take_in(&run, &folder, job)?;
    tree.begin(visit, &files)?;
    handoff::copy_logs(&job.handed, &run, &files);
    let check = check(&folder, job)?;
    let own_files = if job.writes_apart() { files.back().map_err(wrong)? } else { folder.clone() };
    let briefing = briefing::of(shared, job);
    let plain = Around {
        files: &files,
        briefing: briefing.text.as_deref(),
        folder: folder.path(),
        own: own_files.path(),
        check: check.as_deref(),
        goes_on: false,
        answers: false,
        put_back: tree.put_back,
        earlier: tree.earlier.as_deref(),
        conflicts: &tree.conflicts,
    };
    let command = Command::of(job, |agent| prompt::of(job, agent, plain)).map_err(never)?;
    let speaks = command.speaks;
    let mut task = task(shared, job, &run, &files, &folder, command);
    task.environment = environment::of(job, &files, place, check.as_deref(), &shared.secrets)
        .map_err(|error| blocked(error.to_string()))?;
    task.environment.extend(told_of_tree(&tree, &files).map_err(wrong)?);
    let own = tree.behind(visit).map_err(never)?;
    let beside = tree.beside(visit).map_err(never)?;
    let places = confine::Places { run: &run, files: &files, folder: &folder, context: place, own, beside };
    let handed = environment::secret_files(job, &run, &shared.secrets).map_err(blocked)?;
    let made = wall_in(shared, job, &places, !handed.is_empty(), &mut task).map_err(wrong)?;
    task.environment.extend(handed);
    let ground = Ground::of(&task, job, &places, &own_files).map_err(wrong)?;
    task.preface = briefing.notes.iter().map(|note| shared.redactor.redact_str(note)).collect();
    let hired = hire::hire(shared, job, &run, plain, &mut task)?;
    let without = without(shared, context.as_ref())?;
    let proving = Proving::of(job, &run, ground, &without)?;
    let protected = Protected::of(shared, job, &run, &files, &folder, &without)?;
    let protected = protected.map(|protected| (protected, shared.company.enter(folder.path())));
    let workspace = looked_at(job, &grants, &tree).map_err(never)?;
    let laid = Laid {
        job: Arc::clone(job),
        run,
        files,
        base,
        folder,
        own_files,
        without,
        speaks,
        hired,
        check,
        workspace,
        made,
        proving,
        protected,
        walled: task.behind.is_some(),
        state: shared.state.path().to_owned(),
        mark,
        tree,
    };
    Ok(Begun::Ready(Box::new((task, laid))))
}

/// Where it is told what an earlier try changed, and what could not be merged.
fn told_of_tree(tree: &Place, files: &AttemptDir) -> Result<Environment, PathError> {
    let mut told = Environment::new();
    if tree.earlier.is_some() {
        told.push(("SKEIN_CHANGES".into(), files.earlier().into()));
    }
    if !tree.conflicts.is_empty() {
        let conflicts = serde_json::to_vec_pretty(&tree.conflicts).expect("it is plain data");
        files.root().write_new(AttemptDir::CONFLICTS, &conflicts)?;
        told.push(("SKEIN_CONFLICTS".into(), files.conflicts().into()));
    }
    Ok(told)
}

fn write_inputs(job: &Job, files: &AttemptDir) -> Result<(), PathError> {
    let inputs = serde_json::to_vec_pretty(&job.given.inputs).expect("inputs are JSON");
    files.root().write_new(AttemptDir::INPUTS, &inputs)
}

/// Builds the wall around the task, with a place for what it writes by the way. What was made so that it can be written.
fn wall_in(
    shared: &Shared,
    job: &Job,
    places: &confine::Places<'_>,
    has_secret_files: bool,
    task: &mut Task,
) -> Result<Vec<String>, PathError> {
    let (mut behind, made) = confine::behind(shared, job, places)?;
    if let Some(behind) = behind.as_mut().filter(|_| has_secret_files) {
        behind.wall.shows.push(places.run.secrets(job.attempt)?.path().to_owned());
    }
    if behind.is_some() {
        let scratch = places.files.scratch()?;
        task.environment.push(("TMPDIR".into(), scratch.path().into()));
    }
    task.behind = behind;
    Ok(made)
}

/// Where it is looked which files were changed, if anyone looks.
fn looked_at(job: &Job, grants: &Grants, tree: &Place) -> Result<Option<Root>, String> {
    if job.guard.is_none() {
        return Ok(None);
    }
    let workspace = grants.folder(None).map_err(|error| error.to_string())?;
    tree.of_shared(&workspace).map(Some).map_err(|error| error.to_string())
}

/// What only the checker of this attempt is told, so that nobody else can decide for it.
fn check(folder: &Root, job: &Job) -> Result<Option<String>, AttemptEnd> {
    if job.attempt.role != Role::Check {
        return Ok(None);
    }
    // What an earlier check decided, or the worker wrote in its place, is not this one's.
    remove_decision(folder, job)?;
    Ok(Some(chance::hex::<16>()))
}

/// The program, with what it reads and how long it may take.
fn task(
    shared: &Shared,
    job: &Job,
    run: &RunDir,
    files: &AttemptDir,
    folder: &Root,
    command: Command,
) -> Task {
    let mut task = Task::new(command.program, folder.path(), files.log(), mark(shared, job));
    task.notes = Some(run.notes());
    task.arguments = command.arguments;
    task.stdin = command.stdin.into();
    task.stdout = (command.speaks != Speaks::File).then(|| files.stdout());
    let limits = [job.limit, job.tool().and_then(|tool| tool.limit)];
    task.limit = limits.into_iter().flatten().min();
    (task.idle, task.start) = (job.idle, job.start);
    task.filter = shared.filter();
    task.tell = shared.tell(job);
    task
}

/// Brings the context folder up to date with what has been done so far.
pub(super) fn tell_context(
    shared: &Shared,
    run: &RunDir,
    grants: &Grants,
    job: &Job,
) -> Result<Option<Context>, AttemptEnd> {
    let (Some(snapshot), Some(directory)) = (&job.snapshot, &job.context) else { return Ok(None) };
    let workspace = grants.folder(None).map_err(never)?;
    shared.tell_context(&workspace, directory, &job.run, &snapshot.story(run)).map(Some).map_err(unkept)
}

fn remove_decision(folder: &Root, job: &Job) -> Result<(), AttemptEnd> {
    match &job.decision_file {
        Some(name) => folder.remove(name).map(drop).map_err(never),
        None => Ok(()),
    }
}

impl Laid {
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// What became of the attempt, now that its program has ended, and what it spent.
    pub fn take_up(&mut self, shared: &Shared, key: &Doing, ended: &Ended) -> Report {
        let (end, proofs) = match confine::unmake(&self.made, &self.folder) {
            Ok(()) => self.became(shared, key, ended),
            Err(error) => (wrong(error), Vec::new()),
        };
        let end = match &self.protected {
            Some((protected, stay)) => protected.judge(end, &self.job, stay.was_alone()),
            None => end,
        };
        // What cannot be removed goes with the run.
        let _ = (self.files.remove_scratch(), self.run.remove_secrets(self.job.attempt));
        let end = relay::end(&self.job, self.files.root(), &shared.redactor, &shared.state, end);
        let cost = self.hired.as_ref().map_or_else(Cost::default, Hired::cost);
        let report = Report { end, cost, proofs, by: self.job.relay.by() };
        let visit = Visit { shared, job: &self.job, run: &self.run, mark: &self.mark };
        let report = self.tree.end(visit, &self.files, report);
        let (run, files, folder, mark) = (&self.run, &self.files, Some(&self.base), &self.mark);
        record::end(shared, &self.job, &record::Around { run, files, folder, mark }, &report);
        report
    }

    fn visit<'a>(&'a self, shared: &'a Shared) -> Visit<'a> {
        Visit { shared, job: &self.job, run: &self.run, mark: &self.mark }
    }

    fn became(&self, shared: &Shared, key: &Doing, ended: &Ended) -> (AttemptEnd, Vec<Proof>) {
        let end = match self.job.attempt.role {
            Role::Check => self.checked(shared, ended),
            Role::Main => return self.worked(shared, key, ended),
            Role::Summary => self.summed_up(ended),
            Role::Undo => self.given(ended),
        };
        (end, Vec::new())
    }

    /// What a worker that ended well says that it gave. An agent says so itself; of others the exit status is all there is.
    fn done(&self, ended: &Ended) -> Result<Option<Done>, AttemptEnd> {
        let done = match &self.hired {
            Some(hired) => hired.judge(ended, &self.job).map(Some),
            None if ended.how == How::Exited(0) => Ok(None),
            None => Err(None),
        };
        done.map_err(|end| end.unwrap_or_else(|| self.failed(ended)))
    }

    fn failed(&self, ended: &Ended) -> AttemptEnd {
        match self.files.back() {
            Ok(back) => back::failed(ended, &back, self.job.worker.failure(), self.walled),
            Err(error) => wrong(error),
        }
    }

    /// The work itself: what it gave, what is proven of it, and the artifacts it declared.
    fn worked(&self, shared: &Shared, key: &Doing, ended: &Ended) -> (AttemptEnd, Vec<Proof>) {
        let end = self.given(ended);
        if !matches!(end, AttemptEnd::Succeeded { .. }) {
            return (end, Vec::new());
        }
        let proofs = match &self.proving {
            Some(proving) => proving.prove(shared, &self.job, key),
            None => Some(Vec::new()),
        };
        let Some(proofs) = proofs else { return (AttemptEnd::Stopped, Vec::new()) };
        // What is not proven is not handed on.
        let keeps = !self.job.gives.is_empty() && proofs.iter().all(|proof| proof.holds);
        let kept = || keep_from(&self.run, &self.job, &self.own_files, &self.without);
        match if keeps { kept() } else { Ok(()) } {
            Ok(()) => (end, proofs),
            Err(end) => (end, proofs),
        }
    }

    /// What the worker gave, if it ended well.
    fn given(&self, ended: &Ended) -> AttemptEnd {
        if let (Some(tool), How::Exited(status)) = (self.job.tool(), &ended.how) {
            return match self.printed(limits::VALUE_BYTES as u64) {
                Ok(printed) => tool::end(tool, *status, &printed, || self.failed(ended)),
                Err(error) => wrong(error),
            };
        }
        match self.done(ended) {
            Ok(done) => self.output(done.and_then(|done| done.value)),
            Err(end) => end,
        }
    }

    /// What the file holds, or what was answered.
    fn output(&self, answered: Option<Value>) -> AttemptEnd {
        let written =
            self.files.back().map_err(|error| error.to_string()).and_then(|back| back::output(&back));
        match written {
            Ok(Value::Null) => AttemptEnd::Succeeded { output: Arc::new(answered.unwrap_or_default()) },
            Ok(output) => AttemptEnd::Succeeded { output: Arc::new(output) },
            Err(message) => failed(ErrorClass::Validation, message),
        }
    }

    /// A summary is what the file holds, or what was said.
    fn summed_up(&self, ended: &Ended) -> AttemptEnd {
        match self.done(ended) {
            Ok(done) => self.output(Some(Value::from(self.said(done).trim()))),
            Err(end) => end,
        }
    }

    fn checked(&self, shared: &Shared, ended: &Ended) -> AttemptEnd {
        let check = self.check.as_deref().unwrap_or_default();
        let file = self.decision();
        let verdict = match (&ended.how, self.speaks) {
            (How::Exited(status), Speaks::File) => {
                verdict::of_script(*status, file.as_deref(), check).ok_or_else(|| self.failed(ended))
            }
            _ => self.done(ended).map(|done| verdict::of_agent(file.as_deref(), &self.said(done), check)),
        };
        verdict.map_or_else(|end| end, |verdict| self.guarded(shared, verdict.end()))
    }

    /// What the files that were changed make of a finding. Where git cannot say which, nothing can be said at all.
    fn guarded(&self, shared: &Shared, end: AttemptEnd) -> AttemptEnd {
        let (Some(guard), Some(workspace)) = (&self.job.guard, &self.workspace) else { return end };
        let own = self.tree.changed_files(self.visit(shared), workspace, &guard.convergence);
        let asked = || {
            let git = Git::new(workspace.path(), self.files.root(), &self.mark);
            git.changed(workspace, &guard.convergence)
        };
        match own.unwrap_or_else(asked) {
            Ok(changed) => guard.judge(end, &changed, self.state.strip_prefix(workspace.path()).ok()),
            Err(why) => never(format!("it cannot be told which files were changed: {why}")),
        }
    }

    fn decision(&self) -> Option<String> {
        let name = self.job.decision_file.as_ref()?;
        String::from_utf8(self.own_files.read(name, limits::DECISION_BYTES).ok()?).ok()
    }

    /// All that it printed, if it is no more than that.
    fn printed(&self, most: u64) -> Result<Vec<u8>, PathError> {
        match self.files.root().read(AttemptDir::STDOUT, most) {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => other,
        }
    }

    /// What an agent said in the end, or else the end of what was printed. What cannot be read says nothing.
    fn said(&self, done: Option<Done>) -> String {
        if let Some(done) = done {
            return done.text;
        }
        String::from_utf8_lossy(&self.files.tail(true, SAID).unwrap_or_default()).into_owned()
    }
}

pub(super) fn failed(class: ErrorClass, message: String) -> AttemptEnd {
    AttemptEnd::Failed { class, code: None, message: back::cut(message), retry_at: None }
}

/// Trying again would come to the same.
pub(super) fn never(error: impl ToString) -> AttemptEnd {
    failed(ErrorClass::NonRetryable, error.to_string())
}

/// Our own files are not as they should be.
pub(super) fn wrong(error: PathError) -> AttemptEnd {
    failed(ErrorClass::Transient, error.to_string())
}

fn blocked(message: String) -> AttemptEnd {
    AttemptEnd::Blocked { reason: HoldReason::Secret, until: None, message }
}
