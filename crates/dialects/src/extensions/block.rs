//! `x-skein`: Skein's extensions to every format. A closed block; a step's value takes precedence over the workflow's.
//!
//! Owns the fields, their checks and their lowering. Values that only the host needs become the step's
//! extensions.

use std::collections::BTreeSet;

use skein_core::{
    ids::StepId,
    ir::{
        Budget, BudgetMode, EachErrorPolicy, ErrorClass, Evidence, HoldReason, IsolationSpec, OnInterrupted, OnRetry,
        SkeinExtensions, Step, StepKindSpec,
    },
    limits,
    secret_name::to_variable_name,
    time::Millis,
};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{DurationUnits, FieldReader, FieldTable, FieldValue, workspace_path::check_path},
};

/// The fields of every block.
const BLOCK_FIELDS: &[&str] = &[
    "budget", "quota", "workspace", "on_interrupted", "network", "idle_timeout", "start_timeout", "protect",
    "unprotect", "agents", "test_commands",
];

/// The fields that only the block of a step has.
pub(crate) const STEP_ONLY_FIELDS: &[&str] = &["secrets", "evidence", "cache"];

/// The block of a workflow. Formats add `allow_cycles` or `compensate_failed_step`, and fields that they read themselves.
pub(crate) const WORKFLOW_BLOCK_FIELDS: FieldTable = FieldTable::closed(BLOCK_FIELDS);

/// The block of a step. Formats add `gate`, `quorum` or `on_error`, and fields that they read themselves.
pub(crate) const STEP_BLOCK_FIELDS: FieldTable = FieldTable::closed(BLOCK_FIELDS).with_more(&[STEP_ONLY_FIELDS]);

/// A block as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExtensionBlock {
    pub budget: Option<Budget>,
    pub quota_waits: Option<bool>,
    pub worktree: Option<bool>,
    /// The step that resolves merge conflicts. At a workflow: those of the steps directly before it.
    pub conflict: Option<String>,
    pub on_interrupted: Option<OnInterrupted>,
    pub no_network: Option<bool>,
    pub secrets: Vec<String>,
    pub idle_timeout: Option<Millis>,
    pub start_timeout: Option<Millis>,
    pub protect: Option<Vec<String>>,
    /// Protected files that a step may still change.
    pub unprotect: Option<Vec<String>>,
    pub on_error: Option<EachErrorPolicy>,
    pub allow_cycles: bool,
    pub gate: Option<bool>,
    pub compensate_failed_step: bool,
    pub evidence: Vec<Evidence>,
    /// The number of different people who must approve at a gate.
    pub quorum: Option<u32>,
    /// Values for the host: `agents`, `test_commands`, the rest of `workspace`.
    pub host: SkeinExtensions,
}

/// The block of a step. Few steps have one.
#[derive(Debug, Default)]
pub(crate) struct StepExtensionBlock(Option<Box<ExtensionBlock>>);

impl StepExtensionBlock {
    pub(crate) fn read(
        given: Option<FieldValue<'_>>,
        table: FieldTable,
        sink: &mut DiagnosticSink,
    ) -> StepExtensionBlock {
        StepExtensionBlock(given.map(|given| Box::new(ExtensionBlock::read(given, table, sink))))
    }

    pub(crate) fn gate(&self) -> Option<bool> {
        self.0.as_ref()?.gate
    }

    /// Merges the step's own block with the workflow's. The step's values take precedence.
    pub(crate) fn inherit_from(&self, workflow: &ExtensionBlock) -> ExtensionBlock {
        self.0.as_deref().cloned().unwrap_or_default().inherit_from(workflow)
    }

    /// Applies the merged block to a step.
    pub(crate) fn apply_to_step(&self, workflow: &ExtensionBlock, step: &mut Step) {
        if self.0.is_some() || *workflow != ExtensionBlock::default() {
            self.inherit_from(workflow).apply_to_step(step);
        }
    }
}

