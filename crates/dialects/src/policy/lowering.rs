//! Lowers approvals: the rules of each step, its workflow, its tool, the action and the project, of which the strictest
//! counts.
//!
//! Owns the conversion of classes and policies to rules. A step without policies gets its approval here; the rules of
//! other steps are judged when a run is bound, for its principal and its time. Does not know how files are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    builder::ApprovalClass,
    expr::ExprSpan,
    ids::StepId,
    ir::rules::{
        ApprovalCondition, ApprovalRule, GovernancePolicy, NOT_JUDGED, PolicyDocument, PolicyOperation,
        PolicyPrincipal, StepRules, WorkflowRules,
    },
    ir::{Approver, ErrorClass, Step, StepKindSpec, StepPolicy, WorkSpec, WorkerCapability, WorkerSpec, Workflow},
};

use crate::{
    catalog::{self, ApprovalFloor, CatalogKind, NameUse, Project},
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    lowering::{ApprovalClaim, ApprovalClaims, ClaimOrigin, LoweredSource, StepApprovalClaims},
    policy,
    source::{Dialect, SourceMap, has_front_matter, yaml::YamlNode},
};

/// The maximum depth of `extends` between governance resources.
const DEPTH: usize = 8;

/// Sets the approvers of every step, or records the rules that decide. An undo never needs approval.
pub(crate) fn apply_policies(
    dialect: Dialect,
    lowered: &mut LoweredSource,
    project: &dyn Project,
    sink: &mut DiagnosticSink,
) {
    let floor = project.approval_floor();
    let governed = if dialect == Dialect::Ioa { project.governance_sources() } else { Vec::new() };
    if lowered.claims.is_empty() && floor.is_none() && governed.is_empty() {
        return;
    }
    let mut lowering = PolicyLowering {
        project,
        principal: project.current_principal(),
        rules: WorkflowRules::default(),
        unknown: BTreeSet::new(),
        missing: Vec::new(),
        nobody: BTreeSet::new(),
        unsupported: BTreeSet::new(),
        broken: Vec::new(),
        roles: project.catalog_names(CatalogKind::Role).into_iter().collect(),
        floor,
    };
    let domains = DomainGovernance::load(&lowered.workflow, governed, project, sink);
    let (claims, places) = (&lowered.claims, &lowered.places);
    lowered.workflow.for_each_step_mut(|step| lowering.lower_step(step, claims, &domains, places, sink));
    let rules = std::mem::take(&mut lowering.rules);
    if !rules.steps.is_empty() {
        lowered.workflow.rules = rules;
    }
    lowering.report_problems(places, sink);
}

/// The state of lowering the policies of one workflow.
struct PolicyLowering<'a> {
    project: &'a dyn Project,
    /// The principal for whom warnings are given. No ruling of a policy is lowered.
    principal: PolicyPrincipal,
    rules: WorkflowRules,
    /// Names of policies that do not exist or cannot be read.
    unknown: BTreeSet<String>,
    /// Policies that do not exist, with the origin and the step that name them.
    missing: Vec<(String, ClaimOrigin, StepId)>,
    roles: BTreeSet<String>,
    /// Empty roles that have been reported.
    nobody: BTreeSet<String>,
    /// Policies with parts that are not supported.
    unsupported: BTreeSet<String>,
    /// The errors in policies that are named.
    broken: Vec<Diagnostic>,
    floor: Option<ApprovalFloor>,
}

