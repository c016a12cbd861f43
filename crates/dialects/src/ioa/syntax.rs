//! IOA's syntax: reads and checks each field by itself. Does not know their meaning together.

use skein_core::{
    expr::ExprSpan,
    ids::StepId,
    ir::{Backoff, BackoffGrowth},
    limits,
    time::Millis,
};

use crate::{
    catalog::IoaMetadata,
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::{ExtensionBlock, STEP_BLOCK_FIELDS, STEP_ONLY_FIELDS, StepExtensionBlock, WORKFLOW_BLOCK_FIELDS},
    fields::{
        DurationUnits, FieldReader, FieldTable, FieldValue, ForeignKey, Spanned, UnloweredSteps, check_delay,
        read_dependencies, refuse_duplicates, refuse_short_max_delay, refuse_twins,
    },
    ioa::defaults::{self, API_VERSIONS, FAILURE_POLICY, IoaFailurePolicy, IoaOnFailure, KIND, ON_FAILURE},
    lowering::call_contract::{CALL, CallContract, read_call},
    source::yaml::{YamlField, YamlNode},
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

/// Explains the fields of `spec`, which are easily put beside it by mistake.
fn explain_spec_field(key: &str) -> Option<ForeignKey> {
    let hint = || format!("`{key}` is a field of `spec`: indent it under that");
    SPEC_FIELDS.contains(key).then(|| ForeignKey::Elsewhere(hint()))
}

fn read_duration(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Millis> {
    given.and_then(|given| given.read_duration(DurationUnits::UpToHours, sink)).map(|length| length.value)
}

const RESOURCE_FIELDS: FieldTable =
    FieldTable::closed(&["apiVersion", "kind", "metadata", "spec", "status"]).with_explanations(explain_spec_field);

impl<'a> IoaResource<'a> {
    /// Reads a resource. None if it is not a workflow, or has no usable `spec`.
    pub(crate) fn read(root: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaResource<'a>> {
        let mut fields = FieldReader::from_node(root, "a Workflow resource", RESOURCE_FIELDS, sink)?;
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
        if let Some(field) = fields.field("status") {
            let message = "`status` is reported by a run and is ignored here";
            sink.push(Diagnostic::new(Code::IgnoredField, root.source(), field.key_span, message));
        }
        fields.finish(sink);
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

/// The `x-skein` block of a `spec`.
const SPEC_BLOCK_FIELDS: FieldTable =
    WORKFLOW_BLOCK_FIELDS.with_more(&[&["compensate_failed_step"]]).with_unread(CallContract::FIELDS);
const SPEC_FIELDS: FieldTable = FieldTable::open(&[
    "x-skein", "description", "domainsInvolved", "trigger", "timeout", "failurePolicy", "steps", "compensation",
]);

impl<'a> IoaSpec<'a> {
    pub(crate) fn failure_policy(&self) -> IoaFailurePolicy {
        self.failure_policy.as_ref().map(|word| word.value).unwrap_or_default()
    }

    fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<IoaSpec<'a>> {
        let mut fields = FieldReader::from_field(field, "`spec`", SPEC_FIELDS, sink)?;
        let block = fields.optional("x-skein");
        let description = fields.required("description", sink).and_then(|given| given.read_non_empty_text(sink));
        let spec = IoaSpec {
            description: description.map(|text| text.value),
            domains: fields
                .required("domainsInvolved", sink)
                .map_or_else(Vec::new, |given| read_non_empty_list(given, sink)),
            trigger: fields.optional("trigger").and_then(|given| IoaTrigger::read(given, sink)).unwrap_or_default(),
            timeout: read_duration(fields.optional("timeout"), sink),
            failure_policy: fields.optional("failurePolicy").and_then(|given| given.read_one_of(FAILURE_POLICY, sink)),
            skein: block
                .map_or_else(ExtensionBlock::default, |given| ExtensionBlock::read(given, SPEC_BLOCK_FIELDS, sink)),
            border: CallContract::read(block, sink),
            steps: fields.required("steps", sink).and_then(|given| read_steps(given, sink)),
            compensation: fields.optional("compensation").map_or_else(Vec::new, |given| read_compensation(given, sink)),
        };
        fields.finish(sink);
        Some(spec)
    }
}

/// Reads a list of at least one text.
fn read_non_empty_list<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<Spanned<&'a str>> {
    let Some(items) = given.read_list(sink) else { return Vec::new() };
    if items.is_empty() {
        let message = format!("`{}` is empty and needs at least one item", given.name);
        sink.push(given.diagnose(Code::NoValue, message));
    }
    items.into_iter().filter_map(|item| item.read_non_empty_text(sink)).collect()
}

fn read_steps<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<UnloweredSteps<IoaStep<'a>>> {
    let items = given.read_items(sink)?;
    if items.len() == 0 {
        let message = "a workflow needs at least one step";
        sink.push(given.diagnose(Code::NoSteps, message));
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

const TRIGGER_FIELDS: FieldTable = FieldTable::open(&["event", "condition", "schedule"]);

impl<'a> IoaTrigger<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<IoaTrigger<'a>> {
        let fields = FieldReader::from_node(given.node, "a trigger", TRIGGER_FIELDS, sink)?;
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
        fields.finish(sink);
        Some(trigger)
    }
}

/// Warns of a field that is valid but has no effect.
fn warn_ignored(given: FieldValue<'_>, span: ExprSpan, message: impl Into<String>, sink: &mut DiagnosticSink) {
    sink.push(Diagnostic::new(Code::IgnoredField, given.node.source(), span, message));
}

#[derive(Debug)]
pub(in crate::ioa) struct IoaStep<'a> {
    pub id: Spanned<StepId>,
    pub node: YamlNode<'a>,
    pub agent: Option<Spanned<&'a str>>,
    /// The task of the agent, or the question to a person.
    pub action: Option<Spanned<&'a str>>,
    pub depends_on: Vec<Spanned<StepId>>,
    pub timeout: Option<Millis>,
    pub retry: Option<Box<IoaRetryPolicy>>,
    pub on_failure: Option<Spanned<IoaOnFailure>>,
    pub skein: StepExtensionBlock,
    pub border: CallContract<'a>,
    /// The workflow that it calls instead of running the agent.
    pub call: Option<FieldValue<'a>>,
}

/// The `x-skein` block of a step.
const IOA_BLOCK_FIELDS: FieldTable =
    STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["gate", "quorum"]]).with_unread(&["input", "output", CALL]);