const ON_INTERRUPTED: &[(&str, OnInterrupted)] = &[
    ("rerun", OnInterrupted::Rerun),
    ("resume", OnInterrupted::Resume),
    ("restore", OnInterrupted::Restore),
    ("ask", OnInterrupted::Ask),
    ("fail", OnInterrupted::Fail),
];
const ON_RETRY: &[(&str, OnRetry)] =
    &[("keep", OnRetry::Keep), ("reset", OnRetry::Reset), ("keep_and_tell", OnRetry::KeepAndTell)];
const ON_ERROR: &[(&str, EachErrorPolicy)] = &[
    ("fail_fast", EachErrorPolicy::FailFast),
    ("finish", EachErrorPolicy::Finish),
    ("collect", EachErrorPolicy::Collect),
];
const MODES: &[(&str, BudgetMode)] =
    &[("warn", BudgetMode::Warn), ("pause", BudgetMode::Pause), ("stop", BudgetMode::Stop)];

const WORKSPACE_FIELDS: &[&str] = &["isolation", "on_retry", "merge", "conflict"];

impl ExtensionBlock {
    /// Reads a block. Invalid parts are reported and left out.
    pub(crate) fn read(given: FieldValue<'_>, table: FieldTable, sink: &mut DiagnosticSink) -> ExtensionBlock {
        let mut block = ExtensionBlock::default();
        // AIP-15 has its own place for extensions.
        let what = if given.name == "skein" { "`metadata.skein`" } else { "an `x-skein` block" };
        let Some(fields) = FieldReader::from_node(given.node, what, table, sink) else { return block };
        block.read_common(&fields, sink);
        if fields.allows("secrets") {
            block.read_step_fields(&fields, sink);
        }
        block.read_format_fields(&fields, sink);
        fields.finish(sink);
        block
    }

