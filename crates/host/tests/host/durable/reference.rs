//! Reference runs: one small workflow for each feature of a run. Real scripts do their work. Each script first writes
//! the mark of its attempt to a ledger, and its outcome does not depend on the number of interruptions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::json;
use skein_core::{
    ids::ArtifactName,
    ir::{ConvergencePolicy, InputArtifact, OutputArtifact, RunStatus, Step, StepKindSpec, WorkerSpec, Workflow},
    plan::Plan,
    time::Millis,
};

use skein_host::run_settings::ToolSettings;

use super::kit::{
    after, branch, call, check_of, checked, each, gate, given, graph, parallel, plan, plan_of, repeat, retried, routed,
    run, script, undoes, undone_by, wait, work_of, workflow,
};

/// The step that a tool does.
pub(crate) const PAYS: &str = "pay-it";
/// The first command of every script.
const SIGN: &str = "echo \"$SKEIN_MARK\" >> \"ledger-$SKEIN_RUN_ID\"\n";

pub(crate) struct Reference {
    pub name: &'static str,
    pub plan: fn() -> Plan,
    pub ends: RunStatus,
    /// True if the run is cancelled when its step `long` has started.
    pub cancelled: bool,
}

/// A step whose script signs the ledger and then runs these commands.
fn does(name: &str, rest: &str) -> Step {
    run(name, &format!("{SIGN}{rest}"))
}

fn gives(name: &str) -> Step {
    does(name, &format!("echo from={name} >> \"$SKEIN_OUTPUT\""))
}

/// Exits with 1 the first time that it is reached.
const FIRST_FAILS: &str =
    "f=\"first-$SKEIN_RUN_ID\"; if ! test -e \"$f\"; then touch \"$f\"; exit 1; fi; echo ok=true >> \"$SKEIN_OUTPUT\"";
/// Adds one each time.
const COUNT: &str = "echo . >> \"count-$SKEIN_RUN_ID\"";
const FAIL: &str = "exit 1";
/// Longer than any test waits.
const LONG: &str = "exec sleep 600";

fn of(name: &'static str, plan: fn() -> Plan, ends: RunStatus) -> Reference {
    Reference { name, plan, ends, cancelled: false }
}

fn check(text: &str) -> String {
    format!("{SIGN}{text}")
}

fn chain() -> Plan {
    let last = given(after(gives("c"), &["b"]), "b", json!("$steps.b.from"));
    plan(graph(vec![gives("a"), after(gives("b"), &["a"]), last]))
}

fn fan_out() -> Plan {
    let mut steps: Vec<Step> = ["a", "b", "c", "d"].map(gives).into();
    steps.push(after(gives("end"), &["a", "b", "c", "d"]));
    let mut scope = graph(steps);
    scope.concurrency = Some(2);
    plan(scope)
}

fn retry() -> Plan {
    plan(graph(vec![retried(does("a", FIRST_FAILS), 3), after(gives("b"), &["a"])]))
}

fn gives_up() -> Plan {
    plan(graph(vec![retried(does("a", FAIL), 2), after(gives("b"), &["a"])]))
}

fn completion() -> Plan {
    let content = check("test $(wc -l < \"count-$SKEIN_RUN_ID\") -ge 3");
    plan(graph(vec![checked(does("a", COUNT), &content, 9), after(gives("b"), &["a"])]))
}

fn convergence() -> Plan {
    let work = does("a", "if test $SKEIN_STAGE -ge 2; then touch \"done-$SKEIN_RUN_ID\"; fi");
    let why = "echo '{\"decision\": \"incomplete\", \"reasons\": [\"not done\"]}' > decision-convergence";
    let look = check(&format!("{why}\ntest -e \"done-$SKEIN_RUN_ID\""));
    let mut step = checked(work, &look, 9);
    check_of(&mut step).decision_file = Some("decision-convergence".into());
    check_of(&mut step).convergence = Some(ConvergencePolicy {
        stall_threshold: 2,
        max_stage: 3,
        fail_on_max_stage: true,
        stages: Vec::new(),
        allowed_paths: Vec::new(),
        ignored_paths: Vec::new(),
        diff_base_ref: None,
        diff_base_ref_file: None,
        max_changed_files: None,
    });
    plan(graph(vec![step]))
}

