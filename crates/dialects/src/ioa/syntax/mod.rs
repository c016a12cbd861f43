//! IOA's syntax: reads and checks each field by itself. Does not know their meaning together.

mod metadata;
mod retry;
mod step;

use skein_core::{expr::ExprSpan, time::Millis};

pub(crate) use self::metadata::IoaMetadata;
pub(super) use self::step::{IoaCompensation, IoaStep};
use super::defaults::{API_VERSIONS, FAILURE_POLICY, IoaFailurePolicy, KIND};
use crate::{
    call_contract::CallContract,
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    duration::DurationUnits,
    extension_block::{ExtensionBlock, ExtensionLevel, ExtraFields},
    fields::{FieldReader, FieldValue, Spanned, UnloweredSteps},
    names::{refuse_duplicates, refuse_twins},
    yaml::{YamlField, YamlNode},
};

/// A whole source file.
#[derive(Debug)]
pub(super) struct IoaResource<'a> {
    pub metadata: IoaMetadata<'a>,
    pub spec: IoaSpec<'a>,
}

#[derive(Debug)]
pub(super) struct IoaSpec<'a> {
    pub description: Option<&'a str>,
    pub domains: Vec<Spanned<&'a str>>,
    pub trigger: IoaTrigger<'a>,
    pub timeout: Option<Millis>,
    pub failure_policy: Option<Spanned<IoaFailurePolicy>>,
    pub skein: ExtensionBlock,
    pub border: CallContract<'a>,
    /// None if some step has no usable name.
    pub steps: Option<UnloweredSteps<IoaStep<'a>>>,
    pub compensation: Vec<IoaCompensation<'a>>,
}

/// The triggers of a run. All fields are optional.
#[derive(Debug, Default)]
pub(super) struct IoaTrigger<'a> {
    pub event: Option<Spanned<&'a str>>,
    pub condition: Option<FieldValue<'a>>,
    pub schedule: Option<FieldValue<'a>>,
}

/// The fields of `spec`, which are easily put beside it by mistake.
const OF_SPEC: &[&str] = &[
    "description",
    "domainsInvolved",
    "trigger",
    "steps",
    "compensation",
    "timeout",
    "failurePolicy",
    "x-skein",
];

fn read_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_text(sink)).map(|text| text.value)
}

fn read_duration(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Millis> {
    given.and_then(|given| given.read_duration(DurationUnits::UpToHours, sink)).map(|length| length.value)
}

impl<'a> IoaResource<'a> {
    /// Reads a resource. None if it is not a workflow, or has no usable `spec`.
    pub fn read(root: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaResource<'a>> {
        let mut fields = FieldReader::from_node(root, "a Workflow resource", sink)?;
        fields.required("apiVersion", sink).map(|given| given.read_one_of(API_VERSIONS, sink));
        let kind = fields.required("kind", sink).and_then(|given| given.read_non_empty_text(sink));
        if let Some(kind) = kind.filter(|kind| kind.value != KIND) {
            let other = diagnose_other_kind(&kind, sink);
            let meant = other.fix.is_some();
            sink.push(other);
            if !meant {
                return None;
            }
        }
        let metadata = fields.required("metadata", sink).and_then(|_| fields.field("metadata"));
        let metadata = metadata.and_then(|field| IoaMetadata::read(field, sink));
        let spec = fields.required("spec", sink).and_then(|_| fields.field("spec"));
        let spec = spec.and_then(|field| IoaSpec::read(field, sink));
        fields.optional("status");
        if let Some(field) = fields.field("status") {
            let message = "`status` is reported by a run and is ignored here";
            sink.push(Diagnostic::new(Code::IgnoredField, root.source(), field.key_span, message));
        }
        fields.finish_with(sink, |key| {
            OF_SPEC.contains(&key).then(|| format!("`{key}` is a field of `spec`: indent it under that"))
        });
        Some(IoaResource { metadata: metadata.unwrap_or_default(), spec: spec? })
    }
}

fn diagnose_other_kind(kind: &Spanned<&str>, sink: &DiagnosticSink) -> Diagnostic {
    let message = format!("a resource of kind `{}` is not a workflow", kind.value);
    let diagnostic = Diagnostic::new(Code::UnknownWord, &sink.source, kind.span, message);
    match skein_core::suggest::find_closest_name(kind.value, [KIND].into_iter()) {
        Some(near) => diagnostic.with_suggestion(kind.span, near),
        None => diagnostic.with_hint(format!("only `kind: {KIND}` can be run")),
    }
}

impl<'a> IoaSpec<'a> {
    pub fn failure_policy(&self) -> IoaFailurePolicy {
        self.failure_policy.as_ref().map(|word| word.value).unwrap_or_default()
    }

    fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<IoaSpec<'a>> {
        let mut fields = FieldReader::from_field(field, "`spec`", sink)?;
        let block = fields.optional("x-skein");
        let description =
            fields.required("description", sink).and_then(|given| given.read_non_empty_text(sink));
        let spec = IoaSpec {
            description: description.map(|text| text.value),
            domains: fields
                .required("domainsInvolved", sink)
                .map_or_else(Vec::new, |given| read_non_empty_list(given, sink)),
            trigger: fields
                .optional("trigger")
                .and_then(|given| IoaTrigger::read(given, sink))
                .unwrap_or_default(),
            timeout: read_duration(fields.optional("timeout"), sink),
            failure_policy: fields
                .optional("failurePolicy")
                .and_then(|given| given.read_one_of(FAILURE_POLICY, sink)),
            border: CallContract::read(block, sink),
            skein: block.map_or_else(ExtensionBlock::default, |given| {
                let extra = ExtraFields {
                    compensate_failed_step: true,
                    own: CallContract::FIELDS,
                    ..ExtraFields::default()
                };
                ExtensionBlock::read(given, ExtensionLevel::Workflow, extra, sink)
            }),
            steps: fields.required("steps", sink).and_then(|given| read_steps(given, sink)),
            compensation: fields
                .optional("compensation")
                .map_or_else(Vec::new, |given| read_compensation(given, sink)),
        };
        fields.finish_open(sink);
        Some(spec)
    }
}

