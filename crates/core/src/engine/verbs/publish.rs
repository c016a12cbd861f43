//! Publish: how the run ended is decided, made known, and closed.

use super::start::hooks;
use crate::{
    engine::{Event, InstanceIx, Publication, Refusal, decide::Decision, state::RunPhase},
    ir::{HookWhen, RunStatus},
    time::Time,
};

impl Decision<'_> {
    /// The root instance has ended.
    pub(in crate::engine) fn run_over(&mut self) {
        let Some(end) = self.state.instance(InstanceIx::ROOT).end().cloned() else { return };
        let retry = self.linked_retry(end.status);
        let mut publish = self.publications(end.status);
        publish.extend(retry.map(|_| Publication::Retry));
        let crate::engine::InstanceEnd { status, output, error, degraded } = end;
        self.emit(Event::RunDecided { status, output, error, degraded, publish, retry });
        self.close_if_published();
    }

    fn publications(&self, status: RunStatus) -> Vec<Publication> {
        let workflow = &self.plan.definition.root().workflow;
        let mut publish = match status {
            RunStatus::Succeeded => hooks(&workflow.hooks, HookWhen::Success),
            RunStatus::Cancelled => Vec::new(),
            _ => hooks(&workflow.hooks, HookWhen::Failure),
        };
        publish.extend((!workflow.files_out.is_empty()).then_some(Publication::Files));
        publish.extend(workflow.context.directory.is_some().then_some(Publication::Context));
        publish
    }

    /// When the run that retries this one is due, if there is to be one.
    fn linked_retry(&self, status: RunStatus) -> Option<Time> {
        let retry = self.entry(InstanceIx::ROOT).scope.retry.as_ref()?;
        let attempt = self.state.start.as_ref()?.attempt;
        let fits = match status {
            RunStatus::Failed | RunStatus::Undone => true,
            RunStatus::TimedOut => retry.on_timeout,
            _ => false,
        };
        (fits && attempt < retry.attempts).then(|| self.now.after(retry.backoff.delay(attempt)))
    }

    pub(in crate::engine) fn published(
        &mut self,
        item: Publication,
        failed: Option<&str>,
    ) -> Result<(), Refusal> {
        if !self.state.commands.publish.contains(&item) {
            return Err(Refusal::NotPublishing);
        }
        self.emit(Event::PublicationEnded { item, failed: failed.map(str::to_owned) });
        self.close_if_published();
        Ok(())
    }

    fn close_if_published(&mut self) {
        if self.state.phase == RunPhase::Decided && self.state.commands.publish.is_empty() {
            self.emit(Event::Closed);
        }
    }
}
