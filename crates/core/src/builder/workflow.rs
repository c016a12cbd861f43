//! A workflow as a program defines it, the handle that collects its steps, and the committed workflow.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ApprovalClass, CostClass, RetryDefinition, RiskLevel, StepHandle, lower::lower_workflow};
use crate::{
    ids::StepId,
    ir::{Workflow, WorkflowTrigger},
    plan::{PlanDefinition, PlanField, PlanProblem, ProblemCode, ProblemLocation, WorkflowLibrary, check_workflow},
    terms::WorkflowTerms,
};

/// The argument of [`define_workflow`].
#[derive(Debug, Clone)]
#[must_use]
pub struct WorkflowDefinition {
    pub id: String,
    pub name: Option<String>,
    pub description: String,
    pub version: Option<String>,
    /// JSON Schemas of a run's input and output.
    pub input_schema: Value,
    pub output_schema: Value,
    /// The result of a run, in AIP-15's value language. None: the output of the last step.
    pub result: Option<Value>,
    /// More steps can be added with the methods of the handle.
    pub steps: Vec<StepHandle>,
    /// None: the first step.
    pub start: Option<String>,
    /// Applies to steps that have no class of their own.
    pub approval: ApprovalClass,
    pub risk_level: Option<RiskLevel>,
    /// None: ten minutes.
    pub timeout_ms: Option<u64>,
    /// None: 100.
    pub max_steps: Option<u32>,
    /// Retry of the whole run.
    pub retry: Option<RetryDefinition>,
    pub cost_class: CostClass,
    pub triggers: Vec<WorkflowTrigger>,
    pub tags: Vec<String>,
    /// Kept unchanged. `skein.allow_cycles` lets steps route back, bounded by `max_steps`.
    pub metadata: Map<String, Value>,
}

impl WorkflowDefinition {
    pub fn new(id: impl Into<String>, description: impl Into<String>) -> WorkflowDefinition {
        WorkflowDefinition {
            id: id.into(),
            name: None,
            description: description.into(),
            version: None,
            input_schema: Value::Bool(true),
            output_schema: Value::Bool(true),
            result: None,
            steps: Vec::new(),
            start: None,
            approval: ApprovalClass::default(),
            risk_level: None,
            timeout_ms: None,
            max_steps: None,
            retry: None,
            cost_class: CostClass::default(),
            triggers: Vec::new(),
            tags: Vec::new(),
            metadata: Map::new(),
        }
    }

    pub fn with_input_schema(mut self, schema: impl Into<Value>) -> WorkflowDefinition {
        self.input_schema = schema.into();
        self
    }

    pub fn with_output_schema(mut self, schema: impl Into<Value>) -> WorkflowDefinition {
        self.output_schema = schema.into();
        self
    }

    pub fn with_result(mut self, value: impl Into<Value>) -> WorkflowDefinition {
        self.result = Some(value.into());
        self
    }

    pub fn with_steps(mut self, steps: impl IntoIterator<Item = StepHandle>) -> WorkflowDefinition {
        self.steps.extend(steps);
        self
    }

    pub fn with_start(mut self, step: impl Into<String>) -> WorkflowDefinition {
        self.start = Some(step.into());
        self
    }

    pub fn with_timeout_ms(mut self, timeout_ms: u64) -> WorkflowDefinition {
        self.timeout_ms = Some(timeout_ms);
        self
    }
}

/// Collects the steps of a workflow, in order.
#[derive(Debug, Clone)]
#[must_use]
pub struct WorkflowHandle {
    definition: WorkflowDefinition,
    /// Problems with handles that were added by the method of another kind.
    problems: Vec<PlanProblem>,
}

/// A checked workflow, which a host can register.
#[derive(Debug, Clone)]
pub struct CommittedWorkflow {
    pub workflow: Arc<Workflow>,
    pub definition: Arc<PlanDefinition>,
    /// Warnings and notes; no errors.
    pub problems: Vec<PlanProblem>,
}

/// An unchecked workflow. A front end passes it to [`check_workflow`] together with all workflows that it calls.
#[derive(Debug, Clone)]
pub struct LoweredWorkflow {
    /// None if a name is invalid or steps nest too deep.
    pub workflow: Option<Workflow>,
    /// The problems found so far.
    pub problems: Vec<PlanProblem>,
}

/// Declares a workflow. Its steps can be in the definition, be added to the handle, or both.
///
/// ```
/// use skein_core::builder::*;
///
/// let hello = define_step(StepDefinition::new("hello", ToolStep::tool("print")));
/// let up_front = WorkflowDefinition::new("greeting", "Says hello.").with_steps([hello.clone()]);
/// let one = define_workflow(up_front).commit().unwrap();
/// let other = define_workflow(WorkflowDefinition::new("greeting", "Says hello.")).step(hello).commit().unwrap();
/// assert_eq!(one.definition.hash(), other.definition.hash());
/// ```
pub fn define_workflow(definition: WorkflowDefinition) -> WorkflowHandle {
    WorkflowHandle { definition, problems: Vec::new() }
}

impl WorkflowHandle {
    /// Adds a step of any kind.
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let step = define_step(StepDefinition::new("nightly", SubworkflowStep::new("deploy-to-prod")));
    /// let workflow = define_workflow(WorkflowDefinition::new("nightly-deploy", "Deploys.")).step(step);
    /// // Subworkflows are looked up at the commit, which has no library here.
    /// assert_eq!(workflow.commit().unwrap_err()[0].code.as_str(), "unknown-workflow");
    /// ```
    pub fn step(mut self, step: StepHandle) -> WorkflowHandle {
        self.definition.steps.push(step);
        self
    }

