//! The rules of AIP-15 that the builder applies: ids, undo, timeouts of gates, routes.

use serde_json::json;
use skein_core::{
    builder::*,
    ir::{GateTimeout, StepKindSpec, Workflow},
    plan::{PlanProblem, ProblemCode},
    time::Millis,
};

use super::support::{id, to};

fn tool(id: &str) -> StepDefinition {
    StepDefinition::new(id, ToolStep::tool("t"))
}

fn commit(steps: impl IntoIterator<Item = StepDefinition>) -> Result<CommittedWorkflow, Vec<PlanProblem>> {
    let steps = steps.into_iter().map(define_step);
    define_workflow(WorkflowDefinition::new("main", "x").with_steps(steps)).commit()
}

#[track_caller]
fn workflow(steps: impl IntoIterator<Item = StepDefinition>) -> Workflow {
    (*commit(steps).unwrap().workflow).clone()
}

#[track_caller]
fn refused(steps: impl IntoIterator<Item = StepDefinition>) -> Vec<String> {
    commit(steps).unwrap_err().iter().map(ToString::to_string).collect()
}

fn ids(workflow: &Workflow) -> Vec<&str> {
    workflow.scope.steps.iter().map(|step| step.id.as_str()).collect()
}

#[test]
fn bad_name() {
    let hint = "(2 to 64 lowercase letters, digits and dashes; a letter first, no dash at the end)";
    assert_eq!(
        refused([tool("Build")]),
        [format!("error[bad-name] Build: id: `Build` cannot be an id {}", hint.replace(')', "; `build` would do)"))]
    );
    assert_eq!(refused([tool("../x")]), [format!("error[bad-name] id: `../x` cannot be an id {hint}")]);
    let bad = define_workflow(WorkflowDefinition::new("a", "x")).step(define_step(tool("ab"))).commit();
    assert_eq!(bad.unwrap_err()[0].code, ProblemCode::BadName);
}

#[test]
fn bad_expression() {
    let problems = commit([tool("ab").with_input("x", json!({"deep": "$stps.y"}))]).unwrap_err();
    assert_eq!(problems[0].code, ProblemCode::BadExpression);
    assert_eq!(problems[0].at.field.to_string(), "inputs.x.deep");
    assert_eq!(problems[0].at.span.map(|span| span.start), Some(0));
    let branch = BranchStep::with_default("$end").with_arm("1 +", "$end");
    assert!(commit([StepDefinition::new("br", branch)]).is_err());
}

#[test]
fn an_undo_step_is_put_into_the_step_it_undoes_and_leaves_the_list() {
    let workflow = workflow([
        tool("charge-card").with_compensation("refund-card"),
        tool("refund-card").with_input("id", "$steps.charge-card.outputs.chargeId").with_timeout_ms(5_000),
        tool("ship"),
    ]);
    assert_eq!(ids(&workflow), ["charge-card", "ship"]);
    let undo = workflow.scope.steps[0].undo.as_ref().unwrap();
    assert_eq!((&undo.id, undo.timeout), (&id("refund-card"), Some(Millis(5_000))));
    assert_eq!(&*undo.inputs[0].name, "id");
}

#[test]
fn an_undo_step_that_is_routed_to_stays_and_is_not_fallen_into() {
    let route = BranchStep::with_default("$end").with_arm("$input.back == true", "to-refund");
    let workflow = workflow([
        tool("charge").with_compensation("refund"),
        tool("refund").with_next("$end"),
        StepDefinition::new("route", route),
        tool("to-refund").with_next("refund"),
    ]);
    assert_eq!(ids(&workflow), ["charge", "refund", "route", "to-refund"]);
    assert_eq!(workflow.scope.steps[0].next, Some(to("route")));
    assert!(workflow.scope.steps[0].undo.is_some());
}

