//! Policies are judged when a run is bound: the hash depends on files alone, and the rulings hold for the whole run.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    engine::{
        AttemptEnd, AttemptReport, Cost, Driver, DriverAction, Event, ForkOrigin, InputToken, JournalBatch,
        ReusableResults, RunInput, RunProjection, RunStart, TimedInput,
    },
    ids::RunId,
    ir::rules::{
        ApprovalCondition, ApprovalRule, GovernancePolicy, GovernanceRole, GrantAction, GrantCondition, GrantPolicy,
        GrantPrincipal, NOT_JUDGED, PolicyDocument, PolicyGrant, PolicyOperation, PolicyPrincipal, RunRulings,
        StepRules, WorkflowRules,
    },
    ir::{Approver, ErrorClass, HoldReason},
    plan::{Plan, PlanDefinition, check_workflow},
    time::Timestamp,
};

use super::support::*;

fn grant(principal: GrantPrincipal, conditions: Vec<GrantCondition>, until: Option<Timestamp>) -> PolicyGrant {
    let actions = vec![GrantAction { action: "tool:*".into(), scope: None }];
    PolicyGrant { principal, actions, conditions, until, revoked: false }
}

/// Ada may start `b` until 1000; clerks may with an approval; nobody else may.
fn rules() -> WorkflowRules {
    let asks = GrantCondition::ApprovalFrom { approvers: vec![Approver::Role("legal".into())], quorum: 2 };
    let grants = vec![
        grant(GrantPrincipal::User("ada".into()), Vec::new(), Some(Timestamp(1_000))),
        grant(GrantPrincipal::Role("clerk".into()), vec![asks], None),
    ];
    let policy = GrantPolicy { id: "mail".into(), allows: false, grants, requirements: Vec::new() };
    let condition = ApprovalCondition::Policy("mail".into());
    let operation = PolicyOperation { class: "tool.call".into(), subject: "t".into(), ..Default::default() };
    let step = StepRules { operation, rules: vec![ApprovalRule { condition, from: "the step".into() }] };
    WorkflowRules {
        policies: [("mail".to_owned(), PolicyDocument::Grants(policy))].into(),
        steps: [(id("b"), step)].into(),
        ..WorkflowRules::default()
    }
}

fn definition() -> Arc<PlanDefinition> {
    let denied = after("b", &["a"]).with(|step| step.policy.denied = Some(NOT_JUDGED.into()));
    fine(graph(vec![work("a"), denied]).with(|workflow| workflow.rules = rules()))
}

fn person(name: &str, roles: &[&str]) -> PolicyPrincipal {
    PolicyPrincipal { name: name.into(), roles: roles.iter().map(|role| (*role).to_owned()).collect() }
}

fn bound(name: &str, roles: &[&str], now: i64) -> Plan {
    definition().bind_for(json!({}), &person(name, roles), Timestamp(now)).unwrap()
}

/// The denial and the quorum of `b`.
fn start_of_b(plan: &Plan) -> (Option<String>, Option<u32>) {
    let policy = &plan.definition.scopes[0].step(1).policy;
    (policy.denied.clone(), policy.approval.as_ref().map(|hold| hold.quorum))
}

#[test]
fn the_hash_depends_on_files_and_the_rulings_on_person_and_time() {
    let (ada, late, clerk, other) =
        (bound("ada", &[], 0), bound("ada", &[], 1_000), bound("bob", &["clerk"], 0), bound("eve", &[], 0));
    let denies = |name: &str| Some(format!("the policy `mail` does not grant tool:t to {name}"));
    assert_eq!(start_of_b(&ada), (None, None));
    assert_eq!(start_of_b(&late), (denies("ada"), None));
    assert_eq!(start_of_b(&clerk), (None, Some(2)));
    assert_eq!(start_of_b(&other), (denies("eve"), None));
    for plan in [&late, &clerk, &other] {
        assert_eq!((plan.hash, plan.definition.hash()), (ada.hash, ada.definition.hash()));
        assert_ne!(plan.definition.rulings(), ada.definition.rulings());
        assert_eq!(plan.definition.to_frozen(), ada.definition.to_frozen());
    }
    // Another ruling replaces the first one as a whole.
    assert_eq!(
        start_of_b(&other.definition.with_rulings(ada.definition.rulings().clone()).bind(json!({})).unwrap()),
        (None, None)
    );
}

#[test]
fn a_step_whose_policies_were_not_judged_may_not_start() {
    assert_eq!(start_of_b(&definition().bind(json!({})).unwrap()), (Some(NOT_JUDGED.into()), None));
}

#[test]
fn rules_survive_storage() {
    let json = serde_json::to_string(&definition().to_frozen()).unwrap();
    let back = PlanDefinition::from_frozen_json(&json).definition.unwrap();
    assert_eq!(back.hash(), definition().hash());
    assert_eq!(start_of_b(&back.bind_for(json!({}), &person("ada", &[]), Timestamp(0)).unwrap()), (None, None));
    let rulings = bound("bob", &["clerk"], 0).definition.rulings().clone();
    let stored = serde_json::to_string(&rulings).unwrap();
    assert_eq!(serde_json::from_str::<RunRulings>(&stored).unwrap(), rulings);
}

