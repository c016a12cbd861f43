//! Publish: decides the end of the run, publishes it, and closes the run.

use super::start::select_hooks;
use crate::{
    engine::{Event, InstanceIx, Publication, Refusal, decide::DecideContext, state::RunPhase},
    ir::{HookTiming, RunStatus},
    time::Timestamp,
};

impl DecideContext<'_> {
    /// Decides the outcome of the run after the root instance has ended.
    pub(in crate::engine) fn decide_run_end(&mut self) {
        let Some(end) = self.state.instance(InstanceIx::ROOT).end().cloned() else { return };
        let retry = self.linked_retry_due(end.status);
        let mut publish = self.list_publications(end.status);
        publish.extend(retry.map(|_| Publication::Retry));
        let crate::engine::InstanceEnd { status, output, error, degraded } = end;
        self.emit(Event::RunDecided { status, output, error, degraded, publish, retry });
        self.close_if_published();
    }

    fn list_publications(&self, status: RunStatus) -> Vec<Publication> {
        let workflow = &self.plan.definition.root().workflow;
        let mut publish = match status {
            RunStatus::Succeeded => select_hooks(&workflow.hooks, HookTiming::Success),
            RunStatus::Cancelled => Vec::new(),
            _ => select_hooks(&workflow.hooks, HookTiming::Failure),
        };
        publish.extend((!workflow.files_out.is_empty()).then_some(Publication::Files));
        publish.extend(workflow.context.directory.is_some().then_some(Publication::Context));
        publish
    }

    /// Returns the time at which a retry of the whole run is due, if there is to be one.
    fn linked_retry_due(&self, status: RunStatus) -> Option<Timestamp> {
        let retry = self.scope_entry(InstanceIx::ROOT).scope.retry.as_ref()?;
        let attempt = self.state.start.as_ref()?.attempt;
        let fits = match status {
            RunStatus::Failed | RunStatus::Undone => true,
            RunStatus::TimedOut => retry.on_timeout,
            _ => false,
        };
        (fits && attempt < retry.attempts).then(|| self.now.saturating_add(retry.backoff.retry_delay(attempt)))
    }

    pub(in crate::engine) fn record_publication(
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
