//! Wait: opens a wait, takes a matching signal, and handles the timeout.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    engine::{
        Event, ExecutionError, InstanceIx, Refusal, StepAt, Waitpoint,
        decide::{DecideContext, StepEnd},
        state::{InstancePhase, null},
        transitions::StepPhase,
    },
    ids::SignalName,
    ir::{SchemaError, Step, StepKindSpec, WaitSpec, WaitTimeout},
    limits,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn open_wait(&mut self, at: StepAt, wait: &WaitSpec) {
        let deadline = wait.timeout.map(|timeout| self.now.saturating_add(timeout));
        let opening = self.next_waitpoint();
        let (approvers, message, shows) = (Vec::new(), String::new(), null());
        self.emit(Event::Opened { at, opening, deadline, approvers, quorum: 1, message, shows });
        let fits = |(name, payload): &&(SignalName, Arc<Value>)| {
            wait.on.contains(name) && fit_output(self.step(at), signal_output(name, payload)).is_ok()
        };
        let kept = self.state.signals.iter().find(fits).cloned();
        if let Some((name, payload)) = kept {
            self.take_signal(at, opening, &name, &payload, true);
        }
    }

    pub(in crate::engine) fn deliver_signal(
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
            let opening = self.find_open_wait(at, name)?;
            fit_output(self.step(at), signal_output(name, payload))?;
            self.take_signal(at, opening, name, payload, false);
            return Ok(());
        }
        let open: Vec<Waitpoint> = self.state.waits.get(name).into_iter().flatten().copied().collect();
        if open.is_empty() {
            return self.keep_signal(name, payload);
        }
        let at = |opening: Waitpoint| self.state.waitpoint(opening).expect("it is open").at;
        let (fitting, others): (Vec<Waitpoint>, Vec<Waitpoint>) =
            open.into_iter().partition(|one| fit_output(self.step(at(*one)), signal_output(name, payload)).is_ok());
        if let (true, Some(first)) = (fitting.is_empty(), others.first()) {
            fit_output(self.step(at(*first)), signal_output(name, payload))?;
        }
        for opening in fitting {
            let at = self.state.waitpoint(opening).expect("it is open").at;
            self.take_signal(at, opening, name, payload, false);
        }
        Ok(())
    }

    /// Keeps a signal for a later wait, if it matches the declared outputs of one.
    fn keep_signal(&mut self, name: &SignalName, payload: &Arc<Value>) -> Result<(), Refusal> {
        if self.state.signals.len() >= limits::KEPT_SIGNALS {
            return Err(Refusal::TooManySignals);
        }
        let steps = self.plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
        let waits = steps.filter(|step| matches!(&step.kind, StepKindSpec::Wait(wait) if wait.on.contains(name)));
        let mut fits: Vec<Result<Arc<Value>, Refusal>> =
            waits.map(|step| fit_output(step, signal_output(name, payload))).collect();
        if !fits.iter().any(Result::is_ok)
            && let Some(Err(refusal)) = fits.pop()
        {
            return Err(refusal);
        }
        self.emit(Event::SignalKept { name: name.clone(), payload: payload.clone() });
        Ok(())
    }

    /// Returns the open waitpoint of a step that waits for this signal.
    fn find_open_wait(&self, at: StepAt, name: &SignalName) -> Result<Waitpoint, Refusal> {
        let step = self.state.find_step(at).ok_or(Refusal::UnknownStep)?;
        let opening = step.more.as_ref().and_then(|more| more.opening).filter(|_| step.phase == StepPhase::Waiting);
        match &self.step(at).kind {
            StepKindSpec::Wait(wait) if wait.on.contains(name) => opening.ok_or(Refusal::NotWaiting),
            _ => Err(Refusal::NotWaiting),
        }
    }

    fn take_signal(&mut self, at: StepAt, opening: Waitpoint, name: &SignalName, payload: &Arc<Value>, kept: bool) {
        let output = signal_output(name, payload);
        let output = fit_output(self.step(at), output.clone()).unwrap_or_else(|_| Arc::new(output));
        self.emit(Event::SignalTaken { opening, name: name.clone(), payload: payload.clone(), kept });
        self.end_step(at, StepEnd::from_output(output));
    }

    pub(in crate::engine) fn time_out_wait(&mut self, at: StepAt) {
        let StepKindSpec::Wait(wait) = &self.step(at).kind else { unreachable!("only a wait opens as one") };
        let nothing = || Arc::new(json!({"eventName": null, "eventPayload": null}));
        match &wait.on_timeout {
            WaitTimeout::Expire => {
                let message = "no signal arrived before the timeout";
                self.fail_step(at, ExecutionError::timeout(message));
            }
            WaitTimeout::Cancel => self.cancel_workflow(at),
            WaitTimeout::Continue => self.end_step(at, StepEnd::from_output(nothing())),
            WaitTimeout::Go(target) => {
                let route = Some(self.scope_entry(at.0).resolve_target(target).into());
                self.end_step(at, StepEnd { route, ..StepEnd::from_output(nothing()) });
            }
        }
    }
}

/// Builds the output of a wait that took a signal.
fn signal_output(name: &SignalName, payload: &Value) -> Value {
    json!({"eventName": name.as_str(), "eventPayload": payload})
}

/// Fills in the declared defaults of an output and checks it against the declared outputs of the step.
pub(super) fn fit_output(step: &Step, mut output: Value) -> Result<Arc<Value>, Refusal> {
    step.outputs.fill_defaults(&mut output);
    let invalid = |error: SchemaError| Refusal::OutputInvalid { step: step.id.to_string(), message: error.to_string() };
    step.outputs.check(&output).map_err(invalid)?;
    Ok(Arc::new(output))
}