#[test]
fn bad_undo() {
    let unknown = refused([tool("charge").with_compensation("refnud"), tool("refund")]);
    assert!(unknown[0].starts_with("error[bad-undo] charge: compensation: there is no step `refnud`"), "{unknown:?}");
    assert_eq!(
        refused([tool("ab").with_compensation("ab"), tool("cd")])[0],
        "error[bad-undo] ab: compensation: `ab` cannot undo itself"
    );
    let gate = StepDefinition::new("ask", ApprovalStep::new("?").with_role("x"));
    assert_eq!(
        refused([tool("ab").with_compensation("ask"), gate])[0],
        "error[bad-undo] ab: compensation: `ask` is a step of kind approval, and only tools can undo"
    );
    let mutual = [tool("ab").with_compensation("cd"), tool("cd").with_compensation("ab"), tool("ef")];
    assert_eq!(refused(mutual).len(), 2);
    let chain = [tool("ab").with_compensation("cd"), tool("cd").with_compensation("ef"), tool("ef")];
    assert_eq!(
        refused(chain)[0],
        "error[bad-undo] ab: compensation: `cd` is a compensation and cannot have one itself"
    );
}

fn gate_timeout(then: TimeoutRule, reject: bool, more: Option<&str>) -> GateTimeout {
    let ask = ApprovalStep::new("?").with_role("x").with_on_timeout(then);
    let ask = if reject { ask.with_on_reject("no") } else { ask };
    let mut steps = vec![StepDefinition::new("ask", ask).with_timeout_ms(1_000), tool("yes").with_next("$end")];
    steps.extend(reject.then(|| tool("no").with_next("$end")));
    steps.extend(more.map(|name| tool(name).with_next("$end")));
    match &workflow(steps).scope.steps[0].kind {
        StepKindSpec::Gate(gate) => gate.on_timeout.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gate_that_times_out_never_counts_as_approved() {
    assert_eq!(gate_timeout(TimeoutRule::Cancel, true, None), GateTimeout::Cancel);
    assert_eq!(gate_timeout(TimeoutRule::Continue, false, None), GateTimeout::Cancel);
    assert_eq!(gate_timeout(TimeoutRule::Continue, true, None), GateTimeout::Reject);
    assert_eq!(gate_timeout(TimeoutRule::Escalate, false, None), GateTimeout::Escalate { to: vec![] });
    assert_eq!(gate_timeout(TimeoutRule::Escalate, false, Some("escalate")), GateTimeout::Go(to("escalate")));
    assert_eq!(gate_timeout(TimeoutRule::Step("late".into()), false, Some("late")), GateTimeout::Go(to("late")));
}

#[test]
fn a_lane_goes_where_its_step_goes() {
    let lanes = |next: Option<&str>| {
        let mut both =
            ParallelStep::new().with_lane("one", [define_step(tool("aa"))]).with_lane("two", [define_step(tool("bb"))]);
        both.lanes[0].next = next.map(str::to_owned);
        [StepDefinition::new("both", both).with_next("cc"), tool("cc")]
    };
    workflow(lanes(None));
    workflow(lanes(Some("cc")));
    assert_eq!(
        refused(lanes(Some("dd"))),
        ["error[misplaced] both: branches[0].next: lane `one` must have the same `next` as `both`, or none"]
    );
}

#[test]
fn approval_always_holds_a_tool_step() {
    let workflow =
        workflow([tool("aa").with_approval(ApprovalClass::Always), tool("bb").with_approval(ApprovalClass::OnMutate)]);
    assert!(workflow.scope.steps[0].policy.approval.is_some());
    assert!(workflow.scope.steps[1].policy.approval.is_none());
    assert_eq!(workflow.scope.steps[1].extensions.labels["approval"], "on-mutate");
}

#[test]
fn approval_always_puts_a_gate_in_front_of_a_subworkflow() {
    let ship = |class| StepDefinition::new("ship", SubworkflowStep::new("deploy")).with_approval(class);
    let lowered = |class| {
        let steps = [tool("build").with_next("ship"), ship(class)].map(define_step);
        let definition = WorkflowDefinition::new("main", "x").with_steps(steps);
        define_workflow(definition).lower().workflow.unwrap()
    };
    let asked = lowered(ApprovalClass::Always);
    assert_eq!(ids(&asked), ["build", "ship.approval", "ship"]);
    assert_eq!(asked.scope.steps[0].next, Some(to("ship.approval")));
    let StepKindSpec::Gate(gate) = &asked.scope.steps[1].kind else { panic!("{:?}", asked.scope.steps[1]) };
    assert_eq!((&gate.on_approve, &gate.on_reject), (&Some(to("ship")), &None));
    let unasked = lowered(ApprovalClass::Auto);
    assert_eq!(ids(&unasked), ["build", "ship"]);
    assert_eq!(unasked.scope.steps[0].next, Some(to("ship")));
}

#[test]
fn map_parallelism_of_0_is_no_limit() {
    let map = |items| {
        StepDefinition::new("all", MapStep::new("$input.list", [define_step(tool("aa"))]).with_parallelism(items))
    };
    let parallelism = |items| match &workflow([map(items)]).scope.steps[0].kind {
        StepKindSpec::Each(each) => each.parallelism,
        other => panic!("{other:?}"),
    };
    assert_eq!((parallelism(0), parallelism(7)), (None, Some(7)));
}

#[test]
fn loops_have_1_to_1000_iterations() {
    let of = |max| {
        commit([StepDefinition::new("again", LoopStep::repeat_while("$input.x == 1", max, [define_step(tool("aa"))]))])
    };
    assert!(of(1).is_ok() && of(1_000).is_ok());
    assert_eq!(of(0).unwrap_err()[0].code, ProblemCode::BadLoopMax);
    assert_eq!(of(1_001).unwrap_err()[0].code, ProblemCode::BadLoopMax);
}

#[test]
fn cycles_are_refused_unless_the_metadata_allows_them() {
    let definition = || {
        let steps = [
            tool("draft"),
            StepDefinition::new("review", ApprovalStep::new("?").with_role("legal").with_on_reject("draft")),
            tool("send"),
        ];
        WorkflowDefinition::new("contract", "x").with_steps(steps.map(define_step))
    };
    assert_eq!(define_workflow(definition()).commit().unwrap_err()[0].code, ProblemCode::Cycle);
    let mut allowed = definition();
    allowed.metadata.insert("skein".into(), json!({"allow_cycles": true}));
    assert!(define_workflow(allowed).commit().is_ok());
}

#[test]
fn nesting_is_limited_before_it_is_walked() {
    let mut step = define_step(tool("aa"));
    for i in 0..200 {
        step = define_step(StepDefinition::new(format!("n{i}"), MapStep::new("$input.list", [step])));
    }
    let problems = define_workflow(WorkflowDefinition::new("deep", "x")).step(step).commit().unwrap_err();
    assert_eq!(problems.last().map(|problem| problem.code), Some(ProblemCode::TooDeep));
}

#[test]
fn a_start_that_is_not_the_first_step() {
    let steps = [tool("second").with_next("$end"), tool("first").with_next("second")].map(define_step);
    let definition = || WorkflowDefinition::new("main", "x").with_steps(steps.clone());
    assert!(define_workflow(definition().with_start("first")).commit().is_ok());
    assert_eq!(define_workflow(definition()).commit().unwrap_err()[0].code, ProblemCode::Unreachable);
}

#[test]
fn a_wrong_expression_does_not_hide_what_else_is_wrong() {
    let lines =
        refused([tool("ab").with_input("x", "$stps.y").with_next("cd"), tool("ef").with_input("z", "$steps.gh.i")]);
    let codes: Vec<&str> = lines.iter().filter_map(|line| line.split(']').next()).collect();
    assert_eq!(codes, ["error[bad-expression", "error[unknown-target", "error[unknown-step"]);
}

#[test]
fn a_front_end_gets_the_workflow_before_it_is_checked() {
    let mut step = tool("ab").with_next("nowhere");
    step.metadata.insert("owner".into(), json!("north"));
    let lowered = define_workflow(WorkflowDefinition::new("main", "x")).step(define_step(step)).lower();
    assert!(lowered.problems.is_empty());
    let workflow = lowered.workflow.unwrap();
    assert_eq!(workflow.scope.steps[0].extensions.labels["metadata"], json!({"owner": "north"}));
    let bad = define_workflow(WorkflowDefinition::new("main", "x")).step(define_step(tool("a/b"))).lower();
    assert!(bad.workflow.is_none() && bad.problems.len() == 1);
}