impl PolicyLowering<'_> {
    fn lower_step(
        &mut self,
        step: &mut Step,
        all: &ApprovalClaims,
        domains: &DomainGovernance,
        places: &SourceMap,
        sink: &mut DiagnosticSink,
    ) {
        let StepKindSpec::Work(work) = &step.kind else { return };
        let claimed = all.get(step.id.as_str());
        let mut claims = claimed.map(|claimed| claimed.claims.clone()).unwrap_or_default();
        let floor = self.floor.as_ref().map(|floor| floor.class.clone());
        claims.extend(floor.map(|class| ApprovalClaim { class, from: ClaimOrigin::Host }));
        let operation = lower_operation(work, claimed, self.project);
        let governance = domains.governance_for(work, self.project);
        let mut rules: Vec<ApprovalRule> = claims.into_iter().map(|claim| self.lower_claim(claim, &step.id)).collect();
        if let Some(governance) = governance {
            step.policy.escalation = governance.escalation_levels();
            if !governance.may_override() {
                step.policy.holds.remove(&ErrorClass::Governance);
            }
            let domain = governance.domain.clone();
            let from = format!("the domain `{domain}`");
            rules.push(ApprovalRule { condition: ApprovalCondition::Governance(domain.clone()), from });
            self.rules.governance.insert(domain, governance.clone());
        }
        self.apply_rules(step, StepRules { operation, rules }, places, sink);
    }

    /// Records the rules of a step, or applies the ruling if no policy is among them. A policy is judged for each run.
    fn apply_rules(&mut self, step: &mut Step, rules: StepRules, places: &SourceMap, sink: &mut DiagnosticSink) {
        let now = self.project.now();
        let Some(ruling) = self.rules.judge_step(&step.id, &rules, &self.principal, now) else { return };
        let mut ruled = StepPolicy::clone(&step.policy);
        ruling.apply_to(&mut ruled);
        self.warn_empty_roles(&step.id, &ruled, places, sink);
        if self.rules.has_policy_for(&rules) {
            step.policy.approval = None;
            step.policy.denied = Some(NOT_JUDGED.to_owned());
            self.rules.steps.insert(step.id.clone(), rules);
        } else {
            step.policy = ruled.into();
        }
    }

    fn lower_claim(&mut self, claim: ApprovalClaim, step: &StepId) -> ApprovalRule {
        if let ApprovalClass::Policy(name) = &claim.class {
            self.load_policy(name);
            if self.unknown.contains(name) {
                self.missing.push((name.clone(), claim.from.clone(), step.clone()));
            }
        }
        ApprovalRule { from: claim.from.describe().to_owned(), condition: claim.class.into() }
    }

    /// Adds a policy to the rules of the workflow, or to the unknown ones.
    fn load_policy(&mut self, name: &str) {
        if self.rules.policies.contains_key(name) || self.unknown.contains(name) {
            return;
        }
        match self.project.find_policy(name).and_then(|source| self.read_policy(name, source)) {
            Some(policy) => drop(self.rules.policies.insert(name.to_owned(), policy)),
            None => drop(self.unknown.insert(name.to_owned())),
        }
    }

    fn read_policy(&mut self, name: &str, source: Arc<SourceFile>) -> Option<PolicyDocument> {
        if !has_front_matter(&source) {
            let read = policy::read_governance(source).map_err(|errors| self.broken.extend(errors)).ok()?;
            return Some(PolicyDocument::Governance(resolve_extends(read, self.project)));
        }
        let mut sink = DiagnosticSink::new(source);
        let read = policy::read_supported_parts(&mut sink);
        self.broken.extend(sink.into_diagnostics().into_iter().filter(Diagnostic::is_error));
        let (policy, unsupported) = read?;
        if !unsupported.is_empty() {
            self.unsupported.insert(name.to_owned());
        }
        Some(policy)
    }

    /// Warns of approver roles without people.
    fn warn_empty_roles(&mut self, step: &StepId, policy: &StepPolicy, places: &SourceMap, sink: &mut DiagnosticSink) {
        let first = policy.approval.iter().flat_map(|approval| &approval.approvers);
        let levels = policy.escalation.iter().flat_map(|level| &level.approvers);
        for approver in first.chain(levels) {
            let Approver::Role(role) = approver else { continue };
            if !self.roles.contains(role) && self.nobody.insert(role.clone()) {
                let message = format!("nobody has the role `{role}`, which must approve this step");
                let (source, span) = claim_location(places, step, &ClaimOrigin::Step);
                let diagnostic = Diagnostic::new(Code::NobodyInRole, &source, span, message);
                sink.push(diagnostic.with_hint(format!("assign people to it: `{role} = [\"ada\"]` below `[roles]`")));
            }
        }
    }

    fn report_problems(self, places: &SourceMap, sink: &mut DiagnosticSink) {
        self.broken.into_iter().for_each(|diagnostic| sink.push(diagnostic));
        let mut seen = BTreeSet::new();
        let mut uses = Vec::new();
        for (name, from, step) in &self.missing {
            let (source, span) = match (from, &self.floor) {
                (ClaimOrigin::Host, Some(floor)) => (floor.source.clone(), floor.span),
                _ => claim_location(places, step, from),
            };
            if seen.insert((name, source.name.clone(), span.start)) {
                uses.push((name, source, span));
            }
        }
        let uses: Vec<NameUse<'_>> =
            uses.iter().map(|(name, source, span)| NameUse { name, source, span: *span }).collect();
        catalog::check_names(CatalogKind::Policy, uses, self.project, sink);
        for name in self.unsupported {
            let message = format!("the policy `{name}` has parts that are not supported");
            let hint = "run `skein validate` on its file to list them";
            let span = places.tree.root().first_line_span();
            let span = ExprSpan { end: span.start, ..span };
            sink.push(Diagnostic::new(Code::PolicyNotKept, &sink.source.clone(), span, message).with_hint(hint));
        }
    }
}

