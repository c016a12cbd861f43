//! What the attempts of a process share: where runs are kept, what was settled about them, and what is at work now.
//!
//! Owns that everything at work is known, can be called off, and is told once when it has ended. What one attempt does is
//! its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skein_core::{
    engine::{AttemptEnd, CheckOutput, Cost, Report},
    ids::RunId,
};

use super::{
    TellLine,
    about::About,
    attempt::{self, Begun, Laid},
    builtin,
    company::Company,
    job::Job,
    live::{Doing, Live},
    replay,
    scrub::scrub_attempt,
    tree::Trees,
    trusted,
};
use crate::{
    hands::{Finish, Running},
    redact::Redactor,
    sandbox::{Enforcement, Launcher},
    secret::Secrets,
    worker::{self, Filter, Handle, NewFilter, StateMark, Task, Tell},
    workspace::{
        ArtifactError, Context, Contexts, Root, RunDir, Sizes, Story, WrittenArtifacts, root::PathError,
    },
};

/// What was settled about runs. Of many that are begun together it is often the same, and then it is read once, and the
/// schemas of their tools are made ready once.
#[derive(Default)]
pub(super) struct Abouts {
    pub(super) of: BTreeMap<RunId, Arc<About>>,
    pub(super) last: Option<(serde_json::Value, Arc<About>)>,
}

pub(super) struct Shared {
    pub(super) state: Root,
    pub(super) mark: StateMark,
    pub(super) secrets: Secrets,
    /// The program that starts workers in sandboxes. Without it there are none.
    pub(super) launcher: Option<Launcher>,
    pub(super) redactor: Redactor,
    pub(super) lines: Option<TellLine>,
    pub(super) live: Mutex<BTreeMap<Doing, Live>>,
    /// Held by who writes a context folder.
    pub(super) telling: Mutex<()>,
    pub(super) contexts: Arc<Contexts>,
    /// Runs whose folders are known to last.
    pub(super) lasting: Mutex<BTreeSet<RunId>>,
    /// What each run is known to have kept.
    pub(super) sizes: Mutex<BTreeMap<RunId, Sizes>>,
    pub(super) company: Arc<Company>,
    pub(super) trees: Trees,
    /// What was settled about each run that something was asked of, read once.
    pub(super) abouts: Mutex<Abouts>,
    /// Held by who looks at a workspace to record what was changed in it.
    pub(super) taping: Mutex<()>,
    /// Told when something of `live` is gone or called off.
    pub(super) left: Condvar,
}

impl Shared {
    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<Doing, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn about(&self, running: Running<'_>) -> Result<Arc<About>, String> {
        let mut abouts = self.abouts();
        if let Some(about) = abouts.of.get(running.run) {
            return Ok(Arc::clone(about));
        }
        let same = abouts.last.as_ref().filter(|(value, _)| value == running.about);
        let about = match same.map(|(_, about)| Arc::clone(about)) {
            Some(about) => about,
            None => {
                let about = Arc::new(About::read(running.about)?);
                abouts.last = Some((running.about.clone(), Arc::clone(&about)));
                about
            }
        };
        trusted::note_writable(&about);
        abouts.of.insert(running.run.clone(), Arc::clone(&about));
        Ok(about)
    }

    /// What was handed out as files is taken back, whoever left it.
    pub(super) fn remove_secrets(&self, runs: &[RunId]) {
        for run in runs.iter().filter_map(|run| RunDir::open(&self.state, run).ok()) {
            // What cannot be removed goes with the run.
            let _ = run.remove_all_secrets();
        }
    }

