//! A TOOL.md: a tool's inputs and outputs, its side effects, and the defaults for steps that run it.
//!
//! Owns the fields of AIP-14. Does not know the program that does the work: that is in a driver.

use std::sync::Arc;

use skein_core::{
    builder::{ApprovalClass, RetryDefinition, RiskLevel, StepDefinition, StepKind, ToolImplementation},
    ir::Schema,
    time::Millis,
};

use super::{
    CatalogKind, Project,
    action::{Aip15Action, read_action},
    definition_fields::{self, COSTS, DESCRIPTION_CHARS, NAME_CHARS},
    driver::{DRIVER_KINDS, DriverKind},
    secrets::read_required_secrets,
};
use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile, shorten_text},
    fields::{FieldReader, FieldTable, FieldValue, ForeignKey},
    source::parse_front_matter,
};

/// A tool as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Aip15Tool {
    pub id: String,
    pub version: String,
    pub inputs: Schema,
    pub outputs: Schema,
    /// True if the tool is idempotent.
    pub idempotent: bool,
    /// The things that it changes, such as `workspace:src`.
    pub mutates: Vec<String>,
    pub approval: ApprovalClass,
    /// The classes of the action that it implements, and of other tools for the same action.
    pub others: Vec<ApprovalClass>,
    pub timeout: Option<Millis>,
    pub retry: Option<RetryDefinition>,
    /// The preferred driver.
    pub default_implementation: Option<String>,
    /// Drivers that may not provide it. The next field holds the only kinds that may.
    pub forbid: Vec<String>,
    pub require_kind: Vec<DriverKind>,
    /// The action that it implements.
    pub implements: Option<String>,
    pub risk_level: Option<RiskLevel>,
    /// The secrets that its worker receives, by the names of their environment variables.
    pub secrets: Vec<String>,
}

const TOOL_FIELDS: FieldTable = FieldTable::closed(&[
    "name", "id", "description", "version", "inputs", "outputs", "idempotent", "mutates", "approval", "timeout_ms",
    "retry", "default_implementation", "risk_level", "implements", "cost_class", "driver_constraints", "requires",
])
.with_unread(&["tags", "examples", "metadata", "contextSchema"])
.with_explanations(explain_body);

/// Reads a TOOL.md. The project provides the action that it implements.
pub fn read_tool(source: Arc<SourceFile>, project: &dyn Project) -> Result<Aip15Tool, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let fields = FieldReader::from_node(tree.root(), "a tool", TOOL_FIELDS, &mut sink)?;
        Aip15Tool::read(fields, project, &mut sink)
    });
    match read {
        Some(tool) if !sink.has_errors() => Ok(tool),
        _ => Err(sink.into_diagnostics()),
    }
}

impl Aip15Tool {
    fn read(mut fields: FieldReader<'_>, project: &dyn Project, sink: &mut DiagnosticSink) -> Option<Aip15Tool> {
        let name = fields.required("name", sink);
        name.and_then(|given| definition_fields::read_short_text(given, NAME_CHARS, sink));
        let id = fields.required("id", sink).and_then(|given| read_catalog_id(given, sink));
        let description = fields.required("description", sink);
        description.and_then(|given| definition_fields::read_short_text(given, DESCRIPTION_CHARS, sink));
        let version = fields.required("version", sink).and_then(|given| definition_fields::read_version(given, sink));
        let inputs = fields.required("inputs", sink).and_then(|given| read_compiled_schema(given, sink));
        let outputs = fields.required("outputs", sink).and_then(|given| read_compiled_schema(given, sink));
        let idempotent = fields.optional("idempotent").and_then(|given| given.read_bool(sink));
        let mutates = fields.optional("mutates").map(|given| read_mutates(given, sink)).unwrap_or_default();
        let approval = fields.optional("approval");
        let class =
            approval.and_then(|given| definition_fields::read_approval(given, sink)).unwrap_or(ApprovalClass::Auto);
        if class == ApprovalClass::Auto && !mutates.is_empty() {
            refuse_auto_approval(&fields, approval, sink);
        }
        let timeout = fields.optional("timeout_ms").and_then(|given| given.read_millis(1, sink));
        let retry = fields.optional("retry").and_then(|given| definition_fields::read_retry(given, sink));
        let preferred = fields.optional("default_implementation").and_then(|given| given.read_non_empty_text(sink));
        let risk_level =
            fields.optional("risk_level").and_then(|given| definition_fields::read_risk_level(given, sink));
        let implements = fields.optional("implements").and_then(|given| given.read_non_empty_text(sink));
        fields.optional("cost_class").and_then(|given| given.read_one_of(COSTS, sink));
        let (forbid, require_kind) =
            fields.optional("driver_constraints").map(|given| read_driver_constraints(given, sink)).unwrap_or_default();
        let secrets = fields.optional("requires").map(|given| read_requires(given, sink)).unwrap_or_default();
        let mut tool = Some(Aip15Tool {
            id: id.unwrap_or_default().to_owned(),
            version: version.unwrap_or_default().to_owned(),
            inputs: inputs.unwrap_or_default(),
            outputs: outputs.unwrap_or_default(),
            idempotent: idempotent.is_some_and(|flag| flag.value),
            mutates,
            approval: class,
            others: Vec::new(),
            timeout: timeout.map(|length| length.value),
            retry,
            default_implementation: preferred.map(|text| text.value.to_owned()),
            forbid,
            require_kind,
            implements: implements.map(|text| text.value.to_owned()),
            risk_level,
            secrets,
        });
        // Errors in the action's file are reported where the action is named.
        let named = tool.as_ref().and_then(|tool| tool.implements.as_deref());
        let described = named.and_then(|name| project.find_action(name)).and_then(|source| read_action(source).ok());
        if let (Some(tool), Some(action)) = (&mut tool, described) {
            action.check_tool(tool, &fields, sink);
            tool.others.push(action.approval);
        }
        // A missing field has been reported; the caller then returns the errors.
        fields.finish(sink);
        tool
    }

