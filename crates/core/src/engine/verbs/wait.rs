//! Wait: opens for a signal, takes one that came before, or goes on without.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    engine::{
        Error, Event, InstanceIx, Opening, Refusal, StepAt, code,
        decide::{Decision, End},
        state::InstancePhase,
        transitions::Phase,
    },
    ids::SignalName,
    ir::{ErrorClass, Kind, Wait, WaitTimeout},
    limits,
};

impl Decision<'_> {
    pub(in crate::engine) fn open_wait(&mut self, at: StepAt, wait: &Wait) {
        let deadline = wait.timeout.map(|timeout| self.now.after(timeout));
        let opening = self.next_opening();
        let (approvers, message, shows) = (Vec::new(), String::new(), crate::engine::state::null());
        self.emit(Event::Opened { at, opening, deadline, approvers, quorum: 1, message, shows });
        let kept = self.state.signals.iter().find(|(name, _)| wait.on.contains(name)).cloned();
        if let Some((name, payload)) = kept {
            self.take(at, opening, &name, &payload, true);
        }
    }

    pub(in crate::engine) fn signal(
        &mut self,
        name: &SignalName,
        payload: &Arc<Value>,
        to: Option<StepAt>,
    ) -> Result<(), Refusal> {
        let root = &self.state.instance(InstanceIx::ROOT).phase;
        if matches!(root, InstancePhase::Undoing { .. } | InstancePhase::Ended { .. }) {
            return Err(Refusal::Ended);
        }
        if !self.plan.definition.signals.contains(name) {
            return Err(Refusal::UnknownSignal);
        }
        if let Some(at) = to {
            let opening = self.waiting(at, name)?;
            self.take(at, opening, name, payload, false);
            return Ok(());
        }
        let open: Vec<Opening> = self.state.waits.get(name).into_iter().flatten().copied().collect();
        if !open.is_empty() {
            for opening in open {
                let at = self.state.opening(opening).expect("it is open").at;
                self.take(at, opening, name, payload, false);
            }
        } else if self.state.signals.len() >= limits::KEPT_SIGNALS {
            return Err(Refusal::TooManySignals);
        } else {
            self.emit(Event::SignalKept { name: name.clone(), payload: payload.clone() });
        }
        Ok(())
    }

    /// The opening of a step that waits for this signal.
    fn waiting(&self, at: StepAt, name: &SignalName) -> Result<Opening, Refusal> {
        let step = self.state.find(at).ok_or(Refusal::UnknownStep)?;
        let opening =
            step.more.as_ref().and_then(|more| more.opening).filter(|_| step.phase == Phase::Waiting);
        match &self.step(at).kind {
            Kind::Wait(wait) if wait.on.contains(name) => opening.ok_or(Refusal::NotWaiting),
            _ => Err(Refusal::NotWaiting),
        }
    }

    fn take(&mut self, at: StepAt, opening: Opening, name: &SignalName, payload: &Arc<Value>, kept: bool) {
        let output = Arc::new(json!({"eventName": name.as_str(), "eventPayload": **payload}));
        self.emit(Event::SignalTaken { opening, name: name.clone(), payload: payload.clone(), kept });
        self.end_step(at, End::with(output));
    }

    pub(in crate::engine) fn wait_timed_out(&mut self, at: StepAt) {
        let Kind::Wait(wait) = &self.step(at).kind else { unreachable!("only a wait opens as one") };
        let nothing = || Arc::new(json!({"eventName": null, "eventPayload": null}));
        match &wait.on_timeout {
            WaitTimeout::Expire => {
                let message = "the signal did not come in time";
                self.fail_step(at, Error::new(ErrorClass::Timeout, code::TIMEOUT, message));
            }
            WaitTimeout::Cancel => self.cancel_workflow(at),
            WaitTimeout::Continue => self.end_step(at, End::with(nothing())),
            WaitTimeout::Go(target) => {
                let route = Some(self.entry(at.0).target(target).into());
                self.end_step(at, End { route, ..End::with(nothing()) });
            }
        }
    }
}
