//! Who is asked before each step, and who may not start it at all: the strictest of what the step, its workflow, its tool,
//! the action and the project say.
//!
//! Owns how classes and policies become the table of a step. What a policy says is the policy's own; refuses to know how
//! anything is looked up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    builder::ApprovalClass,
    expr::Span,
    ids::StepId,
    ir::{ApprovalHold, Approver, Capability, ErrorClass, Kind, Ruling, Scope, Step, Work, Worker, Workflow},
};

use crate::{
    aip15::{Tool, strictness},
    catalog::{self, Use},
    code::Code,
    detect::{Dialect, has_front_matter},
    diagnostic::{Diagnostic, Sink},
    lowering::Lowered,
    places::Places,
    policy::{self, Decision, Finding, Governance, Person, Policy, Request, strictest},
    project::{Floor, Project, Sort},
    source::Source,
    yaml::Node,
};

/// What is said of steps, by their names.
pub(crate) type Claims = BTreeMap<String, Claimed>;

/// So often a governance may extend another.
const DEPTH: usize = 8;

/// What is said of one step.
#[derive(Debug, Clone)]
pub(crate) struct Claimed {
    pub claims: Vec<Claim>,
    /// What does the work, where that is a tool that is described.
    pub tool: Option<Arc<Tool>>,
    pub risk: Option<u8>,
}

/// A class of approval, and who says so.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub class: ApprovalClass,
    pub from: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    Step,
    Workflow,
    /// Something with a name, such as a tool.
    Named(String),
    Host,
}

impl By {
    fn words(&self) -> &str {
        match self {
            By::Step => "the step",
            By::Workflow => "the workflow",
            By::Named(name) => name,
            By::Host => "skein.toml",
        }
    }
}

/// Puts into every step who is asked before it, and whether it may start at all. An undo is never held up.
pub(crate) fn apply(dialect: Dialect, lowered: &mut Lowered, project: &dyn Project, sink: &mut Sink) {
    let floor = project.floor();
    let governed = if dialect == Dialect::Ioa { project.governance() } else { Vec::new() };
    if lowered.claims.is_empty() && floor.is_none() && governed.is_empty() {
        return;
    }
    let mut govern = Govern {
        project,
        person: project.person(),
        policies: BTreeMap::new(),
        missing: Vec::new(),
        nobody: BTreeSet::new(),
        unkept: BTreeSet::new(),
        broken: Vec::new(),
        roles: project.names(Sort::Role).into_iter().collect(),
        floor,
    };
    let domains = Domains::of(&lowered.workflow, governed, project, sink);
    let (claims, places) = (&lowered.claims, &lowered.places);
    each_step(&mut lowered.workflow, |step| govern.step(step, claims, &domains, places, sink));
    govern.finish(places, sink);
}

/// The work of governing one workflow.
struct Govern<'a> {
    project: &'a dyn Project,
    person: Person,
    /// What was looked up. None: it is not there, or cannot be read.
    policies: BTreeMap<String, Option<Arc<Policy>>>,
    /// Policies that are named and not there, and by which step.
    missing: Vec<(String, By, StepId)>,
    roles: BTreeSet<String>,
    /// Roles without anybody that were told of.
    nobody: BTreeSet<String>,
    unkept: BTreeSet<String>,
    /// What is wrong with policies that are named.
    broken: Vec<Diagnostic>,
    floor: Option<Floor>,
}