#[test]
fn steps_of_called_workflows_are_judged() {
    let denied = work("b").with(|step| step.policy.denied = Some(NOT_JUDGED.into()));
    let child = graph(vec![denied]).with(|workflow| workflow.rules = rules());
    let others = library(vec![("child", child)]);
    let definition = check_workflow(graph(vec![call("sub", "child")]).into(), &others).definition.unwrap();
    let plan = definition.bind_for(json!({}), &person("bob", &["clerk"]), Timestamp(0)).unwrap();
    let inner = plan.definition.scopes[0].inner_scope(0, 0);
    assert!(plan.definition.scope(inner).step(0).policy.approval.is_some());
    assert_eq!(plan.definition.rulings().0[0].workflow, 1);
}

#[test]
fn governance_that_denies_without_approvers_cannot_be_released() {
    let roles = vec![GovernanceRole { name: "reader".into(), permissions: vec!["read".into()] }];
    let governance =
        GovernancePolicy { name: "g".into(), domain: "art".into(), roles: Some(roles), ..Default::default() };
    let operation =
        PolicyOperation { class: "agent.run".into(), subject: "x".into(), changes: true, ..Default::default() };
    let condition = ApprovalCondition::Governance("art".into());
    let rule = ApprovalRule { condition, from: "the domain `art`".into() };
    let workflow = graph(vec![work("b").with(|step| {
        step.policy.holds.insert(ErrorClass::Governance, HoldReason::Governance);
    })]);
    let definition = fine(workflow.with(|workflow| {
        workflow.rules.governance.insert("art".into(), governance);
        workflow.rules.steps.insert(id("b"), StepRules { operation, rules: vec![rule] });
    }));
    let plan = definition.bind_for(json!({}), &person("ada", &[]), Timestamp(0)).unwrap();
    let policy = &plan.definition.scopes[0].step(0).policy;
    assert_eq!(policy.denied.as_deref(), Some("the governance `g` does not let ada write"));
    assert!(policy.holds.is_empty());
    assert_eq!(policy.ruling.as_ref().unwrap().class, "policy:g");
}

/// Feeds inputs to a run, with enough workers, and ends every attempt well. Returns its rows.
fn drive(driver: &mut Driver, input: RunInput) -> Vec<JournalBatch> {
    let mut rows = Vec::new();
    let push = |driver: &mut Driver, input| {
        driver.push_input(InputToken(1), TimedInput { at: Timestamp(0), grant: 9, input });
    };
    push(driver, input);
    while let Some(row) = driver.poll_append() {
        rows.push(row.as_ref().clone());
        driver.confirm_append();
        while let Some(action) = driver.poll_action() {
            if let DriverAction::Start(attempt, _) = action {
                let end = AttemptEnd::Succeeded { output: Arc::new(json!({})) };
                push(driver, RunInput::Finished { attempt, report: AttemptReport::new(end, Cost::default()) });
            }
        }
    }
    rows
}

fn start(run: &str) -> RunStart {
    RunStart::new(RunId::new(run).unwrap())
}

/// The plan as it is loaded from the store.
fn stored() -> Plan {
    let definition = PlanDefinition::from_frozen(definition().to_frozen()).definition.unwrap();
    Plan { parameters: Arc::default(), hash: definition.hash(), definition }
}

#[test]
fn a_resumed_run_and_a_fork_keep_the_rulings_of_the_start() {
    let clerk = bound("bob", &["clerk"], 0);
    let mut rows = drive(&mut Driver::new(clerk.clone()), RunInput::Start(Box::new(start("r"))));
    let Event::RunStarted { rulings, .. } = &rows[0].records[0].event else { panic!("it starts") };
    assert_eq!(rulings, clerk.definition.rulings());
    // The journal alone has them, and so has a cached state.
    let mut driver = Driver::replay(stored(), &rows).unwrap();
    assert_eq!(start_of_b(driver.plan()), (None, Some(2)));
    let waiting = &driver.state().openings[0];
    assert_eq!((waiting.quorum, &waiting.approvers[..]), (2, &[Approver::Role("legal".into())][..]));
    let projection = RunProjection::from_parts(&stored(), driver.state().clone(), Default::default(), driver.chain());
    assert_eq!(start_of_b(projection.unwrap().plan()), (None, Some(2)));
    // A fork has the plan of the run.
    rows.extend(drive(&mut driver, RunInput::Cancel { by: "bob".into(), reason: None }));
    let mut results = ReusableResults::new(driver.plan().clone());
    rows.iter().for_each(|row| results.read_batch(row).unwrap());
    let seed = results.fork_from_step("b").unwrap();
    let forked_from = Some(ForkOrigin { run: RunId::new("r").unwrap(), step: "b".into() });
    let fork = RunStart { forked_from, ..start("f") };
    let mut forked = Driver::new(results.plan().clone());
    let rows = drive(&mut forked, RunInput::Fork { start: Box::new(fork), reused: seed.reused });
    let Event::RunStarted { rulings, .. } = &rows[0].records[0].event else { panic!("it starts") };
    assert_eq!(rulings, clerk.definition.rulings());
    assert_eq!(forked.state().openings[0].quorum, 2);
}
