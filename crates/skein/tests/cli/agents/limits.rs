//! Limits: an account that is exhausted, and the budget of a step.

use serde_json::{Value, json};

use super::{
    alone::{alone, for_each_agent},
    kind::{CLAUDE, CODEX, Kind},
    model::{Call, Model, Turn, call, say},
};
use crate::kept::{Project, at_a_terminal};

fn flow(more: &str) -> String {
    format!(
        "name: limited\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
         instructions: Do it.\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n{more}"
    )
}

for_each_agent!(
    two_runs_wait_for_an_account_in_their_order,
    a_limit_pauses,
    a_limit_without_waiting_fails,
    a_budget_stops_it,
    a_budget_pauses_it,
    steps_are_counted
);

/// An answer that the account has reached its limit, with a waiting time as services report it.
pub(crate) fn limited() -> Turn {
    let error = json!({"type": "error", "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded",
        "message": "Rate limit reached. Please try again in 2h."}});
    Turn::Fail(429, vec![("retry-after", "7200".into())], error)
}

fn held(project: &Project, run: &str) -> Value {
    let events = project.events(run);
    events.iter().find_map(|event| event["event"].get("step_held").cloned()).expect("it is held")
}

/// Both runs continue by themselves when the account is available again, and nothing uses it before that.
fn two_runs_wait_for_an_account_in_their_order(kind: Kind) {
    let model = Model::new([Turn::Limit(6)]);
    let project = kind.project(&model, &flow("    x-skein: {quota: wait}\n"));
    let first = project.begin("run flow.yaml --format jsonl");
    let one = first.run();
    first.until("step_held");
    model.then([say("I begin again.")]);
    model.all_asked();
    project.folder.write("other.yaml", project.read("flow.yaml").replace("steps:", "context_dir: other\nsteps:"));
    let second = project.begin("run other.yaml --format jsonl");
    let two = second.run();
    second.until("step_held");
    assert!(model.all_asked().is_empty(), "nobody asks an account that is known to be empty");
    for going in [first, second] {
        let (code, rest, errors) = going.end();
        assert_eq!(code, Some(0), "{rest}{errors}");
    }
    let until = |run: &str| held(&project, run)["until"].as_i64().expect("it is known");
    assert!(until(&one) < until(&two), "who came first is the first");
    assert_eq!(model.all_asked().len(), 2, "each asks once more");
}

/// The step is held until the account is available again, and the next run does not even start its agent.
fn a_limit_pauses(kind: Kind) {
    let model = Model::new([limited()]);
    let project = kind.project(&model, &flow("    x-skein: {quota: wait}\n"));
    let result = project.json("run flow.yaml --no-wait", 6);
    let run = result["run_id"].as_str().unwrap();
    assert_eq!(result["status"], "waiting");
    assert_eq!(held(&project, run)["reason"], "quota");
    assert!(held(&project, run)["until"].as_i64().is_some(), "{}", held(&project, run));
    // A person may release it, and the session continues. While the limit stands, it is held again.
    project.ends(&format!("approve {run} write"), 0);
    let asked = model.all_asked().len();
    assert_eq!(project.json(&format!("resume {run} --no-wait"), 6)["status"], "waiting");
    assert!(!model.all_asked().is_empty() && asked > 0, "the service is asked again at once");
    model.then([say("Here I am again.")]);
    project.ends(&format!("approve {run} write"), 0);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    assert_eq!(result["cost"]["tokens"], model.answers() * kind.service.tokens(), "nothing is counted twice");
    let accounts = std::fs::read_dir(project.path(".skein/accounts")).unwrap();
    assert_eq!(accounts.count(), 0, "an account that answers is waited for by nobody");
}

alone! {
    /// The remaining time is counted down, and nobody has to wait for its end.
    fn what_waits_for_an_account_is_seen_and_can_be_cancelled() {
        let model = Model::new([Turn::Limit(7_200)]);
        let project = CODEX.project(&model, &flow("    x-skein: {quota: wait}\n"));
        let (going, input) = at_a_terminal(&project.folder, "run flow.yaml");
        going.until("(1h59m");
        let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
        assert_eq!(project.status(&run), "waiting");
        project.ends(&format!("cancel {run}"), 0);
        let (code, rest, _) = going.end();
        assert_eq!(code, Some(4), "{rest}");
        drop(input);
    }
}

alone! {
    /// A subscription reports when it is available again.
    fn a_subscription_is_waited_for_until_it_says() {
        let headers = [
            ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
            ("anthropic-ratelimit-unified-reset", "1994771000".to_owned()),
            ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned()),
        ];
        let error = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "No."}});
        let model = Model::new([Turn::Fail(429, headers.to_vec(), error)]);
        let project = CLAUDE.project(&model, &flow("    x-skein: {quota: wait}\n"));
        let config = project.read("skein.toml").replace("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN");
        project.folder.write("skein.toml", config);
        let result = project.json("run flow.yaml --no-wait", 6);
        let events = project.events(result["run_id"].as_str().unwrap());
        let held = events.iter().find_map(|event| event["event"].get("step_held")).expect("it is held");
        assert_eq!(held["until"], 1_994_771_000_000_i64);
    }
}

alone! {
    /// Claude Code knows its cost, and is given the limit.
    fn money_stops_it_too() {
        let model = spending();
        let project = CLAUDE.project(&model, &flow("    x-skein: {budget: {usd: 0.02, mode: stop}}\n"));
        let result = project.json("run flow.yaml", 4);
        assert_eq!(result["steps"][0]["error"]["code"], "budget", "{result}");
        assert!(result["cost"]["usd"].as_f64().unwrap() >= 0.02 && model.answers() < 20, "{result}");
    }
}

