//! The source of an artifact: the attempt that produced it, through calls if necessary.

use skein_core::{
    engine::{AttemptId, InstanceIx, RunState, StepAt, StepOutcome},
    ids::{ArtifactName, StepId},
    ir::StepKindSpec,
    plan::Plan,
};

use super::ContextInput;
use crate::workspace::artifact::{ArtifactError, KeptArtifact};

/// An artifact and the attempt that produced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactSource {
    pub attempt: AttemptId,
    pub artifact: KeptArtifact,
}

/// Finds the step of this name, as seen from an instance: in its own scope or an enclosing one.
pub fn find_step(plan: &Plan, state: &RunState, from: InstanceIx, id: &StepId) -> Option<StepAt> {
    let mut ix = from;
    loop {
        let instance = state.instance(ix);
        if let Some(step) = plan.definition.scope(instance.scope).by_id.get(id) {
            return Some(StepAt(ix, *step));
        }
        // A called workflow does not see the steps of its caller.
        if instance.home == ix {
            return None;
        }
        ix = instance.parent?.0;
    }
}

impl ContextInput<'_> {
    /// Finds the artifact of a step by its name. Returns `None` if the step produced nothing, for example because it
    /// failed.
    pub fn find_artifact_source(
        &self,
        at: StepAt,
        name: &ArtifactName,
    ) -> Result<Option<ArtifactSource>, ArtifactError> {
        let (mut at, mut name) = (at, name);
        loop {
            let scope = self.state.instance(at.0).scope;
            match &self.plan.definition.scope(scope).step(at.1).kind {
                StepKindSpec::Call(call) => {
                    let Some(export) = call.exports.iter().find(|export| export.name == *name) else {
                        return Ok(None);
                    };
                    let child = self.state.visit_state(at).and_then(|more| more.children.last().copied());
                    let inner = child.and_then(|ix| find_step(self.plan, self.state, ix, &export.from));
                    let Some(inner) = inner else { return Ok(None) };
                    (at, name) = (inner, &export.artifact);
                }
                _ => {
                    let Some(attempt) = self.giving_attempt(at) else { return Ok(None) };
                    let kept = self.run.find_manifest(attempt)?;
                    let artifact = kept.as_ref().and_then(|kept| kept.find_artifact(name)).cloned();
                    return Ok(artifact.map(|artifact| ArtifactSource { attempt, artifact }));
                }
            }
        }
    }

    /// Returns the attempt whose artifacts are the step's. A failed step has none; a step whose check never passed has
    /// those of its last attempt.
    fn giving_attempt(&self, at: StepAt) -> Option<AttemptId> {
        match self.state.step(at).outcome? {
            StepOutcome::Succeeded | StepOutcome::Incomplete | StepOutcome::Exhausted => self.ledger.last_attempt(at),
            StepOutcome::Failed(_) | StepOutcome::Rejected | StepOutcome::Skipped(_) | StepOutcome::Cancelled => None,
        }
    }
}