    fn read_common(&mut self, fields: &FieldReader<'_>, sink: &mut DiagnosticSink) {
        self.budget = fields.optional("budget").and_then(|given| read_budget(given, sink));
        self.quota_waits = fields
            .optional("quota")
            .and_then(|given| given.read_one_of(&[("wait", true), ("fail", false)], sink))
            .map(|waits| waits.value);
        if let Some(given) = fields.optional("workspace") {
            self.read_workspace(given, sink);
        }
        let on_interrupted = fields.optional("on_interrupted");
        self.on_interrupted =
            on_interrupted.and_then(|given| given.read_one_of(ON_INTERRUPTED, sink)).map(|word| word.value);
        self.no_network = fields
            .optional("network")
            .and_then(|given| given.read_one_of(&[("on", false), ("none", true)], sink))
            .map(|word| word.value);
        let length = |given: FieldValue<'_>, sink: &mut DiagnosticSink| {
            given.read_duration(DurationUnits::All, sink).map(|d| d.value)
        };
        self.idle_timeout = fields.optional("idle_timeout").and_then(|given| length(given, sink));
        self.start_timeout = fields.optional("start_timeout").and_then(|given| length(given, sink));
        self.protect = fields.optional("protect").map(|given| read_texts(given, sink));
        self.unprotect = fields.optional("unprotect").map(|given| read_texts(given, sink));
        if let Some(given) = fields.optional("agents") {
            self.host.agents = Some(read_texts(given, sink));
        }
        if let Some(given) = fields.optional("test_commands") {
            self.host.test_commands = Some(read_commands(given, sink));
        }
    }

    fn read_step_fields(&mut self, fields: &FieldReader<'_>, sink: &mut DiagnosticSink) {
        let secrets = fields.optional("secrets").map(|given| read_texts(given, sink)).unwrap_or_default();
        // Environment variables have no dashes, so this is the slug of the secret.
        let named = |name: String| if name.contains('-') { to_variable_name(&name) } else { name };
        self.secrets = secrets.into_iter().map(named).collect();
        if let Some(given) = fields.optional("evidence") {
            self.evidence = read_evidence(given, sink);
        }
        if let Some(given) = fields.optional("cache") {
            // It would have no effect, and the author must know that.
            let message = "`cache` is not supported yet: results of identical steps are not reused";
            let diagnostic =
                Diagnostic::new(Code::UnknownField, given.node.source(), given.node.first_line_span(), message);
            sink.push(diagnostic.with_hint("remove it; `skein fork` starts from the results of an earlier run"));
        }
    }

    /// Reads the fields that only some formats have.
    fn read_format_fields(&mut self, fields: &FieldReader<'_>, sink: &mut DiagnosticSink) {
        let find = |name| if fields.allows(name) { fields.optional(name) } else { None };
        let flag = |name, sink: &mut _| Some(find(name)?.read_bool(sink)?.value);
        self.allow_cycles = flag("allow_cycles", sink).unwrap_or_default();
        self.gate = flag("gate", sink);
        self.compensate_failed_step = flag("compensate_failed_step", sink).unwrap_or_default();
        let quorum = find("quorum").and_then(|given| given.read_whole_number(1..=limits::QUORUM, sink));
        self.quorum = quorum.map(|quorum| quorum.value);
        self.on_error = find("on_error").and_then(|given| given.read_one_of(ON_ERROR, sink)).map(|word| word.value);
    }

    fn read_workspace(&mut self, given: FieldValue<'_>, sink: &mut DiagnosticSink) {
        let Some(fields) = FieldReader::from_node(given.node, "`workspace`", WORKSPACE_FIELDS, sink) else {
            return;
        };
        let isolation = fields.optional("isolation");
        self.worktree = isolation
            .and_then(|given| given.read_one_of(&[("shared", false), ("worktree", true)], sink))
            .map(|word| word.value);
        let on_retry = fields.optional("on_retry").and_then(|given| given.read_one_of(ON_RETRY, sink));
        self.host.on_retry = on_retry.map(|word| word.value);
        let merge = fields.optional("merge").and_then(|given| given.read_bool(sink));
        self.host.merge = merge.map(|flag| flag.value);
        if let Some(step) = fields.optional("conflict").and_then(|given| given.read_non_empty_text(sink)) {
            self.conflict = Some(step.value.to_owned());
        }
        fields.finish(sink);
    }

    /// Merges a step's own block with the workflow's. The step's values take precedence.
    #[must_use]
    pub(crate) fn inherit_from(mut self, workflow: &ExtensionBlock) -> ExtensionBlock {
        // A budget of the workflow is for the whole run, not for each step.
        self.quota_waits = self.quota_waits.or(workflow.quota_waits);
        self.worktree = self.worktree.or(workflow.worktree);
        self.on_interrupted = self.on_interrupted.or(workflow.on_interrupted);
        self.no_network = self.no_network.or(workflow.no_network);
        self.idle_timeout = self.idle_timeout.or(workflow.idle_timeout);
        self.start_timeout = self.start_timeout.or(workflow.start_timeout);
        self.add_protected(workflow);
        self.unprotect = self.unprotect.or_else(|| workflow.unprotect.clone());
        let (host, outer) = (&mut self.host, &workflow.host);
        host.agents = host.agents.take().or_else(|| outer.agents.clone());
        host.test_commands = host.test_commands.take().or_else(|| outer.test_commands.clone());
        host.merge = host.merge.or(outer.merge);
        host.on_retry = host.on_retry.or(outer.on_retry);
        self
    }

    /// Adds the workflow's protected files to those of the step. Only `unprotect` removes any.
    fn add_protected(&mut self, workflow: &ExtensionBlock) {
        let Some(outer) = &workflow.protect else { return };
        let own = self.protect.get_or_insert_default();
        own.extend(outer.iter().filter(|pattern| !own.contains(pattern)).cloned().collect::<Vec<_>>());
    }

    /// Returns the fields that allow more than `before` does, which overrides may not do.
    pub(crate) fn widened_fields(&self, before: &ExtensionBlock) -> Vec<&'static str> {
        // For programs, fewer entries are stricter, except that an empty list allows any. For evidence and protected
        // files, more entries are stricter.
        let agents = |block: &ExtensionBlock| block.host.agents.clone().unwrap_or_default();
        let (agents_now, agents_before) = (agents(self), agents(before));
        let adds_agents =
            !agents_before.is_empty() && (agents_now.is_empty() || !is_subset(&agents_now, &agents_before));
        let commands = |block: &ExtensionBlock| block.host.test_commands.clone().unwrap_or_default();
        let protected = |block: &ExtensionBlock| block.protect.clone().unwrap_or_default();
        let opened = |block: &ExtensionBlock| block.unprotect.clone().unwrap_or_default();
        let looser = [
            ("budget", spends_more(self.budget.as_ref(), before.budget.as_ref())),
            ("network", before.no_network == Some(true) && self.no_network != Some(true)),
            ("workspace", before.worktree == Some(true) && self.worktree != Some(true)),
            ("secrets", !is_subset(&self.secrets, &before.secrets)),
            ("protect", !is_subset(&protected(before), &protected(self))),
            ("unprotect", !is_subset(&opened(self), &opened(before))),
            ("agents", adds_agents),
            ("test_commands", !is_subset(&commands(self), &commands(before))),
            ("quorum", self.quorum.unwrap_or(1) < before.quorum.unwrap_or(1)),
            ("evidence", before.evidence.iter().any(|proof| !self.evidence.contains(proof))),
        ];
        looser.into_iter().filter(|(_, looser)| *looser).map(|(name, _)| name).collect()
    }

    /// Applies the block to a step of the IR.
    pub(crate) fn apply_to_step(self, step: &mut Step) {
        let policy = &mut step.policy;
        policy.budget = self.budget.or(policy.budget.take());
        policy.on_interrupted = self.on_interrupted.unwrap_or(policy.on_interrupted);
        policy.idle_timeout = self.idle_timeout.or(policy.idle_timeout);
        policy.start_timeout = self.start_timeout.or(policy.start_timeout);
        if self.quota_waits == Some(true) {
            policy.holds.insert(ErrorClass::RateLimit, HoldReason::Quota);
        }
        match &mut step.kind {
            StepKindSpec::Work(work) => {
                let mut isolation = IsolationSpec::clone(&work.isolation);
                isolation.worktree = self.worktree.unwrap_or(isolation.worktree);
                if isolation.worktree && !self.host.never_merges() {
                    policy.settled_by = self.conflict.and_then(|step| StepId::new(step).ok());
                }
                isolation.no_network = self.no_network.unwrap_or(isolation.no_network);
                isolation.secrets = self.secrets;
                isolation.protect = self.protect.unwrap_or_default();
                isolation.unprotect = self.unprotect.unwrap_or_default();
                work.isolation = isolation.into();
                work.evidence = self.evidence;
            }
            StepKindSpec::Each(each) => each.errors = self.on_error.unwrap_or(each.errors),
            StepKindSpec::Gate(gate) => gate.quorum = self.quorum.unwrap_or(gate.quorum),
            _ => {}
        }
        if self.host != SkeinExtensions::default() && matches!(step.kind, StepKindSpec::Work(_)) {
            step.extensions.skein = self.host;
        }
    }
}

