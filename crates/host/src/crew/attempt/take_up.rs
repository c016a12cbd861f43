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
        record, relay, tool, tree::Visit, verdict,
    },
    worker::{Ended, How},
    workspace::{AttemptDir, root::PathError},
};

/// So much of what an agent printed is searched for a decision.
const SAID: u64 = 256 * 1024;

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
