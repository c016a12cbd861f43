//! The examples for agents, end to end: real agents, each with a scripted model.

use std::process::Command;

use serde_json::Value;

use super::{
    alone::alone,
    kind::{CLAUDE, CODEX, Kind, OPENCODE},
    model::{Call, Model, Turn, call, say},
};
use crate::{kept::Project, session::repository};

/// An example in its own project, in a folder with room for others beside it.
struct Example {
    project: Project,
    file: String,
}

impl Example {
    fn new(name: &str, agents: &[(Kind, &Model)]) -> Example {
        let project = Project::new();
        let source = repository().join("examples/agentcore/agents").join(name);
        let text = std::fs::read_to_string(&source).expect("the example is there");
        let config: String = agents.iter().map(|(kind, model)| kind.config(&project.folder, model.port)).collect();
        project.folder.write("skein.toml", config).write(name, text);
        Example { project, file: name.to_owned() }
    }

    fn run(&self, more: &str) -> Value {
        let result = self.project.json(&format!("run {} {more}", self.file), 0);
        for step in result["steps"].as_array().expect("it has steps") {
            assert_eq!(step["status"], "succeeded", "{step}");
        }
        result
    }

    /// The output of a step, as it is stored for other steps.
    fn gave(&self, path: &str) -> String {
        self.project.read(&format!("context/{path}"))
    }
}

fn runs(command: &str) -> Turn {
    call("", [Call::Run(command.to_owned())])
}

fn leaves(name: &str, text: &str) -> Turn {
    call("", [Call::Leave(name.to_owned(), text.to_owned())])
}

alone! {
    fn what_was_written_is_tested_reviewed_and_settled() {
        let codex = Model::new([
            runs("mkdir -p src && echo 'echo hello' > src/greeting.sh"),
            say("Written."),
            runs("./test.sh > tests.txt; true"),
            say("Tested."),
            runs("grep -q loudly review/review.md && grep -q FAILED tests/tests.txt && echo 'echo HELLO' > src/greeting.sh"),
            say("Settled."),
        ]);
        let claude = Model::new([leaves("review.md", "It should greet loudly.\n"), say("Reviewed.")]);
        let example = Example::new("review-and-settle.yaml", &[(CODEX, &codex), (CLAUDE, &claude)]);
        example.project.folder.write("REQUEST.md", "A loud greeting.\n");
        example.project.folder.write("test.sh", "#!/bin/sh\ngrep -q HELLO src/greeting.sh && echo passed || echo FAILED\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(example.project.path("test.sh"), mode).expect("it is ours");
        let result = example.run("");
        assert_eq!(example.gave("write/first/src/greeting.sh"), "echo hello\n");
        assert_eq!(example.gave("test/tests/tests.txt"), "FAILED\n");
        assert_eq!(example.gave("review/review/review.md"), "It should greet loudly.\n");
        assert_eq!(example.gave("settle/code/src/greeting.sh"), "echo HELLO\n");
        assert!(!example.project.path("review.md").exists(), "one that only reads writes nothing here");
        let meta: Value = serde_json::from_str(&example.gave("settle/_meta.json")).expect("it is JSON");
        assert_eq!((&meta["status"], &meta["workerKind"]), (&"SUCCEEDED".into(), &"CODEX_CLI".into()), "{meta}");
        let spent = codex.answers() * CODEX.service.tokens() + claude.answers() * CLAUDE.service.tokens();
        assert_eq!(result["cost"]["tokens"], spent);
    }
}

alone! {
    fn one_plan_is_carried_out_in_two_repositories() {
        let codex = Model::new([Turn::Each(Call::Run("cp plan/rename.md settings.txt".into()), "Done.".into())]);
        let claude = Model::new([
            leaves("rename.md", "colour: theme\n"),
            say("Planned."),
            leaves("same.md", "They are the same.\n"),
            say("Compared."),
        ]);
        let example = Example::new("rename-everywhere.yaml", &[(CODEX, &codex), (CLAUDE, &claude)]);
        let beside = [Project::new(), Project::new()];
        let roots: String = beside.iter().map(|other| format!(" --allow-root {}", other.folder.0.display())).collect();
        let mut text = example.project.read(&example.file);
        for (name, other) in ["../shop", "../till"].iter().zip(&beside) {
            text = text.replace(name, &format!("../{}", other.folder.0.file_name().unwrap().to_str().unwrap()));
        }
        example.project.folder.write(&example.file, text);
        example.run(&roots);
        for other in &beside {
            assert_eq!(other.read("settings.txt"), "colour: theme\n");
        }
        assert_eq!(example.gave("till/settings/settings.txt"), "colour: theme\n");
        assert_eq!(example.gave("compare/same/same.md"), "They are the same.\n");
    }
}

alone! {
    /// Each round does an item. One round does nothing, and one changes a protected file, is told so, and repairs it.
    fn a_list_is_worked_off_until_nothing_is_open() {
        let done = |item: &str| runs(&format!("mkdir -p src && touch src/{item} && sed -i 's/\\[ \\] {item}/[x] {item}/' todo.md"));
        let codex = Model::new([
            done("one"),
            say("One is done."),
            say("I did nothing."),
            call("", [Call::Run("touch elsewhere src/two && sed -i 's/\\[ \\] two/[x] two/' todo.md".into())]),
            say("Two is done."),
            runs("rm elsewhere"),
            say("It is gone."),
        ]);
        let open = "{\"check_id\": \"CHECK_ID\", \"decision\": \"incomplete\", \"reasons\": [\"two is open\"], \"fingerprints\": [\"two\"]}";
        let complete = "{\"check_id\": \"CHECK_ID\", \"decision\": \"complete\"}";
        let decides = [open, open, complete, complete];
        let claude = Model::new(decides.iter().flat_map(|decision| [call("", [Call::Decide((*decision).into())]), say("Decided.")]));
        let opencode = Model::new([leaves("report.md", "one: code/src/one\n"), say("Reported.")]);
        let example = Example::new("todo.yaml", &[(CODEX, &codex), (CLAUDE, &claude), (OPENCODE, &opencode)]);
        example.project.folder.write("todo.md", "- [ ] one\n- [ ] two\n");
        repository_of(&example.project);
        let result = example.run("");
        assert_eq!(result["steps"][0]["iterations"], 4, "{result}");
        assert_eq!(example.gave("work/list/todo.md"), "- [x] one\n- [x] two\n");
        assert_eq!(example.gave("report/report/report.md"), "one: code/src/one\n");
        let told: Vec<String> = codex.all_asked().into_iter().map(|asked| asked.body).collect();
        assert!(told.iter().any(|body| body.contains("The same item is still open")), "the second stage is told");
        assert!(told.last().is_some_and(|body| body.contains("files outside `allowed_paths`")), "and what it must not");
        assert!(example.gave("work/_convergence/state.json").contains("stage"));
    }
}

fn repository_of(project: &Project) {
    std::fs::remove_dir_all(project.path(".git")).expect("it is empty");
    std::fs::write(project.path(".gitignore"), ".skein\nbegun\ngo\n*.yaml\n*.toml\n*.json\n*.md~\n")
        .expect("it is ours");
    for line in ["init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm first"] {
        let mut git = Command::new("git");
        git.args(line.split(' ')).current_dir(&project.folder.0);
        assert!(git.status().expect("git is there").success(), "git {line}");
    }
}
