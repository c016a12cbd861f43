//! Checks extension blocks as parts of a workflow: fields that its steps cannot use, merges without a worktree, and the
//! conflict resolver.
//!
//! Owns the checks across the blocks of a workflow and its steps. Each block by itself is checked in `extension_block`.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ids::StepId,
    ir::{StepKindSpec, StepScope},
    suggest::did_you_mean,
};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    lowering::{DialectTerms, LoweredSource, warn_ignored},
    source::{Dialect, yaml::YamlNode},
};

/// The default isolation of a step.
const SHARED: &str = "shared";

/// Fields that only apply to a worker.
const OF_WORKER: &[&str] =
    &["agents", "evidence", "network", "protect", "secrets", "test_commands", "unprotect", "workspace"];

/// Returns the `workspace` field of the workflow's block.
fn find_workspace_block(dialect: Dialect, lowered: &LoweredSource) -> Option<YamlNode<'_>> {
    let root = lowered.places.tree.root();
    let top = if dialect == Dialect::Ioa { root.get("spec") } else { Some(root) };
    find_extension_block(dialect, top?)?.get("workspace")
}

/// Returns the conflict resolver that the workflow's block names.
pub(crate) fn find_conflict_resolver(dialect: Dialect, lowered: &LoweredSource) -> Option<StepId> {
    StepId::new(find_workspace_block(dialect, lowered)?.get("conflict")?.raw_text()?).ok()
}

/// Warns that no step has conflicts that the named step could resolve.
pub(crate) fn warn_unused_resolver(dialect: Dialect, lowered: &LoweredSource, sink: &mut DiagnosticSink) {
    let Some(block) = find_workspace_block(dialect, lowered) else { return };
    let step = lowered.terms.words.step;
    let why = format!("the {step} that it names does not directly follow a {step} with a worktree");
    warn_ignored(block, &["conflict"], &why, sink);
}

pub(crate) fn check_extensions(dialect: Dialect, lowered: &LoweredSource, sink: &mut DiagnosticSink) {
    let whole = find_workspace_block(dialect, lowered);
    let steps = lowered.places.steps().filter_map(|(id, node)| Some((id, find_extension_block(dialect, node)?)));
    let mut steps = steps.peekable();
    if whole.is_none() && steps.peek().is_none() {
        return;
    }
    let kinds = collect_step_kinds(&lowered.workflow.scope);
    let mut own = Vec::new();
    for (id, block) in steps {
        if !matches!(kinds.get(id), Some(StepKindSpec::Gate(_)) | None) {
            warn_ignored(block, &["quorum"], "only a gate has approvals", sink);
        }
        match kinds.get(id).and_then(|kind| unused_reason(dialect, kind, lowered.terms.words.step)) {
            Some(why) => warn_ignored(block, OF_WORKER, &why, sink),
            None => own.extend(block.get("workspace")),
        }
    }
    let known: BTreeSet<&str> = lowered.places.steps().map(|(id, _)| id.as_str()).collect();
    let blocks = whole.into_iter().chain(own.iter().copied());
    blocks.for_each(|block| check_conflict(block, &known, lowered.terms, sink));
    check_merges(whole, &own, sink);
}

/// Returns the reason why a step cannot use the fields of a worker, if it cannot.
fn unused_reason(dialect: Dialect, kind: &StepKindSpec, step: &str) -> Option<String> {
    match kind {
        StepKindSpec::Work(_) => None,
        // The block of a stage applies to each of its items.
        StepKindSpec::Each(_) if dialect == Dialect::Swdl => None,
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) => Some(format!("this {step} only waits")),
        StepKindSpec::Branch(_) => Some(format!("this {step} only chooses")),
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) => {
            Some(format!("the {step}s inside have their own"))
        }
        StepKindSpec::Call(_) => Some(format!("the {step}s of the other workflow have their own")),
    }
}

/// Returns the kind of every step of a workflow by its name.
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
        // The field may be meant for the steps that have a worktree.
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

/// Checks that the conflict resolver is a step of this workflow.
fn check_conflict(block: YamlNode<'_>, known: &BTreeSet<&str>, terms: &DialectTerms, sink: &mut DiagnosticSink) {
    let Some(node) = block.get("conflict") else { return };
    let Some(name) = node.raw_text().filter(|name| !name.is_empty() && !known.contains(*name)) else {
        return;
    };
    let hint = did_you_mean(name, known.iter().copied());
    let message = format!("there is no {} `{name}`", terms.words.step);
    sink.push(
        Diagnostic::new(Code::UnknownStep, node.source(), node.first_line_span(), message).with_optional_hint(hint),
    );
}

/// Warns of merge fields without effect: only changes in a worktree are merged, and only merges have conflicts.
fn warn_unused_merge(block: YamlNode<'_>, shared: bool, outer: Option<YamlNode<'_>>, sink: &mut DiagnosticSink) {
    let merge = block.get("merge").or(outer);
    let unmerged = merge.is_some_and(|merge| merge.raw_text() == Some("false"));
    let (names, why, hint): (&[&str], _, _) = match (shared, unmerged) {
        (true, _) => (
            &["merge", "conflict"],
            "the work is done in the shared workspace, and there is nothing to merge",
            "write `isolation: worktree` beside it, or leave it out",
        ),
        (false, true) => (&["conflict"], "`merge` is `false`", "remove it, or set `merge: true`"),
        (false, false) => return,
    };
    // Report one mistake once, even if several fields have no effect.
    if let Some(field) = names.iter().find_map(|name| block.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        let diagnostic = Diagnostic::new(Code::IgnoredField, block.source(), field.key_span, message);
        sink.push(diagnostic.with_hint(hint));
    }
}