    /// Merges the tools that implement an action: as strict as the strictest of them and the action itself.
    pub(crate) fn merge_strictest(action: Option<&Aip15Action>, tools: &[Aip15Tool]) -> Option<Aip15Tool> {
        let mut all = tools.iter();
        let mut whole = all.next()?.clone();
        for tool in all {
            whole.idempotent &= tool.idempotent;
            whole.mutates.extend(tool.mutates.iter().cloned());
            whole.secrets.extend(tool.secrets.iter().cloned());
            whole.others.extend(tool.others.iter().cloned());
            whole.others.push(tool.approval.clone());
            if approval_strictness(&tool.approval) > approval_strictness(&whole.approval) {
                whole.others.push(std::mem::replace(&mut whole.approval, tool.approval.clone()));
            }
            // Each tool keeps its own timeout; the step may take as long as the slowest.
            whole.timeout = whole.timeout.zip(tool.timeout).map(|(a, b)| a.max(b));
            let fewer = |a: RetryDefinition, b: &RetryDefinition| {
                if b.max_attempts < a.max_attempts { b.clone() } else { a }
            };
            whole.retry = whole.retry.take().zip(tool.retry.as_ref()).map(|(a, b)| fewer(a, b));
            whole.risk_level = whole.risk_level.max(tool.risk_level);
        }
        if let Some(action) = action {
            whole.others.push(action.approval.clone());
            if approval_strictness(&action.approval) > approval_strictness(&whole.approval) {
                whole.others.push(std::mem::replace(&mut whole.approval, action.approval.clone()));
            }
        }
        Some(whole)
    }

    /// Fills in the fields that a step leaves out. Replaces a value that is less strict than the tool's, and returns
    /// its field with the reason.
    pub(crate) fn complete_step(&self, step: &mut StepDefinition) -> Vec<(&'static str, String)> {
        let mut wider = Vec::new();
        let mut says =
            |name, what: String| wider.push((name, format!("this is less strict than the tool allows: {what}")));
        if step.approval.as_ref().is_some_and(|class| is_laxer(class, &self.approval)) {
            says("approval", "it requires approval more often".to_owned());
        }
        if let (Some(own), Some(most)) = (step.risk_level, self.risk_level)
            && own < most
        {
            says("risk_level", format!("its risk is {}", most as u8));
        }
        step.risk_level = step.risk_level.max(self.risk_level);
        if let (Some(own), Some(Millis(most))) = (step.timeout_ms, self.timeout)
            && own > most
        {
            says("timeout_ms", format!("its timeout is {most} ms"));
        }
        let times = [step.timeout_ms, self.timeout.map(|length| length.0)];
        step.timeout_ms = times.into_iter().flatten().min();
        match (&mut step.retry, &self.retry) {
            (Some(own), Some(tool)) if own.max_attempts > tool.max_attempts => {
                says("retry", format!("it allows {} attempts", tool.max_attempts));
                own.max_attempts = tool.max_attempts;
            }
            (own @ None, tool) => own.clone_from(tool),
            _ => {}
        }
        wider
    }

    /// True if an interrupted attempt may have had an effect that must not be repeated.
    pub(crate) fn is_unsafe_to_repeat(&self) -> bool {
        !self.idempotent && !self.mutates.is_empty()
    }
}

