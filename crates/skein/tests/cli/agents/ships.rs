//! The feature of `examples/swdl/ship`, built by real agents: each stage by one of the three, each with a scripted
//! model.

use serde_json::{Value, json};

use super::{
    alone::alone,
    kind::{CLAUDE, CODEX, OPENCODE},
    model::{Call, Model, Turn, call, say},
};
use crate::{
    kept::Project,
    ship::{begin, example, told, went},
};

/// The agent of each stage. The two halves are built at the same time, so two different agents build them.
const AGENTS: [(&str, &str, &str); 8] = [
    ("surveyor", "CLAUDE_CODE", "\"READ\""),
    ("designer", "CODEX_CLI", "\"READ\""),
    ("page-builder", "OPENCODE", "\"READ\", \"EDIT\""),
    ("service-builder", "CODEX_CLI", "\"READ\", \"EDIT\""),
    ("tester", "OPENCODE", "\"READ\""),
    ("auditor", "OPENCODE", "\"READ\""),
    ("reviewer", "CLAUDE_CODE", "\"READ\""),
    ("releaser", "CLAUDE_CODE", "\"READ\", \"EDIT\""),
];

struct Models {
    claude: Model,
    codex: Model,
    opencode: Model,
}

fn answer(value: Value) -> [Turn; 1] {
    [call("", [Call::Answer(value)])]
}

fn gives(value: Value) -> [Turn; 2] {
    [call("", [Call::Output(value.to_string())]), say("Done.")]
}

/// The example with real agents, whose models lead to this verdict.
fn ready(login: bool, verdict: &str) -> (Project, Models) {
    let project = example();
    let at = |name: &str| project.path(name).display().to_string();
    let survey = json!({"findings": "There is a table of tides.", "risks": ["units"], "files": []});
    let claude = [
        answer(survey).to_vec(),
        vec![say("Five points: a table, times, depths, units, a page.")],
        answer(json!({"verdict": verdict, "remarks": []})).to_vec(),
        vec![
            call("", [Call::Write(at("RELEASED"), "released\n".into())]),
            call("", [Call::Answer(json!({"status": "released"}))]),
            say("It is out."),
        ],
    ];
    let codex = [
        vec![say(&json!({"page": "Show it.", "service": "Serve it.", "touches_login": login}).to_string())],
        vec![
            call("", [Call::Run("mkdir -p service && echo high water at six > service/tides.txt".into())]),
            say(&json!({"changed": ["service/tides.txt"]}).to_string()),
        ],
    ];
    let mut opencode = vec![call("", [Call::Write(at("site/tides.html"), "<h1>Tides</h1>\n".into())])];
    opencode.extend(gives(json!({"changed": ["site/tides.html"]})));
    opencode.extend(gives(json!({"passed": true})));
    opencode.extend(login.then(|| gives(json!({"holes": ["a spare key"]}))).into_iter().flatten());
    let models = Models {
        claude: Model::new(claude.concat()),
        codex: Model::new(codex.concat()),
        opencode: Model::new(opencode),
    };
    let agents =
        AGENTS.map(|(name, worker, may)| format!("[agents.{name}]\nworker = \"{worker}\"\ncapabilities = [{may}]\n"));
    let programs = [(CLAUDE, &models.claude), (CODEX, &models.codex), (OPENCODE, &models.opencode)];
    let programs = programs.map(|(kind, model)| kind.config(&project.folder, model.port));
    let rest = "[roles]\nowners = [\"*\"]\n[channels.harbour-log]\nkind = \"file\"\npath = \"told.jsonl\"\n";
    project.folder.write("skein.toml", format!("{}{}{rest}", programs.concat(), agents.concat()));
    (project, models)
}

/// The model and the body of the next request.
fn asked(model: &Model) -> (String, String) {
    let body = model.asked().body;
    let value: Value = serde_json::from_str(&body).expect("a request is JSON");
    (value["model"].as_str().unwrap_or_default().to_owned(), body)
}

alone! {
    fn a_feature_is_built_and_released_when_a_person_agrees() {
        let (project, models) = ready(true, "approved");
        crate::session::run(project.command("memory add --type gotcha").arg("Fathoms are not metres."));
        let waiting = begin(&project, "login page", 6);
        let id = waiting["run_id"].as_str().unwrap();
        assert_eq!(project.read("site/tides.html"), "<h1>Tides</h1>\n");
        assert_eq!(project.read("service/tides.txt"), "high water at six\n");
        project.ends(&format!("approve {id} agree"), 0);
        let run = project.json(&format!("resume {id}"), 0);
        let stages = ["survey", "design", "page", "service", "try", "audit", "review", "agree", "release"];
        let wanted: Value = stages.iter().map(|id| ((*id).to_owned(), json!("success"))).collect();
        assert_eq!(went(&run), wanted, "{run}");
        assert_eq!(project.read("RELEASED"), "released\n");
        assert_eq!(project.read("announced.txt"), format!("login page is out (run {id})\n"));
        let events: Vec<String> = told(&project).into_iter().map(|(event, ..)| event).collect();
        assert_eq!(events, ["start", "complete"]);
        // The agent's own file defines its instructions and its model.
        let (model, survey) = asked(&models.claude);
        assert!(model.contains("haiku"), "{model}");
        for part in ["You look into a question", "# Skill: find-in-code", "High water comes", "Fathoms are not metres."] {
            assert!(survey.contains(part), "{part}: {survey}");
        }
        let (_, design) = asked(&models.codex);
        assert!(design.contains("Five points: a table"), "what was summed up is handed on: {design}");
        // The model from the project's override is the one that is used.
        let review = std::iter::from_fn(|| Some(asked(&models.claude))).find(|(_, body)| body.contains("Be strict about units"));
        let (model, review) = review.unwrap();
        assert!(model.contains("sonnet"), "{model}");
        assert!(review.contains("a spare key") && review.contains("You review what others built"), "{review}");
    }
}

alone! {
    fn what_does_not_pass_is_neither_audited_nor_released() {
        let (project, models) = ready(false, "changes");
        let run = begin(&project, "tide table", 0);
        let went = went(&run);
        for (stage, wanted) in [("audit", "skipped"), ("review", "success"), ("agree", "skipped"), ("release", "skipped")] {
            assert_eq!(went[stage], wanted, "{stage}: {run}");
        }
        assert!(!project.path("RELEASED").exists());
        // No model was asked for more than its part.
        assert_eq!((models.codex.answers(), models.opencode.answers()), (3, 5));
    }
}