fn is_subset<T: Ord>(some: &[T], all: &[T]) -> bool {
    let all: BTreeSet<&T> = all.iter().collect();
    some.iter().all(|one| all.contains(one))
}

/// True if a budget allows more than another; no budget allows everything.
fn spends_more(now: Option<&Budget>, then: Option<&Budget>) -> bool {
    let strictness = |mode: BudgetMode| MODES.iter().position(|(_, known)| *known == mode);
    let more = |now: Option<u64>, then: Option<u64>| then.is_some_and(|then| now.is_none_or(|now| now > then));
    match (now, then) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(now), Some(then)) => {
            more(now.micro_usd, then.micro_usd)
                || more(now.tokens, then.tokens)
                || strictness(now.mode) < strictness(then.mode)
        }
    }
}

const BUDGET_FIELDS: &[&str] = &["usd", "tokens", "mode"];

fn read_budget(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Budget> {
    let mut fields = FieldReader::from_node(given.node, "a budget", BUDGET_FIELDS, sink)?;
    let usd = fields.optional("usd").and_then(|given| read_usd(given, sink));
    let tokens = fields.optional("tokens").and_then(|given| given.read_whole_number(1..=u32::MAX, sink));
    let mode = fields.required("mode", sink).and_then(|given| given.read_one_of(MODES, sink));
    let named = fields.field("usd").is_some() || fields.field("tokens").is_some();
    fields.finish(sink);
    if !named {
        let message = "a budget needs `usd`, `tokens` or both";
        sink.push(Diagnostic::new(Code::MissingField, given.node.source(), given.node.first_line_span(), message));
    }
    Some(Budget { micro_usd: usd, tokens: tokens.map(|n| u64::from(n.value)), mode: mode?.value })
}

/// Reads an amount of dollars, in millionths.
fn read_usd(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<u64> {
    const MOST: f64 = 1_000_000.0;
    let usd = given.read_number(sink)?.value;
    if usd <= 0.0 || usd > MOST {
        let message = format!("`usd` is more than 0 and at most {MOST}, not {usd}");
        sink.push(Diagnostic::new(Code::BadNumber, given.node.source(), given.node.first_line_span(), message));
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    Some((usd * 1_000_000.0).round() as u64)
}

fn read_texts(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let items = given.read_list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| item.read_non_empty_text(sink)).map(|text| text.value.to_owned()).collect()
}

/// Reads programs with their arguments.
fn read_commands(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<Vec<String>> {
    given.read_list(sink).unwrap_or_default().into_iter().map(|command| read_arguments(command, sink)).collect()
}

fn read_arguments(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    let arguments = read_texts(given, sink);
    if given.node.items().is_some_and(|mut items| items.next().is_none()) {
        let message = "this command is empty: it needs a program and its arguments";
        sink.push(Diagnostic::new(Code::NoValue, given.node.source(), given.node.first_line_span(), message));
    }
    arguments
}

fn read_evidence(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<Evidence> {
    let proofs = given.read_list(sink).unwrap_or_default();
    if proofs.len() > limits::EVIDENCE {
        let message = format!("a step has at most {} pieces of evidence, not {}", limits::EVIDENCE, proofs.len());
        sink.push(Diagnostic::new(Code::BadNumber, given.node.source(), given.node.first_line_span(), message));
    }
    proofs.into_iter().filter_map(|proof| read_proof(proof, sink)).collect()
}

const PROOF_FIELDS: &[&str] = &["command", "file", "changed", "schema", "of"];

fn read_proof(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Evidence> {
    let fields = FieldReader::from_node(given.node, "a proof", PROOF_FIELDS, sink)?;
    let command = fields.optional("command").map(|given| Evidence::Command(read_arguments(given, sink)));
    let mut path = |name: &'static str| -> Option<String> {
        let given = fields.optional(name)?;
        let path = given.read_text(sink)?.value;
        check_path(given, path, sink);
        Some(path.to_owned())
    };
    let [file, changed, schema, of] = ["file", "changed", "schema", "of"].map(&mut path);
    let sorts = ["command", "file", "changed", "schema"];
    let named = sorts.iter().filter(|name| fields.field(name).is_some()).count();
    let whole = fields.field("schema").is_some() == fields.field("of").is_some();
    fields.finish(sink);
    if named != 1 || !whole {
        let message = "a proof is one of `command`, `file`, `changed`, or `schema` with `of`";
        sink.push(Diagnostic::new(Code::FieldsClash, given.node.source(), given.node.first_line_span(), message));
    }
    let schema = schema.zip(of).map(|(path, of)| Evidence::Schema { path, of });
    command.or(file.map(Evidence::File)).or(changed.map(Evidence::Changed)).or(schema)
}