/// Returns the tool or the action that a step names.
pub(crate) fn referenced_tool(step: &StepDefinition) -> Option<(CatalogKind, &str)> {
    match &step.kind {
        StepKind::Tool(tool) => Some(match &tool.implementation {
            ToolImplementation::Tool(id) => (CatalogKind::Tool, id),
            ToolImplementation::Action(id) => (CatalogKind::Action, id),
        }),
        _ => None,
    }
}

/// True if a step's class is less strict than the tool's. `per-step` leaves it to the tool.
fn is_laxer(step: &ApprovalClass, tool: &ApprovalClass) -> bool {
    *step != ApprovalClass::PerStep && approval_strictness(step) < approval_strictness(tool)
}

pub(crate) fn approval_strictness(class: &ApprovalClass) -> u8 {
    match class {
        ApprovalClass::Auto | ApprovalClass::PerStep => 0,
        ApprovalClass::OnMutate => 1,
        ApprovalClass::Policy(_) => 2,
        ApprovalClass::Always => 3,
    }
}

/// Reads an id: lower case letters, digits, dots and dashes; the last two not at an end.
pub(crate) fn read_catalog_id<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = (2..=80).contains(&text.len())
        && text.chars().all(|c| inner(c) || matches!(c, '.' | '-'))
        && text.starts_with(inner)
        && text.ends_with(inner);
    if !good {
        let message = format!("`{}` cannot be an id", shorten_text(text));
        let diagnostic = given.diagnose(Code::BadName, message);
        sink.push(diagnostic.with_hint("use 2 to 80 lower case letters and digits, with dots or dashes between them"));
        return None;
    }
    Some(text)
}

