//! Checks across fields of AgentCore: errors between steps, fields without effect, and unwise combinations.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
};

use skein_core::{ids::StepId, ir::StepScope};

use crate::{
    agentcore::{
        defaults::{AgentCoreOnFailure, AgentCoreWorkerKind, ON_FAILURE},
        step_syntax::AgentCoreWork,
        step_syntax::{AgentCoreStep, AgentCoreStepKind, ConvergenceDef},
        syntax::InputRef,
    },
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::workspace_overlap,
    lowering::LoweringContext,
    source::yaml::YamlNode,
};

/// The steps by name, built when the first lookup needs it.
type AgentCoreStepIndex<'a> = LazyCell<
    BTreeMap<&'a str, &'a AgentCoreStep<'a>>,
    Box<dyn FnOnce() -> BTreeMap<&'a str, &'a AgentCoreStep<'a>> + 'a>,
>;

/// Checks each step and its references to other steps.
pub(super) fn check_steps(steps: &[Box<AgentCoreStep<'_>>], sink: &mut DiagnosticSink) {
    let known: AgentCoreStepIndex<'_> =
        LazyCell::new(Box::new(|| steps.iter().map(|step| (step.id.as_str(), &**step)).collect()));
    for step in steps {
        warn_retry(step, sink);
        if let AgentCoreStepKind::Work(work) = &step.does {
            check_inputs(step, &work.inputs, &known, sink);
            warn_worker(step, work, sink);
            warn_check(step, work, sink);
        }
    }
}

fn warn_ignored(node: Option<YamlNode<'_>>, names: &[&str], why: &str, sink: &mut DiagnosticSink) {
    for field in names.iter().filter_map(|name| node?.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        sink.push(Diagnostic::new(Code::IgnoredField, field.value.source(), field.key_span, message));
    }
}

/// Checks that each input comes from a step in `depends_on`.
fn check_inputs(
    step: &AgentCoreStep<'_>,
    inputs: &[InputRef],
    known: &AgentCoreStepIndex<'_>,
    sink: &mut DiagnosticSink,
) {
    let waits: BTreeSet<&StepId> = step.depends_on.iter().map(|name| &name.value).collect();
    for input in inputs {
        let from = &input.from.value;
        // The plan reports a step that does not exist.
        let Some(giver) = known.get(from.as_str()) else { continue };
        if !waits.contains(from) {
            // A misspelt name in `depends_on` may have been meant for this step.
            if *from == step.id || dependencies_are_known(step, known) {
                sink.push(diagnose_missing_dependency(step, input, sink));
            }
        } else if giver.on_failure == AgentCoreOnFailure::Continue {
            sink.push(diagnose_unreliable_input(step, input, giver, sink));
        }
    }
}

/// True if `depends_on` is readable and names only steps that exist.
fn dependencies_are_known(step: &AgentCoreStep<'_>, known: &AgentCoreStepIndex<'_>) -> bool {
    let Some(given) = step.field.value.get("depends_on") else { return true };
    let is_known = |item: YamlNode<'_>| item.raw_text().is_some_and(|name| known.contains_key(name));
    given.items().map_or(given.is_null(), |mut items| items.all(is_known))
}

fn diagnose_missing_dependency(step: &AgentCoreStep<'_>, input: &InputRef, sink: &DiagnosticSink) -> Diagnostic {
    let from = &input.from.value;
    let (message, hint) = if *from == step.id {
        (format!("`{from}` takes an input from itself"), "its earlier files are still in its workspace".to_owned())
    } else {
        let message = format!("`{}` takes an input from `{from}` but does not depend on it", step.id);
        (message, format!("add `{from}` to its `depends_on`"))
    };
    Diagnostic::new(Code::NotBefore, &sink.source, input.from.span, message).with_hint(hint)
}

fn diagnose_unreliable_input(
    step: &AgentCoreStep<'_>,
    input: &InputRef,
    giver: &AgentCoreStep<'_>,
    sink: &DiagnosticSink,
) -> Diagnostic {
    let (giver_id, name) = (&giver.id, &input.name);
    let message = format!("`{}` starts even if `{giver_id}` fails, and then `{name}` is an empty folder", step.id);
    let hint = format!("handle that in `{}`, or let the failure of `{giver_id}` stop the run", step.id);
    let place = giver.field.value.field("on_failure").map_or(giver.field.key_span, |field| field.key_span);
    let diagnostic = Diagnostic::new(Code::InputMayBeMissing, &sink.source, input.place, message);
    diagnostic.with_related(place, "if it fails, the run continues").with_hint(hint)
}

/// Warns of retries without effect: they need both `on_failure: retry` and a `max_retries` above 0.
fn warn_retry(step: &AgentCoreStep<'_>, sink: &mut DiagnosticSink) {
    let node = step.field.value;
    match (step.on_failure, step.max_retries) {
        (AgentCoreOnFailure::Retry, 0)
            if node.field("max_retries").is_none_or(|field| field.value.raw_text() == Some("0")) =>
        {
            let Some(field) = node.field("on_failure") else { return };
            let message = "`retry` changes nothing: `max_retries` is 0";
            let hint = "set the number of retries, such as `max_retries: 2`";
            let source = field.value.source();
            sink.push(
                Diagnostic::new(Code::IgnoredField, source, field.value.first_line_span(), message).with_hint(hint),
            );
        }
        (AgentCoreOnFailure::Abort | AgentCoreOnFailure::Continue, 1..) if on_failure_is_known(node) => {
            warn_ignored(Some(node), &["max_retries"], "`on_failure` is not `retry`", sink);
        }
        _ => {}
    }
}

/// True if `on_failure` is absent or one of the known words.
fn on_failure_is_known(node: YamlNode<'_>) -> bool {
    let word = node.get("on_failure").filter(|value| !value.is_null());
    word.is_none_or(|value| ON_FAILURE.iter().any(|(word, _)| value.raw_text() == Some(word)))
}

fn warn_worker(step: &AgentCoreStep<'_>, work: &AgentCoreWork<'_>, sink: &mut DiagnosticSink) {
    if work.worker.kind == Some(AgentCoreWorkerKind::Custom) {
        let names = &["max_steps", "max_command_time"];
        warn_ignored(Some(step.field.value), names, "a script has no turns to count", sink);
        let block = step.field.value.get("x-skein");
        warn_ignored(block, &["agents"], "a script is not an agent", sink);
    }
}

fn warn_check(step: &AgentCoreStep<'_>, work: &AgentCoreWork<'_>, sink: &mut DiagnosticSink) {
    let node = step.field.value;
    if node.get("completion_check").is_none_or(YamlNode::is_null) {
        let names = &["max_iterations", "on_iterations_exhausted", "convergence"];
        warn_ignored(Some(node), names, "there is no `completion_check`", sink);
    } else if let Some(convergence) = &work.convergence {
        warn_convergence(step, convergence, sink);
    }
}

fn warn_convergence(step: &AgentCoreStep<'_>, convergence: &ConvergenceDef<'_>, sink: &mut DiagnosticSink) {
    if !convergence.enabled {
        let names = &["convergence"];
        return warn_ignored(Some(step.field.value), names, "it is not `enabled: true`", sink);
    }
    let node = Some(convergence.node);
    if convergence.allowed_paths.is_empty() && convergence.max_changed_files.is_none() {
        let names = &["ignored_paths", "diff_base_ref", "diff_base_ref_file"];
        warn_ignored(node, names, "there is neither `allowed_paths` nor `max_changed_files`", sink);
    } else if convergence.diff_base_ref.is_some() {
        warn_ignored(node, &["diff_base_ref_file"], "`diff_base_ref` takes precedence", sink);
    }
}

/// The maximum number of pairs to report: more of them say nothing new.
const SHARED: usize = 10;

/// Warns of steps that can run at the same time and change the same files.
pub(super) fn warn_shared_workspaces(scope: &StepScope, lowering: &mut LoweringContext<'_>) {
    // With errors, the dependencies may not be what the author meant.
    if lowering.sink.has_errors() {
        return;
    }
    let pairs = workspace_overlap::find_shared_workspaces(scope, SHARED);
    if pairs.is_empty() || !dependencies_exist(scope) {
        return;
    }
    for pair in pairs {
        let place = |id: &StepId| lowering.step_span(id).unwrap_or_default();
        let (first, second) = (pair.first, pair.second);
        let message =
            format!("`{first}` and `{second}` can change the workspace `{}` at the same time", pair.workspace);
        let hint = "let one wait for the other, give each a `workspace`, or let them work in worktrees: \
                    `x-skein: {workspace: {isolation: worktree}}`";
        let source = &lowering.sink.source;
        let diagnostic = Diagnostic::new(Code::SharedWorkspace, source, place(second), message);
        let first = place(first);
        lowering.push(diagnostic.with_related(first, "neither of the two depends on the other").with_hint(hint));
    }
}

/// True if every dependency names a step that exists.
fn dependencies_exist(scope: &StepScope) -> bool {
    let ids: BTreeSet<&StepId> = scope.steps.iter().map(|step| &step.id).collect();
    scope.steps.iter().flat_map(|step| &step.after).all(|id| ids.contains(id))
}