impl Govern<'_> {
    fn step(&mut self, step: &mut Step, all: &Claims, domains: &Domains, places: &Places, sink: &mut Sink) {
        let Kind::Work(work) = &step.kind else { return };
        let claimed = all.get(step.id.as_str());
        let mut claims = claimed.map(|claimed| claimed.claims.clone()).unwrap_or_default();
        let floor = self.floor.as_ref().map(|floor| floor.class.clone());
        claims.extend(floor.map(|class| Claim { class, from: By::Host }));
        let governance = domains.of_step(work, self.project);
        let worker = About::of(work, claimed, self.project);
        let mut rulings = Vec::new();
        for claim in claims {
            let finding = self.find(&claim, &worker, &step.id);
            let missing = match &claim.class {
                ApprovalClass::Policy(name) if self.is_missing(name) => Some(name.clone()),
                _ => None,
            };
            rulings.push((claim, finding, missing));
        }
        if let Some(governance) = governance {
            step.policy.escalation = governance.levels();
            if !governance.may_override() {
                step.policy.holds.remove(&ErrorClass::Governance);
            }
            let finding =
                Policy::Governance(governance.clone()).judge(&worker.request(&self.person, self.project));
            let from = By::Named(format!("the domain `{}`", governance.domain));
            rulings.push((
                Claim { class: ApprovalClass::Policy(governance.name.clone()), from },
                finding,
                None,
            ));
        }
        self.rule(step, rulings);
        self.warn_of_nobody(step, places, sink);
    }

    /// Puts what was found into the step.
    fn rule(&mut self, step: &mut Step, rulings: Vec<(Claim, Finding, Option<String>)>) {
        let missing = rulings.iter().find_map(|(.., missing)| missing.clone());
        // Of what is equally strict, what is said by the stricter class is told.
        let told = rulings
            .iter()
            .max_by_key(|(claim, finding, _)| (finding.decision.strictness(), strictness(&claim.class)));
        let Some((claim, ..)) = told else { return };
        let (class, from) = (claim.class.word(), claim.from.words().to_owned());
        let quiet = matches!(claim.class, ApprovalClass::Auto | ApprovalClass::PerStep);
        let findings = rulings.into_iter().map(|(_, finding, _)| finding);
        let Some(Finding { decision, why }) = findings.reduce(strictest) else { return };
        let policy = &mut step.policy;
        policy.approval = None;
        let hold = |approvers: Vec<Approver>, quorum, escalates| {
            Some(ApprovalHold { approvers, quorum, message: why.clone(), escalates })
        };
        match decision {
            Decision::Allow => {}
            Decision::Ask { approvers, quorum } => policy.approval = hold(approvers, quorum, false),
            Decision::Escalate { levels, quorum } => {
                policy.approval = hold(Vec::new(), quorum, true);
                policy.escalation = levels;
            }
            Decision::Deny => {
                policy.denied = Some(why.clone());
                // Nobody may let it start, unless somebody is named who may.
                if policy.escalation.is_empty() {
                    policy.holds.remove(&ErrorClass::Governance);
                }
            }
        }
        policy.ruling = (!quiet).then_some(Ruling { class, from, why, missing });
    }

    /// What one claim comes to.
    fn find(&mut self, claim: &Claim, worker: &About<'_>, step: &StepId) -> Finding {
        let anyone = || Decision::Ask { approvers: Vec::new(), quorum: 1 };
        match &claim.class {
            ApprovalClass::Auto | ApprovalClass::PerStep => Finding::new(Decision::Allow, "nobody is asked"),
            ApprovalClass::OnMutate if !worker.changes => Finding::new(Decision::Allow, "it changes nothing"),
            ApprovalClass::OnMutate => match worker.mutates {
                [] => Finding::new(anyone(), "it may change something"),
                all => Finding::new(anyone(), format!("it changes {}", all.join(", "))),
            },
            ApprovalClass::Always => Finding::new(anyone(), "somebody is asked every time"),
            ApprovalClass::Policy(name) => match self.policy(name) {
                Some(policy) => policy.judge(&worker.request(&self.person, self.project)),
                None => {
                    self.missing.push((name.clone(), claim.from.clone(), step.clone()));
                    Finding::new(anyone(), format!("there is no policy `{name}`"))
                }
            },
        }
    }

    fn is_missing(&self, name: &str) -> bool {
        matches!(self.policies.get(name), Some(None))
    }

    fn policy(&mut self, name: &str) -> Option<Arc<Policy>> {
        let (project, broken) = (self.project, &mut self.broken);
        let found = self.policies.entry(name.to_owned()).or_insert_with(|| {
            let source = project.policy(name)?;
            if !has_front_matter(&source) {
                let read = policy::governance(source).map_err(|wrong| broken.extend(wrong)).ok()?;
                return Some(Arc::new(Policy::Governance(whole(read, project))));
            }
            let (read, said) = policy::policy(source);
            broken.extend(said.into_iter().filter(Diagnostic::is_error));
            read.map(Arc::new)
        });
        let found = found.clone();
        if found.as_ref().is_some_and(|policy| !policy.unkept().is_empty()) {
            self.unkept.insert(name.to_owned());
        }
        found
    }

    /// Roles that are asked and have nobody in them.
    fn warn_of_nobody(&mut self, step: &Step, places: &Places, sink: &mut Sink) {
        let first = step.policy.approval.iter().flat_map(|approval| &approval.approvers);
        let levels = step.policy.escalation.iter().flat_map(|level| &level.approvers);
        for approver in first.chain(levels) {
            let Approver::Role(role) = approver else { continue };
            if !self.roles.contains(role) && self.nobody.insert(role.clone()) {
                let message =
                    format!("there is nobody in the role `{role}`, which is asked before this step");
                let (source, span) = place(places, &step.id, &By::Step);
                let diagnostic = Diagnostic::new(Code::NobodyInRole, &source, span, message);
                sink.push(
                    diagnostic.hint(format!("put people into it: `{role} = [\"ada\"]` below `[roles]`")),
                );
            }
        }
    }

    fn finish(self, places: &Places, sink: &mut Sink) {
        self.broken.into_iter().for_each(|diagnostic| sink.push(diagnostic));
        let mut seen = BTreeSet::new();
        let mut uses = Vec::new();
        for (name, from, step) in &self.missing {
            let (source, span) = match (from, &self.floor) {
                (By::Host, Some(floor)) => (floor.source.clone(), floor.span),
                _ => place(places, step, from),
            };
            if seen.insert((name, source.name.clone(), span.start)) {
                uses.push((name, source, span));
            }
        }
        let uses: Vec<Use<'_>> =
            uses.iter().map(|(name, source, span)| Use { name, source, span: *span }).collect();
        catalog::check(Sort::Policy, uses, self.project, sink);
        for name in self.unkept {
            let message = format!("the policy `{name}` asks for what nobody here sees to");
            let hint = "`skein validate` of its file says what that is";
            let span = places.tree.root().mark();
            let span = Span { end: span.start, ..span };
            sink.push(Diagnostic::new(Code::PolicyNotKept, &sink.source.clone(), span, message).hint(hint));
        }
    }
}

