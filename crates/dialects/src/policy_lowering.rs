//! Lowers approvals: the approvers of each step, and whether it may start at all. The strictest of the step, its
//! workflow, its tool, the action and the project counts.
//!
//! Owns the conversion of classes and policies to the policy of a step. Does not evaluate policies itself, and does not
//! know how files are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    builder::ApprovalClass,
    expr::ExprSpan,
    ids::StepId,
    ir::{
        ApprovalHold, ApprovalRuling, Approver, ErrorClass, Step, StepKindSpec, StepScope, WorkSpec,
        WorkerCapability, WorkerSpec, Workflow,
    },
};

use crate::{
    aip15::{Aip15Tool, approval_strictness},
    catalog::{self, NameUse},
    code::Code,
    detect::{Dialect, has_front_matter},
    diagnostic::{Diagnostic, DiagnosticSink},
    lowering::LoweredSource,
    policy::{
        self, IoaGovernance, PolicyDecision, PolicyDocument, PolicyFinding, PolicyPrincipal, PolicyRequest,
        combine_findings,
    },
    project::{ApprovalFloor, CatalogKind, Project},
    source::SourceFile,
    source_map::SourceMap,
    yaml::YamlNode,
};

/// The approval classes of steps, by name.
pub(crate) type ApprovalClaims = BTreeMap<String, StepApprovalClaims>;

/// The maximum depth of `extends` between governance resources.
const DEPTH: usize = 8;

/// The approval classes of one step.
#[derive(Debug, Clone)]
pub(crate) struct StepApprovalClaims {
    pub claims: Vec<ApprovalClaim>,
    /// The tool of the step, if it has a description.
    pub tool: Option<Arc<Aip15Tool>>,
    pub risk: Option<u8>,
}

/// A class of approval and its origin.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalClaim {
    pub class: ApprovalClass,
    pub from: ClaimOrigin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimOrigin {
    Step,
    Workflow,
    /// A named origin, such as a tool.
    Named(String),
    Host,
}

impl ClaimOrigin {
    fn describe(&self) -> &str {
        match self {
            ClaimOrigin::Step => "the step",
            ClaimOrigin::Workflow => "the workflow",
            ClaimOrigin::Named(name) => name,
            ClaimOrigin::Host => "skein.toml",
        }
    }
}

/// Sets the approvers of every step, or denies its start. An undo never needs approval.
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
    let mut govern = PolicyLowering {
        project,
        person: project.current_principal(),
        policies: BTreeMap::new(),
        missing: Vec::new(),
        nobody: BTreeSet::new(),
        unkept: BTreeSet::new(),
        broken: Vec::new(),
        roles: project.catalog_names(CatalogKind::Role).into_iter().collect(),
        floor,
    };
    let domains = DomainGovernance::load(&lowered.workflow, governed, project, sink);
    let (claims, places) = (&lowered.claims, &lowered.places);
    for_each_step(&mut lowered.workflow, |step| govern.lower_step(step, claims, &domains, places, sink));
    govern.report_problems(places, sink);
}

