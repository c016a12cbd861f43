//! Agents that try more than they may: what their own permissions let through, the wall stops.

use super::{
    for_each_agent,
    kind::{CODEX, Kind},
    model::{Call, Model, call, say},
};
use crate::kept::Project;

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

/// Whatever it runs is behind the same wall: files outside, the journal, and what the person has set up for others.
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

/// Codex cannot edit without running commands, so there the wall is what holds.
fn a_command_that_is_not_allowed_is_stopped(kind: Kind) {
    let model = Model::new([call("", [Call::Run("touch ran.txt ../ran.txt".into())]), say("I tried.")]);
    let project = project(kind, &model, "READ, EDIT");
    project.skein("run flow.yaml");
    assert_eq!(project.path("inside/ran.txt").exists(), kind.word == CODEX.word);
    assert!(!project.path("ran.txt").exists());
    assert!(model.answers() >= 2, "it did try");
}
