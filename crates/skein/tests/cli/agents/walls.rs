//! Agents that exceed their permissions: the sandbox stops whatever their own permissions let through.

use super::{
    alone::{alone, for_each_agent},
    apart::as_person,
    kind::{CLAUDE, CODEX, Kind},
    model::{Call, Model, call, say},
};
use crate::{
    kept::Project,
    session::{run, without_name_spaces},
};

const TRIES: &str = "name: tries\nversion: \"1\"\ntimeout: 10m\nsteps:\n  try:\n    worker: AGENT\n    workspace: inside\n    \
    instructions: Try it.\n    capabilities: [CAPABILITIES]\n";

for_each_agent!(
    commands_write_in_the_workspace_alone,
    an_edit_that_is_not_allowed_is_stopped,
    a_command_that_is_not_allowed_is_stopped
);

fn project(kind: Kind, model: &Model, capabilities: &str) -> Project {
    let project = kind.project(model, &TRIES.replace("CAPABILITIES", capabilities));
    project.folder.write("inside/there", "as it was\n");
    project
}

/// All commands run in the same sandbox: it protects outside files, the journal, and the user's setup for other agents.
fn commands_write_in_the_workspace_alone(kind: Kind) {
    let tries = "echo x > ../outside.txt; ls ../.skein/skein.db > seen.txt; echo x > /tmp/skein-outside.txt; \
                 (setsid sh -c 'echo x > ../daemon.txt'); echo in > done.txt";
    let model = Model::new([call("", [Call::Run(tries.into())]), say("I tried.")]);
    let project = project(kind, &model, "READ, EDIT, RUN_COMMANDS");
    project.json("run flow.yaml", 0);
    assert_eq!(project.read("inside/done.txt"), "in\n");
    assert_eq!(project.read("inside/seen.txt"), "");
    for outside in ["outside.txt", "daemon.txt"] {
        assert!(!project.path(outside).exists(), "{outside}");
    }
    assert!(!std::path::Path::new("/tmp/skein-outside.txt").exists());
}

fn an_edit_that_is_not_allowed_is_stopped(kind: Kind) {
    let file = |project: &Project, name: &str| project.path(name).display().to_string();
    let place = Project::new();
    let (own, outside) = (file(&place, "inside/there"), file(&place, "outside.txt"));
    let model = Model::new([
        call("", [Call::Write(own, "changed\n".into())]),
        call("", [Call::Write(outside, "changed\n".into())]),
        say("I tried."),
    ]);
    place.folder.write("inside/there", "as it was\n");
    place.folder.write("skein.toml", kind.config(&place.folder, model.port));
    let flow = TRIES.replace("AGENT", kind.word).replace("CAPABILITIES", "READ");
    place.folder.write("flow.yaml", flow);
    place.skein("run flow.yaml");
    assert_eq!(place.read("inside/there"), "as it was\n");
    assert!(!place.path("outside.txt").exists());
    assert!(model.answers() >= 2, "it did try");
}

/// Codex cannot edit without running commands, so there only the sandbox stops it.
fn a_command_that_is_not_allowed_is_stopped(kind: Kind) {
    let model = Model::new([call("", [Call::Run("touch ran.txt ../ran.txt".into())]), say("I tried.")]);
    let project = project(kind, &model, "READ, EDIT");
    project.skein("run flow.yaml");
    assert_eq!(project.path("inside/ran.txt").exists(), kind.word == CODEX.word);
    assert!(!project.path("ran.txt").exists());
    assert!(model.answers() >= 2, "it did try");
}

alone! {
    /// Of the user's setup for agents, an agent sees only its own login.
    fn what_is_set_up_for_others_is_hidden() {
        let tries = "cat ../person/.codex/auth.json ../person/.claude/history > seen.txt; \
                     cat ../person/.claude/.credentials.json > own.txt; true";
        let model = Model::new([call("", [Call::Run(tries.into())]), say("I tried.")]);
        let project = project(CLAUDE, &model, "READ, EDIT, RUN_COMMANDS");
        for file in [".codex/auth.json", ".claude/history", ".claude/.credentials.json"] {
            project.folder.write(&format!("person/{file}"), "{}");
        }
        let done = run(&mut as_person(&project, "run flow.yaml"));
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        assert_eq!(
            (project.read("inside/seen.txt").as_str(), project.read("inside/own.txt").as_str()),
            ("", "{}")
        );
    }
}

alone! {
    /// An agent must reach its model. Its commands need not, if something can keep them from the network.
    fn commands_without_a_network_are_kept_from_it_or_refused() {
        let flow = |kind: Kind| TRIES.replace("AGENT", kind.word) + "    x-skein: { network: none }\n";
        let model = Model::new([say("I am never asked.")]);
        let refused = project(CLAUDE, &model, "READ, EDIT, RUN_COMMANDS");
        refused.folder.write("flow.yaml", flow(CLAUDE).replace("CAPABILITIES", "READ, EDIT, RUN_COMMANDS"));
        let told = refused.ends("run flow.yaml", 4);
        assert!(told.contains("network access of the commands of CLAUDE_CODE cannot be blocked"), "{told}");
        assert_eq!(model.answers(), 0);
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("it has one").port();
        let reach = format!("bash -c ': > /dev/tcp/127.0.0.1/{port}' && touch reached.txt; touch tried.txt");
        let model = Model::new([call("", [Call::Run(reach)]), say("I tried.")]);
        let kept = project(CODEX, &model, "READ, EDIT, RUN_COMMANDS");
        kept.folder.write("flow.yaml", flow(CODEX).replace("CAPABILITIES", "READ, EDIT, RUN_COMMANDS"));
        kept.json("run flow.yaml", 0);
        assert!(kept.path("inside/tried.txt").exists() && !kept.path("inside/reached.txt").exists());
    }
}

alone! {
    /// If mounts are not permitted, Codex cannot have its own sandbox, and runs with Landlock rules alone.
    fn codex_works_behind_rules() {
        let tries = "touch in.txt ../out.txt";
        let model = Model::new([call("", [Call::Run(tries.into())]), say("I tried.")]);
        let project = project(CODEX, &model, "READ, EDIT");
        let done = run(&mut without_name_spaces(&project.command("run flow.yaml")));
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        assert!(project.path("inside/in.txt").exists() && !project.path("out.txt").exists());
    }
}