alone! {
    /// The budget applies in a call, whether it belongs to the run, the calling step or the called workflow, in any
    /// format.
    fn a_budget_reaches_through_a_call() {
        let budget = "{budget: {tokens: 1, mode: stop}}";
        let call = |workflow: &str, step: &str| format!(
            "workflow: {{id: outer, name: Outer}}\n{workflow}stages:\n  - id: ask\n    name: Ask\n    x-skein: {{{step}call: flow.yaml}}\n"
        );
        let cases = [
            (call(&format!("x-skein: {budget}\n"), ""), "", "the run's budget"),
            (call("", "budget: {tokens: 1, mode: stop}, "), "", "the step `ask`'s budget"),
            (call("", ""), "x-skein: {budget: {tokens: 1, mode: stop}}\n", "the called workflow `limited`'s budget"),
        ];
        for (outer, inner, told) in cases {
            let model = Model::new([say("I am done.")]);
            let two = flow("") + "  again:\n    worker: AGENT\n    instructions: Do it.\n    capabilities: [READ]\n    depends_on: [write]\n";
            let project = CLAUDE.project(&model, &two.replace("steps:", &format!("{inner}steps:")));
            project.folder.write("outer.yaml", outer);
            let result = project.json("run outer.yaml", 4);
            let step = |path: &str| {
                let steps = result["steps"].as_array().unwrap();
                steps.iter().find(|step| step["path"] == path).unwrap_or_else(|| panic!("{path}: {result}")).clone()
            };
            let error = [step("ask/write"), step("ask/again")].into_iter().map(|step| step["error"].clone());
            let error = error.into_iter().find(|error| !error.is_null()).unwrap();
            assert_eq!(error["code"], "budget", "{result}");
            assert!(error["message"].as_str().unwrap().contains(told), "{error}");
            assert_eq!(step("ask")["error"]["code"], "budget", "{result}");
        }
    }
}

/// The attempt may be retried, but the run does not wait for hours because a service asks for it.
fn a_limit_without_waiting_fails(kind: Kind) {
    let model = Model::new([limited()]);
    let project = kind.project(&model, &flow("    on_failure: retry\n    max_retries: 1\n"));
    let result = project.json("run flow.yaml", 4);
    assert_eq!(result["steps"][0]["attempts"], 2, "{result}");
    let error = &result["steps"][0]["error"];
    assert_eq!((&error["class"], &error["code"]), (&json!("rate_limit"), &json!("agent_limit")), "{error}");
}

/// A model that calls a tool again and again, with a cost each time.
fn spending() -> Model {
    Model::new([call("Once more.", [Call::Run("echo working".into())])])
}

fn a_budget_stops_it(kind: Kind) {
    let model = spending();
    let most = 3 * kind.service.tokens();
    let project = kind.project(&model, &flow(&format!("    x-skein: {{budget: {{tokens: {most}, mode: stop}}}}\n")));
    let result = project.json("run flow.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!(error["code"], "budget", "{error}");
    let spent = result["cost"]["tokens"].as_u64().unwrap();
    assert!(spent >= most && spent <= model.answers() * kind.service.tokens(), "{spent} of {most}");
    assert!(model.answers() < 20, "it was stopped while it worked: {}", model.answers());
}

alone! {
    /// An approval grants the same amount again, and the next exhaustion asks again. The question contains the numbers.
    fn a_paused_budget_asks_again_after_an_approval() {
        let model = spending();
        let one = CLAUDE.service.tokens();
        let most = 2 * one;
        let project =
            CLAUDE.project(&model, &flow(&format!("    x-skein: {{budget: {{tokens: {most}, mode: pause}}}}\n")));
        let asks = |result: &Value| result["waiting_for"][0]["message"].as_str().unwrap_or_default().to_owned();
        let result = project.json("run flow.yaml --no-wait", 6);
        let (run, first) = (result["run_id"].as_str().unwrap().to_owned(), asks(&result));
        assert!(first.contains("the step's budget is spent: ") && first.contains("tokens more, then it asks again"), "{first}");
        let spent = result["cost"]["tokens"].as_u64().unwrap();
        project.ends(&format!("approve {run} write"), 0);
        let result = project.json(&format!("resume {run} --no-wait"), 6);
        let again = result["cost"]["tokens"].as_u64().unwrap();
        assert!(again >= spent + most && again < spent + most + 3 * one, "{spent}, then {again}: {result}");
        assert_ne!(asks(&result), first, "it says what is spent now");
        let shown = project.ends(&format!("runs {run}"), 0);
        assert!(shown.contains("approval grants"), "{shown}");
        model.then([say("Now I am done.")]);
        project.ends(&format!("approve {run} write"), 0);
        project.json(&format!("resume {run}"), 0);
    }
}

fn a_budget_pauses_it(kind: Kind) {
    let model = spending();
    let most = 2 * kind.service.tokens();
    let project = kind.project(&model, &flow(&format!("    x-skein: {{budget: {{tokens: {most}, mode: pause}}}}\n")));
    let result = project.json("run flow.yaml --no-wait", 6);
    let run = result["run_id"].as_str().unwrap();
    model.then([say("Now I am done.")]);
    model.all_asked();
    project.ends(&format!("approve {run} write"), 0);
    assert_eq!(project.json(&format!("resume {run}"), 0)["status"], "succeeded");
    let body = model.asked().body;
    assert!(body.contains("Once more."), "it goes on in its session: {body}");
}

fn steps_are_counted(kind: Kind) {
    let model = spending();
    let project = kind.project(&model, &flow("    max_steps: 4\n"));
    let result = project.json("run flow.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!(error["code"], "max_steps", "{error}");
    assert!(model.answers() < 20, "{}", model.answers());
}
