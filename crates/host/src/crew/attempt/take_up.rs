//! Takes up what a program left when it has ended: what counts, what is kept, and what became of the attempt.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, Cost, Proof, Report, Role},
    ir::ErrorClass,
    limits,
};

use super::{Laid, failed, never, wrong};
use crate::{
    agent::Done,
    crew::{
        Doing, Shared, artifacts::keep_from, back, command::Speaks, confine, git::Git, hire::Hired, job::Job,
        record, relay, scrub::scrub_attempt, tool, tree::Visit, verdict,
    },
    worker::{Ended, How},
    workspace::{AttemptDir, Observation, root::PathError},
};

/// So much of what an agent printed is searched for a decision.
const SAID: u64 = 256 * 1024;

/// The number of changed files that are listed in the context folder.
const FILES_OBSERVED: usize = 1_000;

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
        self.observe(ended);
        // By now everything that it left was read.
        scrub_attempt(&self.files, &shared.redactor);
        report
    }

    /// Keeps what was seen of the work for the context folder: the files that it changed, and what it said last.
    fn observe(&self, ended: &Ended) {
        if self.job.attempt.role != Role::Main || self.job.context.is_none() {
            return;
        }
        // An agent prints events; only its last message is for people.
        let printed = if self.hired.is_some() { "" } else { ended.tail.as_str() };
        let said = self.last_words.get().map_or(printed, String::as_str).trim();
        let summary = (!said.is_empty()).then(|| Observation::shorten(&self.redactor.redact_str(said)));
        let files_changed = self.tree.changed.iter().take(FILES_OBSERVED).cloned().collect();
        // The work stands without it.
        let _ = self.files.observe(&Observation { command: None, files_changed, summary });
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
            Ok(back) => back::failed(ended, &back, self.job.worker.failure(), self.sandboxed, &self.redactor),
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
        let kept = || keep_from(shared, &self.run, &self.job, &self.own_files, &self.without);
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
            Ok(done) => {
                if let Some(done) = &done {
                    let _ = self.last_words.set(done.text.clone());
                }
                self.output(done.and_then(|done| done.value))
            }
            Err(end) => end,
        }
    }

    /// What the file holds, or what was answered.
    fn output(&self, answered: Option<Value>) -> AttemptEnd {
        let back = self.files.back().map_err(|error| error.to_string());
        let written = back.and_then(|back| back::output(&back, &self.redactor));
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
                verdict::of_script(*status, file.as_deref(), &ended.recent, check)
                    .ok_or_else(|| self.failed(ended))
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