fn asks() -> Plan {
    plan(graph(vec![gives("a"), after(gate("g"), &["a"]), after(gives("b"), &["g"])]))
}

fn waits() -> Plan {
    plan(graph(vec![wait("w"), after(gives("a"), &["w"])]))
}

fn routes() -> Plan {
    let mut yes = gives("yes");
    yes.next = Some(super::kit::to("$end"));
    let steps = vec![gives("a"), branch("which", "$steps.a.from == \"a\"", "yes", "no"), yes, gives("no")];
    plan(routed(steps))
}

fn lanes() -> Plan {
    let lanes =
        vec![("left", routed(vec![gives("l1"), gives("l2")])), ("right", routed(vec![gives("r1"), gives("r2")]))];
    plan(routed(vec![parallel("both", lanes), gives("end")]))
}

fn items() -> Plan {
    let item = given(gives("one"), "item", json!("$item"));
    plan(routed(vec![each("all", json!([1, 2, 3]), 2, routed(vec![item]))]))
}

fn passes() -> Plan {
    // The number of the iteration is in the path of the step.
    let number = "p=${SKEIN_STEP#*#}; echo n=${p%%/*} >> \"$SKEIN_OUTPUT\"";
    plan(routed(vec![repeat("again", "$steps.one.n < 3", 9, routed(vec![does("one", number)])), gives("end")]))
}

fn calls() -> Plan {
    let inner: Workflow = workflow("inner", routed(vec![gives("x"), gives("y")]));
    plan_of(workflow("outer", routed(vec![gives("a"), call("sub", "inner"), gives("b")])), &[inner])
}

fn undo() -> Plan {
    let takes_back = check("touch \"undone-$SKEIN_STEP\"");
    let a = undone_by(gives("a"), &takes_back);
    let b = undone_by(gives("b"), &takes_back);
    plan(graph(vec![a, after(b, &["a"]), after(undoes(does("c", FAIL)), &["b"])]))
}

/// The undo itself fails at first.
fn undo_again() -> Plan {
    let a = undone_by(gives("a"), &check(FIRST_FAILS));
    plan(graph(vec![a, after(undoes(does("c", FAIL)), &["a"])]))
}

fn times_out() -> Plan {
    let mut slow = does("slow", LONG);
    slow.policy.timeout = Some(Millis(150));
    plan(graph(vec![slow, after(gives("b"), &["slow"])]))
}

/// Nobody answers in time.
fn expires() -> Plan {
    let mut never = gate("never");
    if let StepKindSpec::Gate(gate) = &mut never.kind {
        gate.timeout = Some(Millis(100));
    }
    plan(graph(vec![gives("a"), after(never, &["a"]), after(gives("b"), &["never"])]))
}

fn cancelled() -> Plan {
    let work = does("long", LONG);
    plan(graph(vec![gives("a"), after(work, &["a"]), after(gives("b"), &["long"])]))
}

fn cancelled_undone() -> Plan {
    let a = undone_by(gives("a"), &check(":"));
    let work = does("long", LONG);
    let mut scope = graph(vec![a, after(work, &["a"])]);
    scope.undo.on_cancel = true;
    plan(scope)
}

/// One item fails, is undone, and is retried as a whole.
fn again_as_a_whole() -> Plan {
    let a = undone_by(gives("one"), &check(":"));
    let item = routed(vec![a, does("two", FIRST_FAILS)]);
    plan(routed(vec![retried(each("all", json!([1]), 1, item), 3), gives("end")]))
}

fn sums_up() -> Plan {
    let mut step = checked(does("a", COUNT), &check(":"), 3);
    work_of(&mut step).summary =
        Some(Box::new(skein_core::ir::SummarySpec { worker: script(&check("echo all well")), timeout: None }));
    plan(graph(vec![step]))
}

