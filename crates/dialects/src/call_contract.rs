//! The border between two workflows, where a format has no words of its own for it: what a workflow takes and gives, what
//! a step gives to the workflow it calls, and which one that is.
//!
//! Owns these fields of `x-skein` and their checks. How expressions are written is the format's.

use serde_json::{Map, Value, json};
use skein_core::{
    expr::{Expr, ExprParseError},
    ir::{CallSpec, InputBinding, Schema, StepKindSpec, WorkSpec, WorkerSpec, Workflow},
};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::FieldValue,
    lowering::LoweringContext,
    project::WorkflowReference,
    workspace_path::{self, WorkspacePathError},
    yaml::YamlNode,
};

/// How a format writes a structured value with expressions in it.
pub(crate) type ValueExprParser = fn(&Value) -> Result<Expr, ExprParseError>;

/// `x-skein.input` and `x-skein.output`: at a step, expressions and a contract; at a workflow, a contract and expressions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallContract<'a> {
    pub input: Option<YamlNode<'a>>,
    pub output: Option<YamlNode<'a>>,
}

impl<'a> CallContract<'a> {
    pub const FIELDS: &'static [&'static str] = &["input", "output"];

    pub fn read(block: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> CallContract<'a> {
        CallContract {
            input: read_mapping(block, "input", sink),
            output: read_mapping(block, "output", sink),
        }
    }

    /// What a step is given, by name. None if it does not say.
    pub fn lower_inputs(
        &self,
        spelling: ValueExprParser,
        lowering: &mut LoweringContext<'_>,
    ) -> Option<Vec<InputBinding>> {
        let fields = self.input?.fields().into_iter().flatten();
        let mut bindings: Vec<InputBinding> = Vec::new();
        for field in fields {
            let value = lowering.accept_expression(field.value, spelling(&field.value.to_json()));
            // A key that is there twice has been reported, and the first counts.
            if let Some(value) = value.filter(|_| bindings.iter().all(|binding| *binding.name != *field.key))
            {
                bindings.push(InputBinding::new(field.key, value));
            }
        }
        Some(bindings)
    }

    /// What a step must give.
    pub fn output_schema(&self) -> Schema {
        self.output.map(|node| Schema::new(node.to_json())).unwrap_or_default()
    }

    /// Puts into a workflow what it takes, where it says so.
    pub fn apply_inputs(&self, workflow: &mut Workflow) {
        if let Some(node) = self.input {
            workflow.inputs = Schema::new(node.to_json());
        }
    }

    /// Puts into a workflow what it gives, where it says so: these names and no others.
    pub fn apply_outputs(
        &self,
        workflow: &mut Workflow,
        spelling: ValueExprParser,
        lowering: &mut LoweringContext<'_>,
    ) {
        self.apply_outputs_with(workflow, |node| lowering.accept_expression(node, spelling(&node.to_json())));
    }

    /// The same, for a format that reads its expressions in a way of its own.
    pub fn apply_outputs_with(
        &self,
        workflow: &mut Workflow,
        read: impl FnOnce(YamlNode<'a>) -> Option<Expr>,
    ) {
        let Some(node) = self.output else { return };
        workflow.scope.result = read(node);
        let names = || node.fields().into_iter().flatten().map(|field| field.key);
        let properties: Map<String, Value> = names().map(|name| (name.to_owned(), json!({}))).collect();
        let required: Vec<&str> = names().collect();
        workflow.scope.outputs = Schema::new(json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        }));
    }
}

/// A mapping in a block.
fn read_mapping<'a>(
    block: Option<FieldValue<'a>>,
    name: &'static str,
    sink: &mut DiagnosticSink,
) -> Option<YamlNode<'a>> {
    let given = find_block_field(block, name)?;
    if given.node.fields().is_none() {
        sink.push(given.diagnose_type("a mapping"));
        return None;
    }
    Some(given.node)
}

fn find_block_field<'a>(block: Option<FieldValue<'a>>, name: &'static str) -> Option<FieldValue<'a>> {
    let node = block?.node.get(name).filter(|node| !node.is_null())?;
    Some(FieldValue::new(name, node))
}

/// `x-skein.call` of a step: the workflow that does it.
pub(crate) const CALL: &str = "call";

/// The workflow that a step's block says does it.
pub(crate) fn read_call<'a>(
    block: Option<FieldValue<'a>>,
    sink: &mut DiagnosticSink,
) -> Option<FieldValue<'a>> {
    find_block_field(block, CALL).filter(|given| given.read_non_empty_text(sink).is_some())
}

/// The kind of a step that a workflow does. One that cannot be called has been reported, and a step stands there that does
/// nothing, so that nothing else is said about it.
pub(crate) fn lower_call(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> StepKindSpec {
    match resolve_call(given, lowering) {
        Some(workflow) => StepKindSpec::Call(Box::new(CallSpec { workflow, exports: Vec::new() })),
        None => StepKindSpec::Work(Box::new(WorkSpec::new(WorkerSpec::Script {
            text: String::new(),
            capabilities: Vec::new(),
        }))),
    }
}

/// The name under which a called workflow is planned: of a file by its path, else of one of the project by its name.
fn resolve_call(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> Option<String> {
    let text = given.read_non_empty_text(lowering.sink)?.value;
    let ending = |ending: &str| text.ends_with(ending);
    if text.contains('/') || [".yaml", ".yml", ".json", ".md"].into_iter().any(ending) {
        return resolve_call_path(given, lowering);
    }
    lowering.resolve_called_workflow(given, WorkflowReference::Id(text))
}

/// A called workflow by a path that stays in the folder of the file that calls it. None if it cannot be called, which has
/// been reported.
pub(crate) fn resolve_call_path(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> Option<String> {
    let path = given.read_non_empty_text(lowering.sink)?.value;
    if let Err(error) =
        workspace_path::check_relative(path).and_then(|()| workspace_path::check_stays_inside(path))
    {
        let why = match error {
            WorkspacePathError::Upwards => "it leads out of the folder of this file".to_owned(),
            WorkspacePathError::Absolute => "it does not start in the folder of this file".to_owned(),
            error => error.explain(),
        };
        let message = format!("`{}` cannot be `{}`: {why}", given.name, path.escape_debug());
        let hint = "put the other workflow into the same folder or below it, and write the path from there";
        let diagnostic =
            Diagnostic::new(Code::BadPath, given.node.source(), given.node.first_line_span(), message);
        lowering.push(diagnostic.with_hint(hint));
        return None;
    }
    lowering.resolve_called_workflow(given, WorkflowReference::Path(path))
}