const STEP_FIELDS: FieldTable =
    FieldTable::open(&["name", "agent", "action", "dependsOn", "timeout", "retryPolicy", "onFailure", "x-skein"]);

impl<'a> IoaStep<'a> {
    pub(crate) fn read(node: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaStep<'a>> {
        let mut fields = FieldReader::from_node(node, "a step", STEP_FIELDS, sink)?;
        let id = fields.required("name", sink).and_then(|given| read_step_id(given, sink));
        let agent = fields.required("agent", sink).and_then(|given| given.read_non_empty_text(sink));
        let action = fields.required("action", sink).and_then(|given| given.read_non_empty_text(sink));
        let depends_on = read_dependencies(fields.optional("dependsOn"), sink);
        let timeout = read_duration(fields.optional("timeout"), sink);
        let retry = fields.optional("retryPolicy").and_then(|given| IoaRetryPolicy::read(given, sink)).map(Box::new);
        let on_failure = fields.optional("onFailure").and_then(|given| given.read_one_of(ON_FAILURE, sink));
        let block = fields.optional("x-skein");
        let skein = StepExtensionBlock::read(block, IOA_BLOCK_FIELDS, sink);
        fields.finish(sink);
        let (border, call) = (CallContract::read(block, sink), read_call(block, sink));
        Some(IoaStep { id: id?, node, agent, action, depends_on, timeout, retry, on_failure, skein, border, call })
    }
}

fn read_step_id(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Spanned<StepId>> {
    given.read_name(|text| StepId::new(text), sink)
}

/// One entry of `compensation`.
#[derive(Debug)]
pub(in crate::ioa) struct IoaCompensation<'a> {
    pub step: Spanned<StepId>,
    pub action: Option<Spanned<&'a str>>,
    /// None: the agent of the step.
    pub agent: Option<Spanned<&'a str>>,
}

