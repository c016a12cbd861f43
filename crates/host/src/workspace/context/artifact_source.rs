//! Where an artifact comes from: which attempt of which step gave it, through calls if need be.

use skein_core::{
    engine::{AttemptId, InstanceIx, RunState, StepAt, StepOutcome},
    ids::{ArtifactName, StepId},
    ir::StepKindSpec,
    plan::Plan,
};

use super::ContextInput;
use crate::workspace::artifact::{ArtifactError, KeptArtifact};

/// An artifact and the attempt that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactSource {
    pub attempt: AttemptId,
    pub artifact: KeptArtifact,
}

/// The step that a name means in an instance: beside it, or around what it is inside of.
pub fn find_step(plan: &Plan, state: &RunState, from: InstanceIx, id: &StepId) -> Option<StepAt> {
    let mut ix = from;
    loop {
        let instance = state.instance(ix);
        if let Some(step) = plan.definition.scope(instance.scope).by_id.get(id) {
            return Some(StepAt(ix, *step));
        }
        // A called workflow knows nothing of its caller's steps.
        if instance.home == ix {
            return None;
        }
        ix = instance.parent?.0;
    }
}

impl ContextInput<'_> {
    /// What a step gave under this name. None: the step gave nothing, as one that failed.
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

    /// The attempt whose artifacts are the step's. A step that failed gives nothing; one whose check was never content
    /// gives what it had.
    fn giving_attempt(&self, at: StepAt) -> Option<AttemptId> {
        match self.state.step(at).outcome? {
            StepOutcome::Succeeded | StepOutcome::Incomplete | StepOutcome::Exhausted => {
                self.ledger.last_attempt(at)
            }
            StepOutcome::Failed(_)
            | StepOutcome::Rejected
            | StepOutcome::Skipped(_)
            | StepOutcome::Cancelled => None,
        }
    }
}