/// The state of lowering the policies of one workflow.
struct PolicyLowering<'a> {
    project: &'a dyn Project,
    person: PolicyPrincipal,
    /// The policies so far. None if one does not exist or cannot be read.
    policies: BTreeMap<String, Option<Arc<PolicyDocument>>>,
    /// Policies that do not exist, with the origin and the step that name them.
    missing: Vec<(String, ClaimOrigin, StepId)>,
    roles: BTreeSet<String>,
    /// Empty roles that have been reported.
    nobody: BTreeSet<String>,
    unkept: BTreeSet<String>,
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
        let governance = domains.governance_for(work, self.project);
        let worker = PolicySubject::from_work(work, claimed, self.project);
        let mut rulings = Vec::new();
        for claim in claims {
            let finding = self.judge_claim(&claim, &worker, &step.id);
            let missing = match &claim.class {
                ApprovalClass::Policy(name) if self.is_missing(name) => Some(name.clone()),
                _ => None,
            };
            rulings.push((claim, finding, missing));
        }
        if let Some(governance) = governance {
            step.policy.escalation = governance.escalation_levels();
            if !governance.may_override() {
                step.policy.holds.remove(&ErrorClass::Governance);
            }
            let finding = PolicyDocument::Governance(governance.clone())
                .judge(&worker.to_request(&self.person, self.project));
            let from = ClaimOrigin::Named(format!("the domain `{}`", governance.domain));
            rulings.push((
                ApprovalClaim { class: ApprovalClass::Policy(governance.name.clone()), from },
                finding,
                None,
            ));
        }
        self.apply_rulings(step, rulings);
        self.warn_empty_roles(step, places, sink);
    }

    /// Applies the findings to the step.
    fn apply_rulings(
        &mut self,
        step: &mut Step,
        rulings: Vec<(ApprovalClaim, PolicyFinding, Option<String>)>,
    ) {
        let missing = rulings.iter().find_map(|(.., missing)| missing.clone());
        // Among equally strict findings, the one with the stricter class is reported.
        let told = rulings.iter().max_by_key(|(claim, finding, _)| {
            (finding.decision.strictness(), approval_strictness(&claim.class))
        });
        let Some((claim, ..)) = told else { return };
        let (class, from) = (claim.class.word(), claim.from.describe().to_owned());
        let quiet = matches!(claim.class, ApprovalClass::Auto | ApprovalClass::PerStep);
        let findings = rulings.into_iter().map(|(_, finding, _)| finding);
        let Some(PolicyFinding { decision, why }) = findings.reduce(combine_findings) else { return };
        let policy = &mut step.policy;
        policy.approval = None;
        let hold = |approvers: Vec<Approver>, quorum, escalates| {
            Some(ApprovalHold { approvers, quorum, message: why.clone(), escalates })
        };
        match decision {
            PolicyDecision::Allow => {}
            PolicyDecision::Ask { approvers, quorum } => policy.approval = hold(approvers, quorum, false),
            PolicyDecision::Escalate { levels, quorum } => {
                policy.approval = hold(Vec::new(), quorum, true);
                policy.escalation = levels;
            }
            PolicyDecision::Deny => {
                policy.denied = Some(why.clone());
                // No approval can override the denial, unless an escalation names approvers.
                if policy.escalation.is_empty() {
                    policy.holds.remove(&ErrorClass::Governance);
                }
            }
        }
        policy.ruling = (!quiet).then_some(ApprovalRuling { class, from, why, missing });
    }

    /// Evaluates one claim.
    fn judge_claim(
        &mut self,
        claim: &ApprovalClaim,
        worker: &PolicySubject<'_>,
        step: &StepId,
    ) -> PolicyFinding {
        let anyone = || PolicyDecision::Ask { approvers: Vec::new(), quorum: 1 };
        match &claim.class {
            ApprovalClass::Auto | ApprovalClass::PerStep => {
                PolicyFinding::new(PolicyDecision::Allow, "nobody is asked")
            }
            ApprovalClass::OnMutate if !worker.changes => {
                PolicyFinding::new(PolicyDecision::Allow, "it changes nothing")
            }
            ApprovalClass::OnMutate => match worker.mutates {
                [] => PolicyFinding::new(anyone(), "it may change something"),
                all => PolicyFinding::new(anyone(), format!("it changes {}", all.join(", "))),
            },
            ApprovalClass::Always => PolicyFinding::new(anyone(), "somebody is asked every time"),
            ApprovalClass::Policy(name) => match self.load_policy(name) {
                Some(policy) => policy.judge(&worker.to_request(&self.person, self.project)),
                None => {
                    self.missing.push((name.clone(), claim.from.clone(), step.clone()));
                    PolicyFinding::new(anyone(), format!("there is no policy `{name}`"))
                }
            },
        }
    }

    fn is_missing(&self, name: &str) -> bool {
        matches!(self.policies.get(name), Some(None))
    }

    fn load_policy(&mut self, name: &str) -> Option<Arc<PolicyDocument>> {
        let (project, broken) = (self.project, &mut self.broken);
        let found = self.policies.entry(name.to_owned()).or_insert_with(|| {
            let source = project.find_policy(name)?;
            if !has_front_matter(&source) {
                let read = policy::read_governance(source).map_err(|wrong| broken.extend(wrong)).ok()?;
                return Some(Arc::new(PolicyDocument::Governance(resolve_extends(read, project))));
            }
            let (read, said) = policy::read_policy(source);
            broken.extend(said.into_iter().filter(Diagnostic::is_error));
            read.map(Arc::new)
        });
        let found = found.clone();
        if found.as_ref().is_some_and(|policy| !policy.unsupported_parts().is_empty()) {
            self.unkept.insert(name.to_owned());
        }
        found
    }

    /// Warns of approver roles without people.
    fn warn_empty_roles(&mut self, step: &Step, places: &SourceMap, sink: &mut DiagnosticSink) {
        let first = step.policy.approval.iter().flat_map(|approval| &approval.approvers);
        let levels = step.policy.escalation.iter().flat_map(|level| &level.approvers);
        for approver in first.chain(levels) {
            let Approver::Role(role) = approver else { continue };
            if !self.roles.contains(role) && self.nobody.insert(role.clone()) {
                let message = format!("nobody has the role `{role}`, which must approve this step");
                let (source, span) = claim_location(places, &step.id, &ClaimOrigin::Step);
                let diagnostic = Diagnostic::new(Code::NobodyInRole, &source, span, message);
                sink.push(
                    diagnostic
                        .with_hint(format!("assign people to it: `{role} = [\"ada\"]` below `[roles]`")),
                );
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
        for name in self.unkept {
            let message = format!("the policy `{name}` has parts that are not supported");
            let hint = "run `skein validate` on its file to list them";
            let span = places.tree.root().first_line_span();
            let span = ExprSpan { end: span.start, ..span };
            sink.push(
                Diagnostic::new(Code::PolicyNotKept, &sink.source.clone(), span, message).with_hint(hint),
            );
        }
    }
}

/// Returns the place of an approval class, or else the step itself.
fn claim_location(places: &SourceMap, step: &StepId, from: &ClaimOrigin) -> (Arc<SourceFile>, ExprSpan) {
    let node = places.step_node(step);
    let field = |node: YamlNode<'_>, name: &str| {
        node.get(name).map(|node| (node.source().clone(), node.first_line_span()))
    };
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

/// The worker of a step, as the subject of a policy request.
struct PolicySubject<'a> {
    class: &'static str,
    action: Option<&'a str>,
    subject: &'a str,
    mutates: &'a [String],
    changes: bool,
    risk: u8,
}