const COMPENSATION_FIELDS: FieldTable = FieldTable::open(&["step", "action", "agent"]);

impl<'a> IoaCompensation<'a> {
    pub(crate) fn read(node: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<IoaCompensation<'a>> {
        let mut fields = FieldReader::from_node(node, "a compensation", COMPENSATION_FIELDS, sink)?;
        let step = fields.required("step", sink).and_then(|given| read_step_id(given, sink));
        let action = fields.required("action", sink).and_then(|given| given.read_non_empty_text(sink));
        let agent = fields.optional("agent").and_then(|given| given.read_non_empty_text(sink));
        fields.finish(sink);
        Some(IoaCompensation { step: step?, action, agent })
    }
}

#[derive(Debug, Clone)]
pub(in crate::ioa) struct IoaRetryPolicy {
    /// Attempts after the first.
    pub max_retries: u32,
    pub backoff: Backoff,
}

/// The value of `backoff`: the growth of the delay, or the delay itself.
enum IoaBackoff {
    Growth(BackoffGrowth),
    Delay(Spanned<Millis>),
}

const RETRY_FIELDS: FieldTable = FieldTable::open(&["maxRetries", "backoff", "initialDelay", "maxDelay"]);

impl IoaRetryPolicy {
    pub(crate) fn read(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<IoaRetryPolicy> {
        let fields = FieldReader::from_node(given.node, "a retry policy", RETRY_FIELDS, sink)?;
        let max_retries =
            fields.optional("maxRetries").and_then(|given| given.read_whole_number(0..=limits::ATTEMPTS - 1, sink));
        let says = fields.optional("backoff").and_then(|given| read_backoff(given, sink));
        let initial = read_delay(fields.optional("initialDelay"), sink);
        let most = read_delay(fields.optional("maxDelay"), sink);
        if let (Some(IoaBackoff::Delay(_)), Some(field)) = (&says, fields.field("initialDelay")) {
            let message = "`initialDelay` changes nothing: `backoff` is already a duration";
            warn_ignored(given, field.key_span, message, sink);
        }
        // A misspelt field has its own diagnostic, and that is enough.
        let known = ["backoff", "initialDelay", "maxDelay"];
        if given.node.fields().into_iter().flatten().all(|field| known.contains(&field.key)) {
            let message = "a retry policy without `maxRetries` retries nothing";
            warn_ignored(given, given.node.first_line_span(), message, sink);
        }
        fields.finish(sink);
        let backoff = build_backoff(says, initial, most.as_ref(), sink);
        Some(IoaRetryPolicy { max_retries: max_retries.map_or(0, |count| count.value), backoff })
    }
}

/// Reads a word for the growth of the delay, or one duration for every delay.
fn read_backoff(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<IoaBackoff> {
    let is_length = given.node.raw_text().is_some_and(|raw| raw.starts_with(|c: char| c.is_ascii_digit()));
    if is_length {
        return read_delay(Some(given), sink).map(IoaBackoff::Delay);
    }
    given.read_one_of(defaults::BACKOFF, sink).map(|word| IoaBackoff::Growth(word.value))
}

fn read_delay(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
    let given = given?;
    check_delay(given, given.read_duration(DurationUnits::UpToHours, sink), sink)
}

/// Builds the backoff. The default maximum delay never shortens a delay in the source.
fn build_backoff(
    says: Option<IoaBackoff>,
    initial: Option<Spanned<Millis>>,
    most: Option<&Spanned<Millis>>,
    sink: &mut DiagnosticSink,
) -> Backoff {
    let (growth, initial) = match says {
        Some(IoaBackoff::Delay(delay)) => (BackoffGrowth::Constant, Some(delay)),
        Some(IoaBackoff::Growth(growth)) => (growth, initial),
        None => (defaults::DOUBLING, initial),
    };
    if let (Some(first), Some(most)) = (&initial, most) {
        refuse_short_max_delay(first, most, sink);
    }
    let initial = initial.map_or(defaults::INITIAL_DELAY, |initial| initial.value);
    let max = most.map_or(defaults::MAX_DELAY.max(initial), |most| most.value);
    Backoff { initial, growth, max, jitter: false }
}