    /// Takes secrets out of what attempts of runs left whose processes are gone.
    pub(super) fn scrub<'a>(&self, runs: impl Iterator<Item = &'a RunId>) {
        if !self.redactor.has_secrets() {
            return;
        }
        for run in runs.filter_map(|run| RunDir::open(&self.state, run).ok()) {
            let attempts = run.attempts().unwrap_or_default().into_iter();
            let folders = attempts.filter_map(|attempt| run.find_attempt(attempt).ok().flatten());
            folders.for_each(|files| scrub_attempt(&files, &self.redactor));
        }
    }

    pub(super) fn abouts(&self) -> MutexGuard<'_, Abouts> {
        self.abouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sizes(&self) -> MutexGuard<'_, BTreeMap<RunId, Sizes>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lasting(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of a run, synced the first time that it is asked for here.
    pub(super) fn run_dir(&self, run: &RunId) -> Result<RunDir, PathError> {
        if self.lasting().contains(run) {
            return RunDir::create(&self.state, run);
        }
        let folder = RunDir::create_synced(&self.state, run)?;
        self.lasting().insert(run.clone());
        Ok(folder)
    }

    /// How much of a sandbox this machine enforces. None: nothing.
    pub(super) fn enforced(&self) -> Option<Enforcement> {
        self.launcher.as_ref()?.enforcement().as_ref().ok().copied()
    }

    /// Writes the context folder of a run. What an earlier run left there goes first; one that goes on is not disturbed.
    pub(super) fn tell_context(
        &self,
        workspace: &Root,
        directory: &str,
        run: &RunId,
        story: &Story<'_>,
    ) -> Result<Context, ArtifactError> {
        let _one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let context = Context::open(workspace, directory)?;
        self.contexts.hold(&context, run)?;
        let holder = context.holder()?.filter(|holder| holder.id != run.as_str());
        let is_others = holder.is_some();
        if let Some(holder) = holder {
            context.clear(&self.written_by(&holder.id))?;
        }
        // What people look into when a run is over is whole, whatever became of it meanwhile.
        self.contexts.write(&context, story, is_others || story.state.end.is_some())?;
        Ok(context)
    }

    /// The artifacts of the run that wrote a context folder; none if nothing of that run is kept here any more.
    fn written_by(&self, run: &str) -> WrittenArtifacts {
        let kept = RunId::new(run).ok().and_then(|run| RunDir::open(&self.state, &run).ok());
        kept.and_then(|kept| WrittenArtifacts::read(&kept).ok()).unwrap_or_default()
    }

    pub(super) fn filter(&self) -> Option<NewFilter> {
        let redactor = self.redactor.fresh();
        Some(Arc::new(move || Box::new(redactor.fresh()) as Box<dyn Filter>))
    }

    pub(super) fn tell(&self, job: &Job) -> Option<Tell> {
        let (lines, run, attempt) = (self.lines.clone()?, job.run.clone(), job.attempt);
        Some(Box::new(move |line| lines(&run, attempt, line)))
    }

    /// One attempt, from its beginning to its end.
    pub(super) fn attempt(self: &Arc<Shared>, job: Job, key: Doing, finish: Finish) {
        if let Some(function) = job.tool().and_then(|tool| tool.function).filter(|one| !one.reaches_out()) {
            return builtin::work(self, &job, function, &key, finish);
        }
        if let Some(path) = job.about.replay.clone() {
            let report = replay::attempt(self, &job, &path, &key);
            return self.finish(&key, report, finish);
        }
        match attempt::lay_out(self, job) {
            Begun::Ready(ready) => {
                let (task, laid) = *ready;
                self.work(task, laid, key, finish);
            }
            Begun::Over(report) => self.finish(&key, report, finish),
        }
    }

    /// Runs the program, unless it was called off meanwhile.
    pub(super) fn work(&self, task: Task, mut laid: Laid, key: Doing, finish: Finish) {
        if self.is_stopped(&key) {
            return self.end(&key, AttemptEnd::Stopped, finish);
        }
        let ended = match laid.job().asking(self) {
            Some(asking) => asking.run(task, &key),
            None => worker::run(task, |handle| self.started(&key, handle)),
        };
        let report = laid.take_up(self, &key, &ended);
        self.finish(&key, report, finish);
    }

    /// From now on it is stopped by this. It may have been called off before.
    pub(super) fn started(&self, key: &Doing, handle: Handle) {
        if let Some(live) = self.live().get_mut(key) {
            live.started(handle);
        }
    }

    pub(super) fn is_stopped(&self, key: &Doing) -> bool {
        matches!(self.live().get(key), Some(Live::Ahead { stopped: true }))
    }

    /// Nothing of it is at work any more.
    pub(super) fn gone(&self, key: &Doing) {
        self.live().remove(key);
        self.left.notify_all();
    }

    /// An attempt that came to nothing before it could use anything.
    pub(super) fn end(&self, key: &Doing, end: AttemptEnd, finish: Finish) {
        self.finish(key, Report::new(end, Cost::default()), finish);
    }

    pub(super) fn finish(&self, key: &Doing, report: Report, finish: Finish) {
        self.gone(key);
        finish.tell(self.without_secrets(report));
    }

    /// Asks for the end of something that has begun.
    pub(super) fn stop(&self, key: &Doing) {
        if let Some(live) = self.live().get_mut(key) {
            live.stop();
        }
        self.left.notify_all();
    }

    /// Waits until something that has no program is called off. Whether it was.
    pub(super) fn wait_for_stop(&self, key: &Doing, within: Duration) -> bool {
        let goes_on =
            |live: &mut BTreeMap<Doing, Live>| matches!(live.get(key), Some(Live::Ahead { stopped: false }));
        let waited = self.left.wait_timeout_while(self.live(), within, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn taping(&self) -> MutexGuard<'_, ()> {
        self.taping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Secrets are taken out before anything is decided or kept.
    pub(super) fn without_secrets(&self, report: Report) -> Report {
        let Report { end, cost, mut proofs, by } = report;
        for proof in &mut proofs {
            proof.what = self.redactor.redact_str(&proof.what);
            proof.found = self.redactor.redact_str(&proof.found);
        }
        let by = by.map(|by| self.redactor.redact_str(&by));
        Report { end: self.end_without_secrets(end), cost, proofs, by }
    }

    pub(super) fn end_without_secrets(&self, end: AttemptEnd) -> AttemptEnd {
        let texts = |texts: Vec<String>| texts.iter().map(|text| self.redactor.redact_str(text)).collect();
        match end {
            AttemptEnd::Succeeded { output } => {
                AttemptEnd::Succeeded { output: self.redactor.redact_shared(output) }
            }
            AttemptEnd::Checked { finding, reasons, fingerprints, output } => AttemptEnd::Checked {
                finding,
                reasons: texts(reasons),
                fingerprints: texts(fingerprints),
                output: output.map(|CheckOutput { status, text }| CheckOutput {
                    status,
                    text: self.redactor.redact_str(&text),
                }),
            },
            AttemptEnd::Failed { class, code, message, retry_at } => AttemptEnd::Failed {
                class,
                code: code.map(|code| self.redactor.redact_str(&code)),
                message: self.redactor.redact_str(&message),
                retry_at,
            },
            AttemptEnd::Unmerged { output, message } => AttemptEnd::Unmerged {
                output: self.redactor.redact_shared(output),
                message: self.redactor.redact_str(&message),
            },
            AttemptEnd::HandedOver { to, message } => AttemptEnd::HandedOver {
                to: self.redactor.redact_str(&to),
                message: self.redactor.redact_str(&message),
            },
            AttemptEnd::Blocked { reason, until, message } => {
                AttemptEnd::Blocked { reason, until, message: self.redactor.redact_str(&message) }
            }
            end @ (AttemptEnd::Stopped | AttemptEnd::Interrupted | AttemptEnd::TimedOut) => end,
        }
    }

    pub(super) fn each_of(&self, run: &RunId, what: impl Fn(&mut Live)) {
        for ((of, _), live) in self.live().iter_mut() {
            if of == run {
                what(live);
            }
        }
    }
}