/// Where it is said who is asked before a step, or the step itself.
fn place(places: &Places, step: &StepId, from: &By) -> (Arc<Source>, Span) {
    let node = places.node(step);
    let field = |node: Node<'_>, name: &str| node.get(name).map(|node| (node.source().clone(), node.mark()));
    let found = match from {
        By::Workflow => field(places.tree.root(), "approval"),
        By::Step => node.and_then(|node| field(node, "approval")),
        By::Named(_) | By::Host => {
            node.and_then(|node| field(node, "tool").or_else(|| field(node, "action")))
        }
    };
    let whole = || {
        let node = node.unwrap_or_else(|| places.tree.root());
        let name = node.get("name").or_else(|| node.get("id")).unwrap_or(node);
        (name.source().clone(), name.mark())
    };
    found.unwrap_or_else(whole)
}

/// What does the work, as a policy is asked about it.
struct About<'a> {
    class: &'static str,
    action: Option<&'a str>,
    subject: &'a str,
    mutates: &'a [String],
    changes: bool,
    risk: u8,
}

impl<'a> About<'a> {
    fn of(work: &'a Work, claimed: Option<&'a Claimed>, project: &dyn Project) -> About<'a> {
        let tool = claimed.and_then(|claimed| claimed.tool.as_deref());
        let mutates = tool.map(|tool| &tool.mutates[..]).unwrap_or_default();
        let (class, action, subject, changes) = match &work.worker {
            Worker::Tool { tool: id, .. } => {
                let action = tool.and_then(|tool| tool.implements.as_deref());
                ("tool.call", action, id.as_str(), tool.is_none() || !mutates.is_empty())
            }
            Worker::Action { action, .. } => {
                ("tool.call", Some(action.as_str()), action.as_str(), tool.is_none() || !mutates.is_empty())
            }
            Worker::Agent { name, program, capabilities, .. } => {
                let subject = name.as_deref().or(program.as_deref()).unwrap_or_default();
                let own =
                    if capabilities.is_empty() { project.agent(subject).0 } else { capabilities.clone() };
                ("agent.run", None, subject, writes(&own))
            }
            Worker::Command { program, .. } => ("command.run", None, program.as_str(), true),
            Worker::Script { capabilities, .. } => ("command.run", None, "script", writes(capabilities)),
        };
        let said = claimed.and_then(|claimed| claimed.risk);
        let of_tool = tool.and_then(|tool| tool.risk_level).map(|level| level as u8);
        let risk = said.max(of_tool).unwrap_or(u8::from(changes));
        let action = action.map(|action| action.rsplit('/').next().unwrap_or(action));
        let action = action.map(|action| action.split('@').next().unwrap_or(action));
        About { class, action, subject, mutates, changes, risk }
    }

    fn request<'r>(&'r self, who: &'r Person, project: &dyn Project) -> Request<'r> {
        let About { class, action, subject, mutates, changes, risk } = *self;
        Request { who, now: project.now(), class, action, subject, mutates, changes, risk }
    }
}

