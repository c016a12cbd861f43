//! Budgets of steps, and how they are shown.

use serde_json::json;

use crate::kept::Project;

#[test]
fn a_plan_shows_budget_quota_and_max_steps_of_each_step() {
    let project = Project::new();
    project.folder.write(
        "flow.yaml",
        "name: spends\nversion: \"1\"\ntimeout: 10m\nx-skein: {budget: {tokens: 90000, mode: stop}}\nsteps:\n  \
         write:\n    worker: CLAUDE_CODE\n    instructions: Write it.\n    capabilities: [READ, EDIT]\n    \
         max_steps: 40\n    x-skein: {budget: {tokens: 3000, usd: 0.5, mode: pause}, quota: wait}\n  \
         look:\n    worker: CLAUDE_CODE\n    instructions: Look at it.\n    capabilities: [READ]\n",
    );
    let shown = project.ends("plan flow.yaml", 0);
    for part in [
        "at most 40 agent steps an attempt",
        "a budget of $0.50 and 3,000 tokens, then a person is asked for the same amount again",
        "waits while the account of its agent is limited",
        "a budget of 90,000 tokens, then it fails",
    ] {
        assert_eq!(shown.matches(part).count(), 1, "{part}: {shown}");
    }
    let plan = project.json("plan flow.yaml", 0);
    let steps = plan["batches"][0]["steps"].as_array().unwrap();
    let write = steps.iter().find(|step| step["id"] == "write").unwrap();
    let look = steps.iter().find(|step| step["id"] == "look").unwrap();
    assert_eq!(write["budget"], json!({"micro_usd": 500_000, "tokens": 3000, "mode": "pause"}), "{write}");
    assert_eq!((&write["quota"], &write["work"]["max_steps"]), (&json!("wait"), &json!(40)), "{write}");
    assert!(look.get("budget").is_none() && look.get("quota").is_none(), "{look}");
}
