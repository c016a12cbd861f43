//! The border between two workflows, where a format has no words of its own for it: what a workflow takes and gives, what
//! a step gives to the workflow it calls, and which one that is.
//!
//! Owns these fields of `x-skein` and their checks. How expressions are written is the format's.

use serde_json::{Map, Value, json};
use skein_core::{
    expr::{Expr, ParseError},
    ir::{Binding, Call, Kind, Schema, Work, Worker, Workflow},
};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    lowering::Lowering,
    path::{self, PathError},
    project::Reference,
    read::Given,
    yaml::Node,
};

/// How a format writes a structured value with expressions in it.
pub(crate) type Spelling = fn(&Value) -> Result<Expr, ParseError>;

/// `x-skein.input` and `x-skein.output`: at a step, expressions and a contract; at a workflow, a contract and expressions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Border<'a> {
    pub input: Option<Node<'a>>,
    pub output: Option<Node<'a>>,
}

impl<'a> Border<'a> {
    pub const FIELDS: &'static [&'static str] = &["input", "output"];

    pub fn read(block: Option<Given<'a>>, sink: &mut Sink) -> Border<'a> {
        Border { input: mapping(block, "input", sink), output: mapping(block, "output", sink) }
    }

    /// What a step is given, by name. None if it does not say.
    pub fn inputs(&self, spelling: Spelling, lowering: &mut Lowering<'_>) -> Option<Vec<Binding>> {
        let fields = self.input?.fields().into_iter().flatten();
        let mut bindings: Vec<Binding> = Vec::new();
        for field in fields {
            let value = lowering.expression(field.value, spelling(&field.value.json()));
            // A key that is there twice has been reported, and the first counts.
            if let Some(value) = value.filter(|_| bindings.iter().all(|binding| *binding.name != *field.key))
            {
                bindings.push(Binding::new(field.key, value));
            }
        }
        Some(bindings)
    }

    /// What a step must give.
    pub fn outputs(&self) -> Schema {
        self.output.map(|node| Schema::new(node.json())).unwrap_or_default()
    }

    /// Puts into a workflow what it takes, where it says so.
    pub fn takes(&self, workflow: &mut Workflow) {
        if let Some(node) = self.input {
            workflow.inputs = Schema::new(node.json());
        }
    }

    /// Puts into a workflow what it gives, where it says so: these names and no others.
    pub fn gives(&self, workflow: &mut Workflow, spelling: Spelling, lowering: &mut Lowering<'_>) {
        self.gives_with(workflow, |node| lowering.expression(node, spelling(&node.json())));
    }

    /// The same, for a format that reads its expressions in a way of its own.
    pub fn gives_with(&self, workflow: &mut Workflow, read: impl FnOnce(Node<'a>) -> Option<Expr>) {
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
fn mapping<'a>(block: Option<Given<'a>>, name: &'static str, sink: &mut Sink) -> Option<Node<'a>> {
    let given = field(block, name)?;
    if given.node.fields().is_none() {
        sink.push(given.wrong("a mapping"));
        return None;
    }
    Some(given.node)
}

fn field<'a>(block: Option<Given<'a>>, name: &'static str) -> Option<Given<'a>> {
    let node = block?.node.get(name).filter(|node| !node.is_null())?;
    Some(Given::new(name, node))
}

/// `x-skein.call` of a step: the workflow that does it.
pub(crate) const CALL: &str = "call";

/// The workflow that a step's block says does it.
pub(crate) fn call<'a>(block: Option<Given<'a>>, sink: &mut Sink) -> Option<Given<'a>> {
    field(block, CALL).filter(|given| given.words(sink).is_some())
}

/// The kind of a step that a workflow does. One that cannot be called has been reported, and a step stands there that does
/// nothing, so that nothing else is said about it.
pub(crate) fn kind(given: Given<'_>, lowering: &mut Lowering<'_>) -> Kind {
    match called(given, lowering) {
        Some(workflow) => Kind::Call(Box::new(Call { workflow, exports: Vec::new() })),
        None => {
            Kind::Work(Box::new(Work::new(Worker::Script { text: String::new(), capabilities: Vec::new() })))
        }
    }
}

/// The name under which a called workflow is planned: of a file by its path, else of one of the project by its name.
fn called(given: Given<'_>, lowering: &mut Lowering<'_>) -> Option<String> {
    let text = given.words(lowering.sink)?.value;
    let ending = |ending: &str| text.ends_with(ending);
    if text.contains('/') || [".yaml", ".yml", ".json", ".md"].into_iter().any(ending) {
        return by_path(given, lowering);
    }
    lowering.call(given, Reference::Id(text))
}

/// A called workflow by a path that stays in the folder of the file that calls it. None if it cannot be called, which has
/// been reported.
pub(crate) fn by_path(given: Given<'_>, lowering: &mut Lowering<'_>) -> Option<String> {
    let path = given.words(lowering.sink)?.value;
    if let Err(error) = path::relative(path).and_then(|()| path::inside(path)) {
        let why = match error {
            PathError::Upwards => "it leads out of the folder of this file".to_owned(),
            PathError::Absolute => "it does not start in the folder of this file".to_owned(),
            error => error.why(),
        };
        let message = format!("`{}` cannot be `{}`: {why}", given.name, path.escape_debug());
        let hint = "put the other workflow into the same folder or below it, and write the path from there";
        let diagnostic = Diagnostic::new(Code::BadPath, given.node.source(), given.node.mark(), message);
        lowering.push(diagnostic.hint(hint));
        return None;
    }
    lowering.call(given, Reference::Path(path))
}