/// Returns the place of an approval class, or else the step itself.
fn claim_location(places: &SourceMap, step: &StepId, from: &ClaimOrigin) -> (Arc<SourceFile>, ExprSpan) {
    let node = places.step_node(step);
    let field =
        |node: YamlNode<'_>, name: &str| node.get(name).map(|node| (node.source().clone(), node.first_line_span()));
    let found = match from {
        ClaimOrigin::Workflow => field(places.tree.root(), "approval"),
        ClaimOrigin::Step => node.and_then(|node| field(node, "approval")),
        ClaimOrigin::Named(_) | ClaimOrigin::Host => {
            node.and_then(|node| field(node, "tool").or_else(|| field(node, "action")))
        }
    };
    let whole = || {
        let node = node.unwrap_or_else(|| places.tree.root());
        let name = node.get("name").or_else(|| node.get("id")).unwrap_or(node);
        (name.source().clone(), name.first_line_span())
    };
    found.unwrap_or_else(whole)
}

/// Returns the operation of a step, as policies see it.
fn lower_operation(work: &WorkSpec, claimed: Option<&StepApprovalClaims>, project: &dyn Project) -> PolicyOperation {
    let tool = claimed.and_then(|claimed| claimed.tool.as_deref());
    let mutates = tool.map(|tool| tool.mutates.clone()).unwrap_or_default();
    let tool_changes = tool.is_none() || !mutates.is_empty();
    let (class, action, subject, changes) = match &work.worker {
        WorkerSpec::Tool { tool: id, .. } => {
            let action = tool.and_then(|tool| tool.implements.as_deref());
            ("tool.call", action, id.as_str(), tool_changes)
        }
        WorkerSpec::Action { action, .. } => ("tool.call", Some(action.as_str()), action.as_str(), tool_changes),
        WorkerSpec::Agent { name, program, capabilities, .. } => {
            let subject = name.as_deref().or(program.as_deref()).unwrap_or_default();
            let changes = match capabilities.is_empty() {
                true => can_write(&project.agent_profile(subject).0),
                false => can_write(capabilities),
            };
            ("agent.run", None, subject, changes)
        }
        WorkerSpec::Command { program, .. } => ("command.run", None, program.as_str(), true),
        WorkerSpec::Script { capabilities, .. } => ("command.run", None, "script", can_write(capabilities)),
    };
    let step_risk = claimed.and_then(|claimed| claimed.risk);
    let tool_risk = tool.and_then(|tool| tool.risk_level).map(|level| level as u8);
    let action = action.map(|action| action.rsplit('/').next().unwrap_or(action));
    let action = action.map(|action| action.split('@').next().unwrap_or(action));
    PolicyOperation {
        class: class.to_owned(),
        action: action.map(str::to_owned),
        subject: subject.to_owned(),
        mutates,
        changes,
        risk: step_risk.max(tool_risk).unwrap_or(u8::from(changes)),
    }
}

/// True if these capabilities allow changes. No capabilities mean reading and editing.
fn can_write(capabilities: &[WorkerCapability]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|one| *one != WorkerCapability::Read)
}

/// The governance of the domains of a workflow.
struct DomainGovernance {
    by_domain: BTreeMap<String, GovernancePolicy>,
    /// The domains of the workflow, in its order.
    own: Vec<String>,
}

impl DomainGovernance {
    fn load(
        workflow: &Workflow,
        files: Vec<Arc<SourceFile>>,
        project: &dyn Project,
        sink: &mut DiagnosticSink,
    ) -> DomainGovernance {
        let resource = workflow.extensions.resource.as_ref();
        let own = resource.map(|resource| resource.domains.clone()).unwrap_or_default();
        let mut by_domain = BTreeMap::new();
        for source in files {
            match policy::read_governance(source) {
                Ok(governance) => {
                    let governance = resolve_extends(governance, project);
                    by_domain.entry(governance.domain.clone()).or_insert(governance);
                }
                Err(wrong) => wrong.into_iter().for_each(|diagnostic| sink.push(diagnostic)),
            }
        }
        DomainGovernance { by_domain, own }
    }

    /// Returns the governance of the agent's domain, or of the first domain of the workflow that has one.
    fn governance_for(&self, work: &WorkSpec, project: &dyn Project) -> Option<&GovernancePolicy> {
        if self.by_domain.is_empty() {
            return None;
        }
        let agent = match &work.worker {
            WorkerSpec::Agent { name: Some(name), .. } => project.agent_profile(name).1,
            _ => None,
        };
        let mut domains = agent.iter().chain(&self.own);
        domains.find_map(|domain| self.by_domain.get(domain))
    }
}

/// Fills in the fields of a governance from those that it extends.
fn resolve_extends(mut governance: GovernancePolicy, project: &dyn Project) -> GovernancePolicy {
    for _ in 0..DEPTH {
        let Some(parent) = governance.extends.take() else { break };
        let parent = project.find_policy(&parent).and_then(|source| policy::read_governance(source).ok());
        let Some(parent) = parent else { break };
        governance = governance.inherit_from(parent);
    }
    governance
}