/// Whether somebody who may do this can change anything. Nothing said is to read and to edit.
fn writes(capabilities: &[Capability]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|one| *one != Capability::Read)
}

/// The governance of the domains of a workflow.
struct Domains {
    by_domain: BTreeMap<String, Governance>,
    /// Those of the workflow, in its order.
    own: Vec<String>,
}

impl Domains {
    fn of(workflow: &Workflow, files: Vec<Arc<Source>>, project: &dyn Project, sink: &mut Sink) -> Domains {
        let own = workflow.labels.get("domainsInvolved").and_then(|list| list.as_array());
        let own = own.into_iter().flatten().filter_map(|domain| domain.as_str()).map(str::to_owned).collect();
        let mut by_domain = BTreeMap::new();
        for source in files {
            match policy::governance(source) {
                Ok(governance) => {
                    let governance = whole(governance, project);
                    by_domain.entry(governance.domain.clone()).or_insert(governance);
                }
                Err(wrong) => wrong.into_iter().for_each(|diagnostic| sink.push(diagnostic)),
            }
        }
        Domains { by_domain, own }
    }

    /// That of the agent's own domain, or of the first domain of the workflow that has one.
    fn of_step(&self, work: &Work, project: &dyn Project) -> Option<&Governance> {
        if self.by_domain.is_empty() {
            return None;
        }
        let agent = match &work.worker {
            Worker::Agent { name: Some(name), .. } => project.agent(name).1,
            _ => None,
        };
        let mut domains = agent.iter().chain(&self.own);
        domains.find_map(|domain| self.by_domain.get(domain))
    }
}

/// A governance with all that those say which it extends.
fn whole(mut governance: Governance, project: &dyn Project) -> Governance {
    for _ in 0..DEPTH {
        let Some(parent) = governance.extends.take() else { break };
        let parent = project.policy(&parent).and_then(|source| policy::governance(source).ok());
        let Some(parent) = parent else { break };
        governance = governance.over(parent);
    }
    governance
}

/// Every step, those inside others included.
pub(crate) fn each_step(workflow: &mut Workflow, mut each: impl FnMut(&mut Step)) {
    let mut todo: Vec<&mut Scope> = vec![&mut workflow.scope];
    while let Some(scope) = todo.pop() {
        for step in &mut scope.steps {
            let step = Arc::make_mut(step);
            each(step);
            match &mut step.kind {
                Kind::Parallel(parallel) => {
                    todo.extend(parallel.lanes.iter_mut().map(|lane| Arc::make_mut(&mut lane.scope)));
                }
                Kind::Each(each) => todo.push(Arc::make_mut(&mut each.scope)),
                Kind::Loop(repeat) => todo.push(Arc::make_mut(&mut repeat.scope)),
                Kind::Work(_) | Kind::Gate(_) | Kind::Wait(_) | Kind::Branch(_) | Kind::Call(_) => {}
            }
        }
    }
}
