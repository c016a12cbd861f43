//! Where an artifact comes from: which attempt of which step gave it, through calls if need be.

use skein_core::{
    engine::{AttemptId, InstanceIx, Outcome, RunState, StepAt},
    ids::{ArtifactName, StepId},
    ir::Kind,
    plan::Plan,
};

use super::Story;
use crate::workspace::artifact::{ArtifactError, KeptArtifact};

/// An artifact and the attempt that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
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

impl Story<'_> {
    /// What a step gave under this name. None: the step gave nothing, as one that failed.
    pub fn source(&self, at: StepAt, name: &ArtifactName) -> Result<Option<Source>, ArtifactError> {
        let (mut at, mut name) = (at, name);
        loop {
            let scope = self.state.instance(at.0).scope;
            match &self.plan.definition.scope(scope).step(at.1).kind {
                Kind::Call(call) => {
                    let Some(export) = call.exports.iter().find(|export| export.name == *name) else {
                        return Ok(None);
                    };
                    let child = self.state.more(at).and_then(|more| more.children.last().copied());
                    let inner = child.and_then(|ix| find_step(self.plan, self.state, ix, &export.from));
                    let Some(inner) = inner else { return Ok(None) };
                    (at, name) = (inner, &export.artifact);
                }
                _ => {
                    let Some(attempt) = self.gave(at) else { return Ok(None) };
                    let kept = self.run.find_kept(attempt)?;
                    let artifact = kept.as_ref().and_then(|kept| kept.artifact(name)).cloned();
                    return Ok(artifact.map(|artifact| Source { attempt, artifact }));
                }
            }
        }
    }

    /// The attempt whose artifacts are the step's. A step that failed gives nothing; one whose check was never content
    /// gives what it had.
    fn gave(&self, at: StepAt) -> Option<AttemptId> {
        match self.state.step(at).outcome? {
            Outcome::Succeeded | Outcome::Incomplete | Outcome::Exhausted => self.ledger.last_attempt(at),
            Outcome::Failed(_) | Outcome::Rejected | Outcome::Skipped(_) | Outcome::Cancelled => None,
        }
    }
}
