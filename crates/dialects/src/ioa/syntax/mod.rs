//! IOA as it is written: its fields, each read and checked by itself. Refuses to know what they mean together.

mod metadata;
mod retry;
mod step;

use skein_core::{expr::Span, time::Millis};

pub(crate) use self::metadata::Metadata;
pub(super) use self::step::{Compensation, Step};
use super::defaults::{API_VERSIONS, FAILURE_POLICY, FailurePolicy, KIND};
use crate::{
    border::Border,
    code::Code,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    names::{refuse_duplicates, refuse_twins},
    read::{Fields, Given, Spanned, Unlowered},
    xskein::{Extra, Level, XSkein},
    yaml::{Field, Node},
};

/// A whole source.
#[derive(Debug)]
pub(super) struct Resource<'a> {
    pub metadata: Metadata<'a>,
    pub spec: Spec<'a>,
}

#[derive(Debug)]
pub(super) struct Spec<'a> {
    pub description: Option<&'a str>,
    pub domains: Vec<Spanned<&'a str>>,
    pub trigger: Trigger<'a>,
    pub timeout: Option<Millis>,
    pub failure_policy: Option<Spanned<FailurePolicy>>,
    pub skein: XSkein,
    pub border: Border<'a>,
    /// None if some step has no name that can be used.
    pub steps: Option<Unlowered<Step<'a>>>,
    pub compensation: Vec<Compensation<'a>>,
}

/// What starts a run. All of it may be left out.
#[derive(Debug, Default)]
pub(super) struct Trigger<'a> {
    pub event: Option<Spanned<&'a str>>,
    pub condition: Option<Given<'a>>,
    pub schedule: Option<Given<'a>>,
}

/// The fields of `spec`, which are easily put beside it.
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

fn text<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    given.and_then(|given| given.text(sink)).map(|text| text.value)
}

fn length(given: Option<Given<'_>>, sink: &mut Sink) -> Option<Millis> {
    given.and_then(|given| given.duration(Units::UpToHours, sink)).map(|length| length.value)
}

impl<'a> Resource<'a> {
    /// None if it is not a workflow, or has no `spec` to speak of.
    pub fn read(root: Node<'a>, sink: &mut Sink) -> Option<Resource<'a>> {
        let mut fields = Fields::of(root, "a Workflow resource", sink)?;
        fields.required("apiVersion", sink).map(|given| given.one_of(API_VERSIONS, sink));
        let kind = fields.required("kind", sink).and_then(|given| given.words(sink));
        if let Some(kind) = kind.filter(|kind| kind.value != KIND) {
            let other = other_kind(&kind, sink);
            let meant = other.fix.is_some();
            sink.push(other);
            if !meant {
                return None;
            }
        }
        let metadata = fields.required("metadata", sink).and_then(|_| fields.field("metadata"));
        let metadata = metadata.and_then(|field| Metadata::read(field, sink));
        let spec = fields.required("spec", sink).and_then(|_| fields.field("spec"));
        let spec = spec.and_then(|field| Spec::read(field, sink));
        fields.optional("status");
        if let Some(field) = fields.field("status") {
            let message = "`status` is what a run reports, and is not read";
            sink.push(Diagnostic::new(Code::IgnoredField, root.source(), field.key_span, message));
        }
        fields.finish_with(sink, |key| {
            OF_SPEC.contains(&key).then(|| format!("`{key}` is a field of `spec`: indent it under that"))
        });
        Some(Resource { metadata: metadata.unwrap_or_default(), spec: spec? })
    }
}

fn other_kind(kind: &Spanned<&str>, sink: &Sink) -> Diagnostic {
    let message = format!("a resource of kind `{}` is not a workflow", kind.value);
    let diagnostic = Diagnostic::new(Code::UnknownWord, &sink.source, kind.span, message);
    match skein_core::closest::closest(kind.value, [KIND].into_iter()) {
        Some(near) => diagnostic.meant(kind.span, near),
        None => diagnostic.hint(format!("only `kind: {KIND}` can be run")),
    }
}

impl<'a> Spec<'a> {
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy.as_ref().map(|word| word.value).unwrap_or_default()
    }

