//! An agent that checks the work of another.

use super::{
    alone::for_each_agent,
    kind::{CODEX, Kind},
    model::{Call, Model, call, say},
};
use crate::kept::Project;

const CHECKED: &str = "name: checked\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Write it.\n    capabilities: [READ, EDIT]\n    max_iterations: 3\n    completion_check:\n      \
    worker: AGENT\n      instructions: Look whether it is written.\n      capabilities: [READ]\n      \
    decision_file: .decision.json\n";

for_each_agent!(a_checker_decides);

fn a_checker_decides(kind: Kind) {
    let project = Project::new();
    let decides = |word: &str, reason: &str| {
        let decision =
            format!("{{\"check_id\": \"CHECK_ID\", \"decision\": \"{word}\", \"reasons\": [\"{reason}\"]}}");
        // One that may write nothing says it.
        match kind.word == CODEX.word {
            true => vec![say(&decision)],
            false => vec![call("", [Call::Decide(decision)]), say("I have decided.")],
        }
    };
    let mut turns = vec![say("It is written.")];
    turns.extend(decides("incomplete", "the second page is missing"));
    turns.push(say("Now it is written."));
    turns.extend(decides("complete", ""));
    let model = Model::new(turns);
    project.folder.write("skein.toml", kind.config(&project.folder, model.port));
    project.folder.write("flow.yaml", CHECKED.replace("AGENT", kind.word));
    let result = project.json("run flow.yaml", 0);
    assert_eq!(result["steps"][0]["iterations"], 2, "{result}");
    let asked = model.all_asked();
    let told = asked.iter().filter(|asked| asked.body.contains("the second page is missing")).count();
    assert!(told > 0, "the next round is told what the check said");
    assert!(
        asked[0].body.contains("Write it.") && !asked[0].body.contains("check_id"),
        "only the checker has the id"
    );
    let served = model.answers() * kind.service.tokens();
    assert_eq!(result["cost"]["tokens"], served, "checks are counted, too");
}