fn read_compiled_schema(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Schema> {
    let schema = Schema::new(definition_fields::read_schema(given, sink)?);
    if let Err(error) = schema.compile() {
        let at = match &error {
            skein_core::ir::SchemaError::Schema { at, .. } => given.node.node_at(at),
            skein_core::ir::SchemaError::Value { .. } => given.node,
        };
        sink.push(Diagnostic::new(Code::BadSchema, given.node.source(), at.first_line_span(), error.to_string()));
        return None;
    }
    Some(schema)
}

/// Reads side effects: a kind in lower case letters, a colon, and the thing that is changed.
pub(crate) fn read_mutates(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let mut found = Vec::new();
    for item in given.read_list(sink).unwrap_or_default() {
        let Some(text) = item.read_non_empty_text(sink) else { continue };
        let good = text.value.split_once(':').is_some_and(|(kind, what)| {
            !kind.is_empty()
                && kind.chars().all(|c| c.is_ascii_lowercase())
                && !what.is_empty()
                && !what.contains(char::is_whitespace)
        });
        if good {
            found.push(text.value.to_owned());
        } else {
            sink.push(item.diagnose_type("what is changed, such as `workspace:src` or `external:mail`"));
        }
    }
    found
}

fn refuse_auto_approval(fields: &FieldReader<'_>, approval: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) {
    let span = approval.map_or(fields.head_span(), |given| given.node.first_line_span());
    let message = "a tool with `mutates` cannot have `approval: auto`";
    let diagnostic = Diagnostic::new(Code::FieldsClash, fields.node().source(), span, message);
    let changes = fields.field("mutates").map(|field| field.key_span);
    let diagnostic = match changes {
        Some(changes) => diagnostic.with_related(changes, "it declares changes here"),
        None => diagnostic,
    };
    sink.push(diagnostic.with_hint("write `approval: on-mutate` or `approval: always`"));
}

const REQUIRES_FIELDS: FieldTable =
    FieldTable::open(&["secrets"]).with_unread(&["network", "tools", "fs", "fs.read", "fs.write", "env"]);

/// Reads the requirements on the host. Returns the secrets, which the tool receives.
fn read_requires(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let Some(fields) = FieldReader::from_node(given.node, "`requires`", REQUIRES_FIELDS, sink) else {
        return Vec::new();
    };
    let secrets = fields.optional("secrets").map(|given| read_required_secrets(given, sink)).unwrap_or_default();
    fields.finish(sink);
    secrets
}

const DRIVER_CONSTRAINTS_FIELDS: &[&str] = &["forbid", "require_kind"];

fn read_driver_constraints(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> (Vec<String>, Vec<DriverKind>) {
    let Some(fields) = FieldReader::from_node(given.node, "`driver_constraints`", DRIVER_CONSTRAINTS_FIELDS, sink)
    else {
        return Default::default();
    };
    let (forbid, kinds) = (fields.optional("forbid"), fields.optional("require_kind"));
    fields.finish(sink);
    let kinds = kinds.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let kinds = kinds.into_iter().filter_map(|item| item.read_one_of(DRIVER_KINDS, sink)).map(|kind| kind.value);
    let kinds = kinds.collect();
    (forbid.map(|given| read_texts(given, sink)).unwrap_or_default(), kinds)
}

pub(crate) fn read_texts(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let items = given.read_list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| item.read_text(sink)).map(|text| text.value.to_owned()).collect()
}

/// Explains fields of the body, which a tool file contained in older versions.
fn explain_body(name: &str) -> Option<ForeignKey> {
    ["code", "run", "runner", "secrets", "network", "entry"].contains(&name).then(|| ForeignKey::Refused {
        code: Code::RemovedField,
        message: format!("`{name}` is no longer a field of a tool"),
        hint: "write a DRIVER.md that runs the program".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &str) -> Result<Aip15Tool, Vec<String>> {
        let text = format!(
            "---\nname: Weigh\nid: parcel-weigh\ndescription: Weighs.\nversion: 1.2.0\ninputs: {{type: object}}\n\
             outputs: {{type: object}}\n{more}\n---\nProse.\n"
        );
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        read_tool(SourceFile::new("TOOL.md", text), &()).map_err(said)
    }

    #[test]
    fn a_tool_says_what_it_needs() {
        let tool = read("timeout_ms: 100\nretry: {max_attempts: 2, backoff: fixed}\nidempotent: true").unwrap();
        assert_eq!((tool.id.as_str(), tool.version.as_str()), ("parcel-weigh", "1.2.0"));
        assert_eq!(tool.approval, ApprovalClass::Auto);
        let mut step = StepDefinition::new("s", skein_core::builder::ToolStep::tool("parcel-weigh"));
        step.timeout_ms = Some(7);
        assert_eq!(tool.complete_step(&mut step), []);
        assert_eq!(step.timeout_ms, Some(7), "the step's own word counts");
        assert_eq!(step.retry.map(|retry| retry.max_attempts), Some(2));
    }

    #[test]
    fn a_step_may_be_stricter_and_never_wider() {
        let tool = read("timeout_ms: 100\nretry: {max_attempts: 2, backoff: fixed}\napproval: always\nrisk_level: 2");
        let mut step = StepDefinition::new("s", skein_core::builder::ToolStep::tool("parcel-weigh"));
        step.timeout_ms = Some(500);
        step.approval = Some(ApprovalClass::Auto);
        step.risk_level = Some(RiskLevel::ReadOnly);
        step.retry = Some(RetryDefinition { max_attempts: 9, ..tool.as_ref().unwrap().retry.clone().unwrap() });
        let wider: Vec<&str> = tool.unwrap().complete_step(&mut step).into_iter().map(|(field, _)| field).collect();
        assert_eq!(wider, ["approval", "risk_level", "timeout_ms", "retry"]);
        assert_eq!((step.timeout_ms, step.risk_level), (Some(100), Some(RiskLevel::ExternalEffects)));
        assert_eq!(step.retry.map(|retry| retry.max_attempts), Some(2));
    }

    #[test]
    fn any_of_several_tools_is_as_strict_as_the_strictest() {
        let one = read("timeout_ms: 100\nidempotent: true").unwrap();
        let two = read("timeout_ms: 300\napproval: on-mutate\nmutates: [external:mail]").unwrap();
        let any = Aip15Tool::merge_strictest(None, &[one, two]).unwrap();
        assert_eq!(any.timeout, Some(Millis(300)));
        assert!(any.is_unsafe_to_repeat());
        assert_eq!(any.approval, ApprovalClass::OnMutate);
        assert_eq!(Aip15Tool::merge_strictest(None, &[]), None);
    }

    #[test]
    fn what_is_wrong_with_a_tool_is_said() {
        for (more, says) in [
            ("mutates: [workspace:src]", "cannot have `approval: auto`"),
            ("approval: always\nmutates: [src]", "`mutates` is what is changed"),
            ("run: ./x", "`run` is no longer a field of a tool"),
            ("timeuot_ms: 5", "a tool has no field `timeuot_ms`"),
            ("driver_constraints: {require_kind: [grpc]}", "`require_kind` cannot be `grpc`"),
        ] {
            let said = read(more).unwrap_err();
            assert!(said.iter().any(|one| one.contains(says)), "{more}: {said:?}");
        }
        let none = read_tool(SourceFile::new("TOOL.md", "no front matter"), &()).unwrap_err();
        assert_eq!(none[0].code, Code::BadFrontMatter);
    }
}
