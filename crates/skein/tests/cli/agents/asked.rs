//! The prompt, tool results, cost, model and session of an attempt can be looked up.

use serde_json::json;

use super::{
    alone::{alone, for_each_agent},
    kind::{CLAUDE, CODEX, Kind},
    model::{Call, Model, call, say},
};

const FLOW: &str = "name: asked\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Count the words.\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n";

for_each_agent!(an_attempt_can_be_looked_up);

fn an_attempt_can_be_looked_up(kind: Kind) {
    let model = Model::new([call("I count.", [Call::Run("echo seven words; echo counted".into())]), say("Seven.")]);
    let project = kind.project(&model, FLOW);
    let result = project.json("run flow.yaml", 0);
    let run = result["run_id"].as_str().unwrap();
    let served = model.answers() * kind.service.tokens();

    let prompt = project.ends(&format!("logs {run} write --prompt"), 0);
    assert!(prompt.contains("Count the words.") && prompt.contains("SKEIN_OUTPUT"), "{prompt}");

    let log = project.ends(&format!("logs {run} write"), 0);
    for part in ["── write, attempt 1", kind.word, "session ", "tokens", "< seven words", "echo seven words"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let logs = project.json(&format!("logs {run} write"), 0);
    let attempt = &logs["logs"][0];
    assert_eq!(
        (&attempt["agent"]["worker"], &attempt["cost"]["tokens"]),
        (&json!(kind.word), &json!(served)),
        "{logs}"
    );
    assert!(attempt["agent"]["session"].is_string() && attempt["duration_ms"].is_u64(), "{logs}");
    assert!(attempt["prompt"].as_str().is_some_and(|file| std::path::Path::new(file).is_file()), "{logs}");

    let shown = project.json(&format!("runs {run}"), 0);
    assert_eq!(shown["attempts"][0]["agent"], attempt["agent"], "{shown}");
    let human = project.ends(&format!("runs {run}"), 0);
    assert!(human.contains("session ") && human.contains(kind.word), "{human}");
    let listed = project.json("runs", 0);
    assert_eq!(listed["runs"][0]["cost"]["tokens"], served, "{listed}");
    assert!(project.ends("runs", 0).contains(" tokens"), "the list says what a run cost");
}

alone! {
    /// Claude Code reports the model that answers; for the others it is the requested model.
    fn the_model_of_an_attempt_is_known() {
        let model = Model::new([say("Seven.")]);
        let project = CLAUDE.project(&model, FLOW);
        let run = project.json("run flow.yaml", 0)["run_id"].as_str().unwrap().to_owned();
        let logs = project.json(&format!("logs {run} write"), 0);
        assert!(logs["logs"][0]["agent"]["model"].is_string(), "{logs}");
    }
}

alone! {
    /// The check id, which only the checker may know, is not in the stored prompt.
    fn a_prompt_that_is_kept_has_no_check_id() {
        let model = Model::new([say("Written."), say("COMPLETE")]);
        let check = format!(
            "{FLOW}    max_iterations: 2\n    completion_check:\n      worker: AGENT\n      instructions: Look at it.\n      \
             capabilities: [READ]\n"
        );
        let project = CODEX.project(&model, &check);
        let run = project.json("run flow.yaml", 0)["run_id"].as_str().unwrap().to_owned();
        let prompts = project.ends(&format!("logs {run} --prompt"), 0);
        assert!(prompts.contains("\"check_id\": \"CHECK_ID\"") && prompts.contains("Look at it."), "{prompts}");
    }
}
