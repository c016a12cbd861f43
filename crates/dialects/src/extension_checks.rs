//! Our own blocks as parts of a workflow: what they say that its steps cannot use, whether there is anything to merge,
//! and who settles a conflict.
//!
//! Owns what the blocks of a workflow and its steps mean together. What each says by itself is `xskein`'s.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ids::StepId,
    ir::{StepKindSpec, StepScope},
    suggest::did_you_mean,
};

use crate::{
    code::Code,
    detect::Dialect,
    diagnostic::{Diagnostic, DiagnosticSink},
    dialect_terms::DialectTerms,
    lowering::{LoweredSource, warn_ignored},
    yaml::YamlNode,
};

/// How a step is isolated that does not say.
const SHARED: &str = "shared";

/// Fields that are about whoever does the work.
const OF_WORKER: &[&str] =
    &["agents", "evidence", "network", "protect", "secrets", "test_commands", "unprotect", "workspace"];

/// What the block of the workflow says of workspaces.
fn find_workspace_block(dialect: Dialect, lowered: &LoweredSource) -> Option<YamlNode<'_>> {
    let root = lowered.places.tree.root();
    let top = if dialect == Dialect::Ioa { root.get("spec") } else { Some(root) };
    find_extension_block(dialect, top?)?.get("workspace")
}

/// The step that the block of the workflow names to settle conflicts.
pub(crate) fn find_conflict_resolver(dialect: Dialect, lowered: &LoweredSource) -> Option<StepId> {
    StepId::new(find_workspace_block(dialect, lowered)?.get("conflict")?.raw_text()?).ok()
}

/// Says that nobody has conflicts that this step could settle.
pub(crate) fn warn_unused_resolver(dialect: Dialect, lowered: &LoweredSource, sink: &mut DiagnosticSink) {
    let Some(block) = find_workspace_block(dialect, lowered) else { return };
    let why = "the step that it names comes right after none that has a worktree";
    warn_ignored(block, &["conflict"], &lowered.voice.translate_terms(why), sink);
}

pub(crate) fn check_extensions(dialect: Dialect, lowered: &LoweredSource, sink: &mut DiagnosticSink) {
    let whole = find_workspace_block(dialect, lowered);
    let steps =
        lowered.places.steps().filter_map(|(id, node)| Some((id, find_extension_block(dialect, node)?)));
    let mut steps = steps.peekable();
    if whole.is_none() && steps.peek().is_none() {
        return;
    }
    let kinds = collect_step_kinds(&lowered.workflow.scope);
    let mut own = Vec::new();
    for (id, block) in steps {
        if !matches!(kinds.get(id), Some(StepKindSpec::Gate(_)) | None) {
            warn_ignored(block, &["quorum"], "only a gate is decided by people", sink);
        }
        match kinds.get(id).and_then(|kind| unused_reason(dialect, kind)) {
            Some(why) => warn_ignored(block, OF_WORKER, &lowered.voice.translate_terms(why), sink),
            None => own.extend(block.get("workspace")),
        }
    }
    let known: BTreeSet<&str> = lowered.places.steps().map(|(id, _)| id.as_str()).collect();
    let blocks = whole.into_iter().chain(own.iter().copied());
    blocks.for_each(|block| check_conflict(block, &known, lowered.voice, sink));
    check_merges(whole, &own, sink);
}

/// Why a step has no use for what is said about a worker, if it has none.
fn unused_reason(dialect: Dialect, kind: &StepKindSpec) -> Option<&'static str> {
    match kind {
        StepKindSpec::Work(_) => None,
        // What a stage says is said for each of its items.
        StepKindSpec::Each(_) if dialect == Dialect::Swdl => None,
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) => Some("this step only waits"),
        StepKindSpec::Branch(_) => Some("this step only chooses"),
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) => {
            Some("the steps inside have their own")
        }
        StepKindSpec::Call(_) => Some("the steps of the other workflow have their own"),
    }
}

/// Every step of a workflow by its name.
fn collect_step_kinds(scope: &StepScope) -> BTreeMap<&StepId, &StepKindSpec> {
    let mut found = BTreeMap::new();
    let mut todo = vec![scope];
    while let Some(scope) = todo.pop() {
        for step in &scope.steps {
            found.insert(&step.id, &step.kind);
            todo.extend(step.kind.inner_scopes().into_iter().map(|scope| &**scope));
        }
    }
    found
}

fn find_extension_block(dialect: Dialect, node: YamlNode<'_>) -> Option<YamlNode<'_>> {
    match dialect {
        Dialect::Aip15 => node.get("metadata")?.get("skein"),
        Dialect::AgentCore | Dialect::Ioa | Dialect::Swdl => node.get("x-skein"),
    }
}

fn check_merges(whole: Option<YamlNode<'_>>, own: &[YamlNode<'_>], sink: &mut DiagnosticSink) {
    let outer = whole.and_then(isolation_word).unwrap_or(SHARED);
    if let Some(block) = whole {
        // It may be meant for the steps that have a worktree.
        let shared = own.iter().all(|block| isolation_word(*block).unwrap_or(outer) == SHARED);
        warn_unused_merge(block, outer == SHARED && shared, None, sink);
    }
    let merge = whole.and_then(|block| block.get("merge"));
    for block in own {
        warn_unused_merge(*block, isolation_word(*block).unwrap_or(outer) == SHARED, merge, sink);
    }
}

fn isolation_word(block: YamlNode<'_>) -> Option<&str> {
    block.get("isolation")?.raw_text()
}

/// The step that is asked to settle a conflict is one of this workflow.
fn check_conflict(
    block: YamlNode<'_>,
    known: &BTreeSet<&str>,
    voice: &DialectTerms,
    sink: &mut DiagnosticSink,
) {
    let Some(node) = block.get("conflict") else { return };
    let Some(name) = node.raw_text().filter(|name| !name.is_empty() && !known.contains(*name)) else {
        return;
    };
    let hint = did_you_mean(name, known.iter().copied());
    let message = voice.translate_terms(&format!("there is no step `{name}`"));
    sink.push(
        Diagnostic::new(Code::UnknownStep, node.source(), node.first_line_span(), message)
            .with_optional_hint(hint),
    );
}

/// Only what was done in a worktree is merged, and only what is merged can be in conflict.
fn warn_unused_merge(
    block: YamlNode<'_>,
    shared: bool,
    outer: Option<YamlNode<'_>>,
    sink: &mut DiagnosticSink,
) {
    let merge = block.get("merge").or(outer);
    let unmerged = merge.is_some_and(|merge| merge.raw_text() == Some("false"));
    let (names, why, hint): (&[&str], _, _) = match (shared, unmerged) {
        (true, _) => (
            &["merge", "conflict"],
            "the work is done in the shared workspace, and there is nothing to merge",
            "write `isolation: worktree` beside it, or leave it out",
        ),
        (false, true) => (&["conflict"], "`merge` is `false`", "leave it out, or merge"),
        (false, false) => return,
    };
    // One mistake, however many fields it makes idle.
    if let Some(field) = names.iter().find_map(|name| block.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        let diagnostic = Diagnostic::new(Code::IgnoredField, block.source(), field.key_span, message);
        sink.push(diagnostic.with_hint(hint));
    }
}