impl<'a> PolicySubject<'a> {
    fn from_work(
        work: &'a WorkSpec,
        claimed: Option<&'a StepApprovalClaims>,
        project: &dyn Project,
    ) -> PolicySubject<'a> {
        let tool = claimed.and_then(|claimed| claimed.tool.as_deref());
        let mutates = tool.map(|tool| &tool.mutates[..]).unwrap_or_default();
        let (class, action, subject, changes) = match &work.worker {
            WorkerSpec::Tool { tool: id, .. } => {
                let action = tool.and_then(|tool| tool.implements.as_deref());
                ("tool.call", action, id.as_str(), tool.is_none() || !mutates.is_empty())
            }
            WorkerSpec::Action { action, .. } => {
                ("tool.call", Some(action.as_str()), action.as_str(), tool.is_none() || !mutates.is_empty())
            }
            WorkerSpec::Agent { name, program, capabilities, .. } => {
                let subject = name.as_deref().or(program.as_deref()).unwrap_or_default();
                let own = if capabilities.is_empty() {
                    project.agent_profile(subject).0
                } else {
                    capabilities.clone()
                };
                ("agent.run", None, subject, can_write(&own))
            }
            WorkerSpec::Command { program, .. } => ("command.run", None, program.as_str(), true),
            WorkerSpec::Script { capabilities, .. } => {
                ("command.run", None, "script", can_write(capabilities))
            }
        };
        let said = claimed.and_then(|claimed| claimed.risk);
        let of_tool = tool.and_then(|tool| tool.risk_level).map(|level| level as u8);
        let risk = said.max(of_tool).unwrap_or(u8::from(changes));
        let action = action.map(|action| action.rsplit('/').next().unwrap_or(action));
        let action = action.map(|action| action.split('@').next().unwrap_or(action));
        PolicySubject { class, action, subject, mutates, changes, risk }
    }

    fn to_request<'r>(&'r self, who: &'r PolicyPrincipal, project: &dyn Project) -> PolicyRequest<'r> {
        let PolicySubject { class, action, subject, mutates, changes, risk } = *self;
        PolicyRequest { who, now: project.now(), class, action, subject, mutates, changes, risk }
    }
}

/// True if these capabilities allow changes. No capabilities mean reading and editing.
fn can_write(capabilities: &[WorkerCapability]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|one| *one != WorkerCapability::Read)
}

/// The governance of the domains of a workflow.
struct DomainGovernance {
    by_domain: BTreeMap<String, IoaGovernance>,
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
        let own = workflow.labels.get("domainsInvolved").and_then(|list| list.as_array());
        let own = own.into_iter().flatten().filter_map(|domain| domain.as_str()).map(str::to_owned).collect();
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
    fn governance_for(&self, work: &WorkSpec, project: &dyn Project) -> Option<&IoaGovernance> {
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
fn resolve_extends(mut governance: IoaGovernance, project: &dyn Project) -> IoaGovernance {
    for _ in 0..DEPTH {
        let Some(parent) = governance.extends.take() else { break };
        let parent = project.find_policy(&parent).and_then(|source| policy::read_governance(source).ok());
        let Some(parent) = parent else { break };
        governance = governance.inherit_from(parent);
    }
    governance
}

/// Visits every step, including nested ones.
pub(crate) fn for_each_step(workflow: &mut Workflow, mut each: impl FnMut(&mut Step)) {
    let mut todo: Vec<&mut StepScope> = vec![&mut workflow.scope];
    while let Some(scope) = todo.pop() {
        for step in &mut scope.steps {
            let step = Arc::make_mut(step);
            each(step);
            match &mut step.kind {
                StepKindSpec::Parallel(parallel) => {
                    todo.extend(parallel.lanes.iter_mut().map(|lane| Arc::make_mut(&mut lane.scope)));
                }
                StepKindSpec::Each(each) => todo.push(Arc::make_mut(&mut each.scope)),
                StepKindSpec::Loop(repeat) => todo.push(Arc::make_mut(&mut repeat.scope)),
                StepKindSpec::Work(_)
                | StepKindSpec::Gate(_)
                | StepKindSpec::Wait(_)
                | StepKindSpec::Branch(_)
                | StepKindSpec::Call(_) => {}
            }
        }
    }
}
