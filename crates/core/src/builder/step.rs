//! One step as a program defines it: the fields common to all kinds.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ApprovalClass, RetryDefinition, RiskLevel, StepKind};

/// The argument of [`define_step`].
#[derive(Debug, Clone)]
pub struct StepDefinition {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub kind: StepKind,
    /// Values in AIP-15's value language: `$` paths, and anything else as it is.
    pub inputs: Map<String, Value>,
    /// A JSON Schema.
    pub outputs: Option<Value>,
    /// A step's id or `$end`. None: the following step that nothing else routes to.
    pub next: Option<String>,
    /// None: the workflow's class.
    pub approval: Option<ApprovalClass>,
    pub risk_level: Option<RiskLevel>,
    pub timeout_ms: Option<u64>,
    pub retry: Option<RetryDefinition>,
    /// The id of the step that undoes this one.
    pub compensation: Option<String>,
    /// Kept unchanged.
    pub metadata: Map<String, Value>,
}

impl StepDefinition {
    pub fn new(id: impl Into<String>, kind: impl Into<StepKind>) -> StepDefinition {
        StepDefinition {
            id: id.into(),
            name: None,
            description: None,
            kind: kind.into(),
            inputs: Map::new(),
            outputs: None,
            next: None,
            approval: None,
            risk_level: None,
            timeout_ms: None,
            retry: None,
            compensation: None,
            metadata: Map::new(),
        }
    }

    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> StepDefinition {
        self.name = Some(name.into());
        self
    }

    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> StepDefinition {
        self.description = Some(description.into());
        self
    }

    #[must_use]
    pub fn with_input(mut self, name: impl Into<String>, value: impl Into<Value>) -> StepDefinition {
        self.inputs.insert(name.into(), value.into());
        self
    }

    #[must_use]
    pub fn with_outputs(mut self, schema: impl Into<Value>) -> StepDefinition {
        self.outputs = Some(schema.into());
        self
    }

    #[must_use]
    pub fn with_next(mut self, next: impl Into<String>) -> StepDefinition {
        self.next = Some(next.into());
        self
    }

    #[must_use]
    pub fn with_approval(mut self, class: ApprovalClass) -> StepDefinition {
        self.approval = Some(class);
        self
    }

    #[must_use]
    pub fn with_risk_level(mut self, level: RiskLevel) -> StepDefinition {
        self.risk_level = Some(level);
        self
    }

    #[must_use]
    pub fn with_timeout_ms(mut self, timeout_ms: u64) -> StepDefinition {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    #[must_use]
    pub fn with_retry(mut self, retry: RetryDefinition) -> StepDefinition {
        self.retry = Some(retry);
        self
    }

    #[must_use]
    pub fn with_compensation(mut self, step: impl Into<String>) -> StepDefinition {
        self.compensation = Some(step.into());
        self
    }
}

/// A defined step, which can be added to workflows and to other steps.
#[derive(Debug, Clone)]
pub struct StepHandle(Arc<StepDefinition>);

impl StepHandle {
    pub fn id(&self) -> &str {
        &self.0.id
    }

    pub fn definition(&self) -> &StepDefinition {
        &self.0
    }
}

/// Declares one step. The same handle can be used in several workflows.
///
/// ```
/// use serde_json::json;
/// use skein_core::builder::*;
///
/// let charge = define_step(
///     StepDefinition::new("charge-card", ToolStep::tool("stripe-charge"))
///         .with_input("amount", json!("$input.amount"))
///         .with_outputs(json!({"type": "object", "properties": {"chargeId": {"type": "string"}}}))
///         .with_retry(RetryDefinition::exponential(3))
///         .with_timeout_ms(20_000)
///         .with_compensation("refund-card"),
/// );
/// assert_eq!(charge.id(), "charge-card");
/// assert_eq!(charge.definition().kind.word(), "tool");
/// ```
pub fn define_step(definition: StepDefinition) -> StepHandle {
    StepHandle(Arc::new(definition))
}
