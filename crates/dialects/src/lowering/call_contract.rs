//! The contract between two workflows, for formats without fields of their own for it: inputs and outputs of a
//! workflow, inputs of a step that calls one, and the called workflow.
//!
//! Owns these fields of `x-skein` and their checks. The format owns the syntax of expressions.

use serde_json::{Map, Value, json};
use skein_core::{
    expr::{Expr, ExprParseError},
    ir::{CallSpec, InputBinding, Schema, StepKindSpec, WorkSpec, WorkerSpec, Workflow},
};

use crate::{
    catalog::WorkflowReference,
    diagnostics::{Code, DiagnosticSink},
    fields::{
        FieldValue,
        workspace_path::{self, WorkspacePathError},
    },
    lowering::LoweringContext,
    source::yaml::YamlNode,
};

/// A format's parser for a structured value with expressions in it.
pub(crate) type ValueExprParser = fn(&Value) -> Result<Expr, ExprParseError>;

/// `x-skein.input` and `x-skein.output`. At a step, these are expressions and a schema; at a workflow, a schema and
/// expressions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallContract<'a> {
    pub input: Option<YamlNode<'a>>,
    pub output: Option<YamlNode<'a>>,
}

impl<'a> CallContract<'a> {
    pub(crate) const FIELDS: &'static [&'static str] = &["input", "output"];

    pub(crate) fn read(block: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> CallContract<'a> {
        CallContract { input: read_mapping(block, "input", sink), output: read_mapping(block, "output", sink) }
    }

    /// Lowers the inputs of a step by name. None if it has no `input`.
    pub(crate) fn lower_inputs(
        &self,
        spelling: ValueExprParser,
        lowering: &mut LoweringContext<'_>,
    ) -> Option<Vec<InputBinding>> {
        let fields = self.input?.fields().into_iter().flatten();
        let mut bindings: Vec<InputBinding> = Vec::new();
        for field in fields {
            let value = lowering.accept_expression(field.value, spelling(&field.value.to_json()));
            // A duplicate key has been reported; the first one counts.
            if let Some(value) = value.filter(|_| bindings.iter().all(|binding| *binding.name != *field.key)) {
                bindings.push(InputBinding::new(field.key, value));
            }
        }
        Some(bindings)
    }

    /// Returns the schema of a step's output.
    pub(crate) fn output_schema(&self) -> Schema {
        self.output.map(|node| Schema::new(node.to_json())).unwrap_or_default()
    }

    /// Sets the input schema of a workflow that declares one.
    pub(crate) fn apply_inputs(&self, workflow: &mut Workflow) {
        if let Some(node) = self.input {
            workflow.inputs = Schema::new(node.to_json());
        }
    }

    /// Sets the outputs of a workflow that declares them: these names and no others.
    pub(crate) fn apply_outputs(
        &self,
        workflow: &mut Workflow,
        spelling: ValueExprParser,
        lowering: &mut LoweringContext<'_>,
    ) {
        self.apply_outputs_with(workflow, |node| lowering.accept_expression(node, spelling(&node.to_json())));
    }

    /// Sets the outputs, for a format with its own way of reading expressions.
    pub(crate) fn apply_outputs_with(&self, workflow: &mut Workflow, read: impl FnOnce(YamlNode<'a>) -> Option<Expr>) {
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

/// Reads a mapping in a block.
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

/// `x-skein.call` of a step: the workflow that it calls.
pub(crate) const CALL: &str = "call";

/// Reads the workflow that a step's block calls.
pub(crate) fn read_call<'a>(block: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<FieldValue<'a>> {
    find_block_field(block, CALL).filter(|given| given.read_non_empty_text(sink).is_some())
}

/// Lowers a step that calls a workflow. If it cannot be called, that has been reported, and an empty script takes its
/// place, so that no follow-up errors are reported.
pub(crate) fn lower_call(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> StepKindSpec {
    match resolve_call(given, lowering) {
        Some(workflow) => StepKindSpec::Call(Box::new(CallSpec { workflow, exports: Vec::new() })),
        None => StepKindSpec::Work(Box::new(WorkSpec::new(WorkerSpec::Script {
            text: String::new(),
            capabilities: Vec::new(),
        }))),
    }
}

/// Resolves the name under which a called workflow is planned: a path names a file, any other text a workflow of the
/// project.
fn resolve_call(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> Option<String> {
    let text = given.read_non_empty_text(lowering.sink)?.value;
    let ending = |ending: &str| text.ends_with(ending);
    if text.contains('/') || [".yaml", ".yml", ".json", ".md"].into_iter().any(ending) {
        return resolve_call_path(given, lowering);
    }
    lowering.resolve_called_workflow(given, WorkflowReference::Id(text))
}

/// Resolves a called workflow by a path inside the folder of the calling file. None if it cannot be called; that has
/// been reported.
pub(crate) fn resolve_call_path(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> Option<String> {
    let path = given.read_non_empty_text(lowering.sink)?.value;
    if let Err(error) = workspace_path::check_relative(path).and_then(|()| workspace_path::check_stays_inside(path)) {
        let why = match error {
            WorkspacePathError::Upwards => "it leads out of the folder of this file".to_owned(),
            WorkspacePathError::Absolute => "it is not relative to the folder of this file".to_owned(),
            error => error.explain(),
        };
        let message = format!("`{}` cannot be `{}`: {why}", given.name, path.escape_debug());
        let hint = "put the other workflow into the same folder or below it, and write a relative path";
        let diagnostic = given.diagnose(Code::BadPath, message);
        lowering.push(diagnostic.with_hint(hint));
        return None;
    }
    lowering.resolve_called_workflow(given, WorkflowReference::Path(path))
}