    fn read(field: Field<'a>, sink: &mut Sink) -> Option<Spec<'a>> {
        let mut fields = Fields::under(field, "`spec`", sink)?;
        let block = fields.optional("x-skein");
        let description = fields.required("description", sink).and_then(|given| given.words(sink));
        let spec = Spec {
            description: description.map(|text| text.value),
            domains: fields
                .required("domainsInvolved", sink)
                .map_or_else(Vec::new, |given| some(given, sink)),
            trigger: fields
                .optional("trigger")
                .and_then(|given| Trigger::read(given, sink))
                .unwrap_or_default(),
            timeout: length(fields.optional("timeout"), sink),
            failure_policy: fields
                .optional("failurePolicy")
                .and_then(|given| given.one_of(FAILURE_POLICY, sink)),
            border: Border::read(block, sink),
            skein: block.map_or_else(XSkein::default, |given| {
                let extra = Extra { compensate_failed_step: true, own: Border::FIELDS, ..Extra::default() };
                XSkein::read(given, Level::Workflow, extra, sink)
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

/// A list of at least one text.
fn some<'a>(given: Given<'a>, sink: &mut Sink) -> Vec<Spanned<&'a str>> {
    let Some(items) = given.list(sink) else { return Vec::new() };
    if items.is_empty() {
        let message = format!("`{}` names nothing, and needs at least one", given.name);
        sink.push(Diagnostic::new(Code::NoValue, given.node.source(), given.node.mark(), message));
    }
    items.into_iter().filter_map(|item| item.words(sink)).collect()
}

fn read_steps<'a>(given: Given<'a>, sink: &mut Sink) -> Option<Unlowered<Step<'a>>> {
    let items = given.items(sink)?;
    if items.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.mark(), message));
        return None;
    }
    let count = items.len();
    let mut steps: Unlowered<Step<'a>> = Vec::with_capacity(count);
    steps.extend(items.filter_map(|item| Step::read(item.node, sink).map(Box::new)));
    let names = || steps.iter().map(|step| (step.id.value.as_str(), step.id.span));
    let once = refuse_duplicates(names(), "a step", sink);
    refuse_twins(names(), "the step", sink);
    if steps.len() < count {
        return None;
    }
    if !once {
        // A name that is there twice has been reported, and the first counts.
        let mut seen = std::collections::HashSet::new();
        steps.retain(|step| seen.insert(step.id.value.clone()));
    }
    Some(steps)
}

fn read_compensation<'a>(given: Given<'a>, sink: &mut Sink) -> Vec<Compensation<'a>> {
    let items = given.list(sink).unwrap_or_default();
    let entries: Vec<Compensation<'a>> =
        items.into_iter().filter_map(|item| Compensation::read(item.node, sink)).collect();
    let names = entries.iter().map(|entry| (entry.step.value.as_str(), entry.step.span));
    refuse_duplicates(names, "compensation for", sink);
    entries
}

impl<'a> Trigger<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<Trigger<'a>> {
        let mut fields = Fields::of(given.node, "a trigger", sink)?;
        let trigger = Trigger {
            event: fields.optional("event").and_then(|given| given.words(sink)),
            condition: fields.optional("condition").filter(|given| given.words(sink).is_some()),
            schedule: fields.optional("schedule").filter(|given| given.words(sink).is_some()),
        };
        if trigger.event.is_none()
            && let Some(condition) = fields.field("condition")
        {
            ignored(given, condition.key_span, "`condition` changes nothing: there is no `event`", sink);
        }
        fields.finish_open(sink);
        Some(trigger)
    }
}

/// Warns of a field that is right and has no effect.
fn ignored(given: Given<'_>, span: Span, message: impl Into<String>, sink: &mut Sink) {
    sink.push(Diagnostic::new(Code::IgnoredField, given.node.source(), span, message));
}