    /// Adds a branch.
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let route = BranchStep::with_default("$end").with_arm("$input.tier == 'paid'", "bill");
    /// let workflow = define_workflow(WorkflowDefinition::new("billing", "Bills paying customers."))
    ///     .branch(define_step(StepDefinition::new("route", route)))
    ///     .step(define_step(StepDefinition::new("bill", ToolStep::tool("invoice"))));
    /// assert!(workflow.commit().is_ok());
    /// ```
    pub fn branch(self, step: StepHandle) -> WorkflowHandle {
        self.add_step_of_kind("branch", step)
    }

    /// Adds a parallel step.
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let tool = |id: &str| define_step(StepDefinition::new(id, ToolStep::tool("lookup")));
    /// let both = ParallelStep::new().with_lane("stripe", [tool("charges")]).with_lane("hubspot", [tool("contacts")]);
    /// let workflow = define_workflow(WorkflowDefinition::new("enrichment", "Looks up both."))
    ///     .parallel(define_step(StepDefinition::new("enrich", both)));
    /// assert!(workflow.commit().is_ok());
    /// ```
    pub fn parallel(self, step: StepHandle) -> WorkflowHandle {
        self.add_step_of_kind("parallel", step)
    }

    /// Adds an approval.
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let review = ApprovalStep::new("Send the contract?").with_role("legal").with_on_timeout(TimeoutRule::Escalate);
    /// let workflow = define_workflow(WorkflowDefinition::new("contract", "Asks, then sends."))
    ///     .approval(define_step(StepDefinition::new("review", review).with_timeout_ms(300_000)))
    ///     .step(define_step(StepDefinition::new("send", ToolStep::tool("mail"))));
    /// assert!(workflow.commit().is_ok());
    /// ```
    pub fn approval(self, step: StepHandle) -> WorkflowHandle {
        self.add_step_of_kind("approval", step)
    }

    /// Adds a suspend.
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let wait = SuspendStep::new(["stripe.charge.succeeded"]).with_timeout(60_000, TimeoutRule::Cancel);
    /// let workflow = define_workflow(WorkflowDefinition::new("payment", "Waits for the money."))
    ///     .suspend(define_step(StepDefinition::new("wait-for-payment", wait)));
    /// assert!(workflow.commit().is_ok());
    /// ```
    pub fn suspend(self, step: StepHandle) -> WorkflowHandle {
        self.add_step_of_kind("suspend", step)
    }

    fn add_step_of_kind(mut self, wanted: &str, step: StepHandle) -> WorkflowHandle {
        let kind = step.definition().kind.word();
        if kind != wanted {
            let message = format!("`{}` was added with `{wanted}`, but is a step of kind {kind}", step.id());
            let at =
                ProblemLocation { step: StepId::new(step.id()).ok(), ..ProblemLocation::from_field(PlanField::Kind) };
            let problem = PlanProblem::new(ProblemCode::WrongKind, at, message);
            self.problems.push(problem.with_hint(format!("add it with `{}`", method_for_kind(kind))));
        }
        self.step(step)
    }

    /// Finishes and checks a workflow that calls no others.
    ///
    /// All problems are reported at once:
    ///
    /// ```
    /// # use skein_core::builder::*;
    /// let build = StepDefinition::new("build", ToolStep::tool("cargo")).with_input("of", "$steps.chekout.path");
    /// let problems = define_workflow(WorkflowDefinition::new("release", "Builds."))
    ///     .step(define_step(StepDefinition::new("checkout", ToolStep::tool("git"))))
    ///     .branch(define_step(build.with_next("publish")))
    ///     .commit()
    ///     .unwrap_err();
    /// let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    /// assert_eq!(
    ///     lines,
    ///     [
    ///         "error[wrong-kind] build: kind: `build` was added with `branch`, but is a step of kind tool \
    ///          (add it with `step`)",
    ///         "error[unknown-target] build: next: there is no step `publish`",
    ///         "error[unknown-step] build: inputs.of: there is no step `chekout` (did you mean `checkout`?)",
    ///     ]
    /// );
    /// ```
    pub fn commit(self) -> Result<CommittedWorkflow, Vec<PlanProblem>> {
        self.commit_with_library(&())
    }

    /// Finishes and checks a workflow with subworkflow steps, which are looked up in a library.
    pub fn commit_with_library(self, library: &dyn WorkflowLibrary) -> Result<CommittedWorkflow, Vec<PlanProblem>> {
        let LoweredWorkflow { workflow, mut problems } = self.lower();
        let Some(workflow) = workflow.map(Arc::new) else { return Err(problems) };
        let checked = check_workflow(workflow.clone(), library);
        problems.extend(checked.problems);
        match checked.definition {
            Some(definition) if !problems.iter().any(PlanProblem::is_error) => {
                Ok(CommittedWorkflow { workflow, definition, problems })
            }
            _ => {
                problems.retain(PlanProblem::is_error);
                Err(problems)
            }
        }
    }

    /// Finishes the workflow without checking how its steps fit together.
    pub fn lower(self) -> LoweredWorkflow {
        self.lower_with_terms(&WorkflowTerms::IR)
    }

    /// Like [`lower`](Self::lower), with problems in the terms of a format.
    pub fn lower_with_terms(self, terms: &WorkflowTerms) -> LoweredWorkflow {
        let mut problems = self.problems;
        LoweredWorkflow { workflow: lower_workflow(&self.definition, terms, &mut problems), problems }
    }
}

/// Returns the method that adds a step of this kind.
fn method_for_kind(kind: &str) -> &str {
    match kind {
        "branch" | "parallel" | "approval" | "suspend" => kind,
        _ => "step",
    }
}