/// Reads a list of at least one text.
fn read_non_empty_list<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<Spanned<&'a str>> {
    let Some(items) = given.read_list(sink) else { return Vec::new() };
    if items.is_empty() {
        let message = format!("`{}` is empty and needs at least one item", given.name);
        sink.push(Diagnostic::new(Code::NoValue, given.node.source(), given.node.first_line_span(), message));
    }
    items.into_iter().filter_map(|item| item.read_non_empty_text(sink)).collect()
}

fn read_steps<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<UnloweredSteps<IoaStep<'a>>> {
    let items = given.read_items(sink)?;
    if items.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.first_line_span(), message));
        return None;
    }
    let count = items.len();
    let mut steps: UnloweredSteps<IoaStep<'a>> = Vec::with_capacity(count);
    steps.extend(items.filter_map(|item| IoaStep::read(item.node, sink).map(Box::new)));
    let names = || steps.iter().map(|step| (step.id.value.as_str(), step.id.span));
    let once = refuse_duplicates(names(), "a step", sink);
    refuse_twins(names(), "the step", sink);
    if steps.len() < count {
        return None;
    }
    if !once {
        // A duplicate name has been reported; the first one counts.
        let mut seen = std::collections::HashSet::new();
        steps.retain(|step| seen.insert(step.id.value.clone()));
    }
    Some(steps)
}

fn read_compensation<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<IoaCompensation<'a>> {
    let items = given.read_list(sink).unwrap_or_default();
    let entries: Vec<IoaCompensation<'a>> =
        items.into_iter().filter_map(|item| IoaCompensation::read(item.node, sink)).collect();
    let names = entries.iter().map(|entry| (entry.step.value.as_str(), entry.step.span));
    refuse_duplicates(names, "compensation for", sink);
    entries
}

impl<'a> IoaTrigger<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<IoaTrigger<'a>> {
        let mut fields = FieldReader::from_node(given.node, "a trigger", sink)?;
        let trigger = IoaTrigger {
            event: fields.optional("event").and_then(|given| given.read_non_empty_text(sink)),
            condition: fields.optional("condition").filter(|given| given.read_non_empty_text(sink).is_some()),
            schedule: fields.optional("schedule").filter(|given| given.read_non_empty_text(sink).is_some()),
        };
        if trigger.event.is_none()
            && let Some(condition) = fields.field("condition")
        {
            warn_ignored(given, condition.key_span, "`condition` changes nothing: there is no `event`", sink);
        }
        fields.finish_open(sink);
        Some(trigger)
    }
}

/// Warns of a field that is valid but has no effect.
fn warn_ignored(
    given: FieldValue<'_>,
    span: ExprSpan,
    message: impl Into<String>,
    sink: &mut DiagnosticSink,
) {
    sink.push(Diagnostic::new(Code::IgnoredField, given.node.source(), span, message));
}