fn goes_on() -> Plan {
    let mut a = does("a", FAIL);
    a.policy.effects.failed = skein_core::ir::OutcomeEffect::CONTINUE;
    plan(graph(vec![a, after(gives("b"), &["a"])]))
}

/// A file is passed from one step to another.
fn hands_on() -> Plan {
    let name = || ArtifactName::new("words").unwrap();
    let mut from = does("a", "mkdir -p \"out-$SKEIN_RUN_ID\"; echo some words > out-$SKEIN_RUN_ID/words");
    let path = "out-hands-on/words".to_owned();
    work_of(&mut from).gives = vec![OutputArtifact { name: name(), path, kind: None }];
    let mut to = does("b", "echo words=$(wc -w < words/out-hands-on/words) >> \"$SKEIN_OUTPUT\"");
    work_of(&mut to).takes = vec![InputArtifact { from: super::kit::id("a"), artifact: name(), name: name() }];
    plan(graph(vec![from, after(to, &["a"])]))
}

/// A tool that mutates and is given a secret.
pub(crate) fn pay() -> ToolSettings {
    let text = format!("{SIGN}test -n \"$BANK_TOKEN\" && echo '{{\"paid\": true}}'");
    ToolSettings {
        id: "pay".into(),
        version: "1.0.0".into(),
        mutates: vec!["external:bank".into()],
        driver: "bank-cli".into(),
        command: ["sh", "-c", &text].map(str::to_owned).into(),
        secrets: vec!["BANK_TOKEN".into()],
        ..ToolSettings::default()
    }
}

fn pays() -> Plan {
    let mut step = run(PAYS, ":");
    work_of(&mut step).worker = WorkerSpec::Tool { tool: "pay".into(), pinned: None };
    plan(graph(vec![step, after(gate("g"), &[PAYS]), after(gives("b"), &["g"])]))
}

pub(crate) fn all() -> Vec<Reference> {
    let (good, failed) = (RunStatus::Succeeded, RunStatus::Failed);
    let cancel = |name, plan: fn() -> Plan, ends| Reference { cancelled: true, ..of(name, plan, ends) };
    vec![
        of("chain", chain, good),
        of("fan-out", fan_out, good),
        of("retry", retry, good),
        of("gives-up", gives_up, failed),
        of("completion", completion, good),
        of("convergence", convergence, good),
        of("asks", asks, good),
        of("waits", waits, good),
        of("routes", routes, good),
        of("lanes", lanes, good),
        of("items", items, good),
        of("passes", passes, good),
        of("calls", calls, good),
        of("undo", undo, RunStatus::Undone),
        of("undo-again", undo_again, RunStatus::Undone),
        of("times-out", times_out, failed),
        of("expires", expires, failed),
        cancel("cancelled", cancelled, RunStatus::Cancelled),
        cancel("cancelled-undone", cancelled_undone, RunStatus::Cancelled),
        of("again-as-a-whole", again_as_a_whole, good),
        of("sums-up", sums_up, good),
        of("goes-on", goes_on, good),
        of("hands-on", hands_on, good),
        of("pays", pays, good),
    ]
}

pub(crate) fn get(name: &str) -> Reference {
    all().into_iter().find(|reference| reference.name == name).unwrap_or_else(|| panic!("{name}"))
}

/// Calls a function for each of them, several at a time, and adds up the results.
pub(crate) fn with_each(what: impl Fn(&str) -> usize + Sync) -> usize {
    let names: Vec<&str> = all().iter().map(|it| it.name).collect();
    let (next, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failed = Mutex::new(Vec::new());
    // They wait for disks and processes more than they compute.
    let workers = thread::available_parallelism().map_or(2, |n| n.get()) * 3;
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match catch_unwind(AssertUnwindSafe(|| what(name))) {
                        Ok(count) => drop(total.fetch_add(count, Ordering::Relaxed)),
                        Err(_) => failed.lock().unwrap().push(*name),
                    }
                }
            });
        }
    });
    assert_eq!(*failed.lock().unwrap(), [""; 0], "these differ; what of them is told above");
    total.into_inner()
}
