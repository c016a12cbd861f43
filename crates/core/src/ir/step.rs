//! A step: its dependencies, its inputs, its kind and the effects of its outcome.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    RouteTarget, Schema, SharedStepExtensions, SharedStepPolicy, StepKindSpec, StepRetry, UI, WorkSpec, is_default,
};
use crate::{expr::Expr, ids::StepId, time::Millis};

/// One node of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub id: StepId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In a graph: the steps that must end, with an outcome that satisfies, before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StepId>,
    /// In a routed scope: the next target of the cursor. None: the next step in order that nothing else routes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RouteTarget>,
    /// The step is skipped if this is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputBinding>,
    /// The schema of its output; properties with a default are filled in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outputs: Schema,
    pub kind: StepKindSpec,
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: SharedStepPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Box<UndoSpec>>,
    /// Settings for the host, and data that is only shown.
    #[serde(default, rename = "labels", skip_serializing_if = "is_default")]
    pub extensions: SharedStepExtensions,
}

impl Step {
    /// Creates a step of this kind with no dependency, no input and the strictest policy: any failure aborts.
    pub fn new(id: StepId, kind: StepKindSpec) -> Step {
        Step {
            id,
            name: None,
            description: None,
            after: Vec::new(),
            next: None,
            when: None,
            inputs: Vec::new(),
            outputs: Schema::default(),
            kind,
            policy: SharedStepPolicy::default(),
            undo: None,
            extensions: SharedStepExtensions::default(),
        }
    }

    /// Removes the marks of a composer.
    pub fn remove_ui(&mut self) {
        if self.extensions.labels.contains_key(UI) {
            self.extensions.labels.remove(UI);
        }
    }
}

/// One named input of a step and the expression for its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputBinding {
    pub name: Arc<str>,
    pub value: Expr,
    #[serde(default, skip_serializing_if = "is_default")]
    pub schema: Schema,
    /// A required input that is null fails the step before it starts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub required: bool,
}

impl InputBinding {
    /// Creates an input of any value, which may be null.
    pub fn new(name: impl Into<Arc<str>>, value: Expr) -> InputBinding {
        InputBinding { name: name.into(), value, schema: Schema::default(), required: false }
    }
}

/// The work that undoes a step. Evaluated in the scope of that step, and given its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoSpec {
    /// Its name in the source, if it has one of its own.
    pub id: StepId,
    pub work: WorkSpec,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputBinding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: StepRetry,
}
