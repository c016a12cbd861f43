//! Built-in tools: their results, their errors, and that they end like other steps.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
    session::{Folder, folder_for_programs, run},
};

/// A project with a tool for each built-in function, all of one driver.
fn project(steps: &str) -> Project {
    let project = Project::new();
    let names = ["files.read", "files.write", "files.list", "files.exists", "files.remove", "json.merge", "json.pick"];
    let names = names.into_iter().chain(["text.template", "sleep", "git.status", "git.diff"]);
    let mut implements = String::new();
    for name in names {
        project.folder.write(&format!(".tools/{name}/TOOL.md"), tool(name, ""));
        implements += &format!("  - {{ tool: {name} }}\n");
    }
    let about = format!("kind: builtin\nimplements:\n{implements}");
    project.folder.write(".drivers/own/DRIVER.md", driver("own", &about));
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", steps));
    project
}

fn git(project: &Project, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(&project.folder.0).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
    let done = run(command.args(arguments));
    assert_eq!(done.code, 0, "git {arguments:?}: {}", done.err);
}

#[test]
fn functions_read_write_put_together_and_take_out() {
    let steps = "  - { id: write, kind: tool, tool: files.write, inputs: { path: out/a.json, value: { n: 1, who: { name: ada } } } }
  - { id: read, kind: tool, tool: files.read, inputs: { path: out/a.json, as: json } }
  - { id: merge, kind: tool, tool: json.merge, inputs: { values: [$steps.read.value, { n: 2 }] } }
  - { id: pick, kind: tool, tool: json.pick, inputs: { value: $steps.merge.value, paths: { who: /who/name, n: /n } } }
  - { id: text, kind: tool, tool: text.template, inputs: { template: \"{{who}} has {{n}}\", values: $steps.pick } }
  - { id: note, kind: tool, tool: files.write, inputs: { path: note.txt, text: $steps.text.text } }
  - { id: list, kind: tool, tool: files.list, inputs: { path: out } }
  - { id: nap, kind: tool, tool: sleep, inputs: { ms: 1 } }
  - { id: gone, kind: tool, tool: files.remove, inputs: { path: out } }
  - { id: there, kind: tool, tool: files.exists, inputs: { path: out/a.json } }
";
    let project = project(steps);
    let result = project.json("run one", 0);
    assert_eq!(project.read("note.txt"), "ada has 2");
    let output = |id: &str| {
        let steps = result["steps"].as_array().unwrap();
        steps.iter().find(|step| step["path"] == id).unwrap()["outputs"].clone()
    };
    assert_eq!(output("list"), json!({"entries": [{"name": "a.json", "kind": "file"}]}));
    assert_eq!(output("nap"), json!({"slept_ms": 1}));
    assert_eq!(output("there"), json!({"exists": false, "kind": null}));
    let run = result["run_id"].as_str().unwrap();
    project.ended_once(run);
    // No process existed that could leave files.
    assert!(!project.path(&format!(".skein/runs/{run}/attempts")).exists());
}

#[test]
fn functions_say_what_git_sees() {
    let steps = "  - { id: status, kind: tool, tool: git.status }
  - { id: diff, kind: tool, tool: git.diff, inputs: { against: HEAD } }
";
    let project = project(steps);
    std::fs::remove_dir_all(project.path(".git")).unwrap();
    git(&project, &["init", "-q"]);
    project.folder.write("a.txt", "one\n").write(".gitignore", "*\n!a.txt\n");
    git(&project, &["add", "a.txt"]);
    git(&project, &["commit", "-q", "-m", "One"]);
    project.folder.write("a.txt", "two\n");
    let result = project.json("run one", 0);
    let steps = result["steps"].as_array().unwrap();
    assert_eq!(steps[0]["outputs"], json!({"clean": false, "files": [{"path": "a.txt", "status": "M"}]}));
    let diff = steps[1]["outputs"]["diff"].as_str().unwrap();
    assert!(diff.contains("-one") && diff.contains("+two"), "{diff}");
}

/// A repository names programs for many occasions, and none of them runs when the engine calls git.
#[test]
fn nothing_is_run_that_a_repository_or_its_submodules_name() {
    let steps = "  - { id: status, kind: tool, tool: git.status }
  - { id: diff, kind: tool, tool: git.diff, inputs: { against: HEAD } }
";
    let project = project(steps);
    std::fs::remove_dir_all(project.path(".git")).unwrap();
    project.folder.write("a.txt", "one\n").write("sub/b.txt", "one\n").write(".gitignore", "*\n!a.txt\n!sub\n");
    for folder in ["sub", "."] {
        git(&project, &["init", "-q", folder]);
        git(&project, &["-C", folder, "add", "--all", "--force", "."]);
        git(&project, &["-C", folder, "commit", "-q", "-m", "One"]);
    }
    let traces = Folder::new();
    let run_by = |name: &str| format!("touch {}; cat; false", traces.0.join(name).display());
    for folder in [".", "sub"] {
        for key in [
            "core.fsmonitor",
            "core.pager",
            "core.editor",
            "core.sshCommand",
            "core.askPass",
            "core.alternateRefsCommand",
            "credential.helper",
            "diff.external",
            "diff.evil.textconv",
            "diff.evil.command",
            "filter.evil.clean",
            "filter.evil.smudge",
            "filter.evil.process",
            "gpg.program",
            "pager.diff",
            "pager.status",
            "alias.status",
            "alias.diff",
        ] {
            let value = run_by(&format!("{}-{key}", folder.replace('.', "top")));
            let value = if key.starts_with("alias") { format!("!{value}") } else { value };
            git(&project, &["-C", folder, "config", key, &value]);
        }
        git(&project, &["-C", folder, "config", "core.hooksPath", &project.path("hooks").display().to_string()]);
        git(&project, &["-C", folder, "config", "diff.submodule", "diff"]);
        git(&project, &["-C", folder, "config", "status.submoduleSummary", "true"]);
        git(&project, &["-C", folder, "config", "submodule.recurse", "true"]);
        git(&project, &["-C", folder, "config", "include.path", &project.path("more.cfg").display().to_string()]);
        project.folder.write(&format!("{folder}/.gitattributes"), "* filter=evil diff=evil\nb* filter=more\n");
    }
    let more = format!("[core]\n\tfsmonitor = \"{0}\"\n[filter \"more\"]\n\tclean = \"{0}\"\n", run_by("include"));
    project.folder.write("more.cfg", more);
    for hook in ["post-index-change", "fsmonitor-watchman", "reference-transaction"] {
        project.folder.write(&format!("hooks/{hook}"), format!("#!/bin/sh\n{}\n", run_by(hook)));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(project.path(&format!("hooks/{hook}")), mode).unwrap();
    }
    project.folder.write("a.txt", "two\n").write("sub/b.txt", "two\n");
    let clear = || {
        for entry in std::fs::read_dir(&traces.0).unwrap().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    };
    clear();
    let result = project.json("run one", 0);
    let diff = result["steps"][1]["outputs"]["diff"].as_str().unwrap();
    assert!(diff.contains("-one") && diff.contains("+two"), "{diff}");
    let left = || {
        let names = std::fs::read_dir(&traces.0).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name != ".git").collect::<Vec<_>>()
    };
    assert_eq!(left(), [] as [std::ffi::OsString; 0]);
    // A person's git would have run them.
    let mut person = Command::new("git");
    let _ = person.current_dir(&project.folder.0).args(["status"]).output();
    assert!(!left().is_empty(), "the traps work");
}

/// Programs that the engine runs for itself come from folders that no step can write.
#[test]
fn git_and_the_shell_are_not_taken_from_where_steps_or_everyone_can_write() {
    let fake = |folder: &std::path::Path| {
        std::fs::create_dir_all(folder).unwrap();
        for name in ["git", "bash"] {
            let trap = format!("#!/bin/sh\ntouch {}\nexit 1\n", folder.join("trap").display());
            std::fs::write(folder.join(name), trap).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(folder.join(name), mode).unwrap();
        }
    };
    let project = project("  - { id: status, kind: tool, tool: git.status }\n");
    std::fs::remove_dir_all(project.path(".git")).unwrap();
    git(&project, &["init", "-q"]);
    let (granted, open) = (folder_for_programs(), folder_for_programs());
    let places = [project.path("bin"), project.path("node_modules/.bin"), granted.0.join("bin"), open.0.join("bin")];
    places.iter().for_each(|place| fake(place));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(open.0.join("bin"), mode).unwrap();
    let config = project.read("skein.toml");
    project.folder.write("skein.toml", format!("writes = [\"{}\"]\n{config}", granted.0.display()));
    project.folder.write(
        "script.yaml",
        "name: script\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ]\n    instructions: \"true\"\n",
    );
    let usual = std::env::var("PATH").unwrap();
    for place in &places {
        for line in ["run one --format json", "run script.yaml --format json"] {
            let mut command = project.command(line);
            command.env("PATH", format!("{}:{usual}", place.display()));
            let done = run(&mut command);
            assert_eq!(done.code, 0, "{}: {}{}", place.display(), done.out, done.err);
            assert!(!place.join("trap").exists(), "{} was run", place.display());
            let mut alone = project.command(line);
            alone.env("PATH", place);
            let done = run(&mut alone);
            assert!(done.code != 0 && !place.join("trap").exists(), "{}{}", done.out, done.err);
            let said = format!("{}{}", done.out, done.err);
            let why = ["steps work there", "every user can write to", "belongs to a project"];
            assert!(why.iter().any(|why| said.contains(why)), "{}: {said}", place.display());
        }
    }
}

/// The code and message with which a run of one step fails.
fn fails(step: &str) -> (String, String) {
    let project = project(&format!("  - {{ id: only, kind: tool, {step} }}\n"));
    project.folder.write("big.txt", vec![b'x'; 3 << 20]);
    let result = project.json("run one", 4);
    let text = |key: &str| result["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("message"))
}

#[test]
fn functions_stay_in_the_workspace_and_leave_control_files_alone() {
    for (step, code) in [
        ("tool: files.read, inputs: { path: ../x }", "input_invalid"),
        ("tool: files.read, inputs: { path: /etc/passwd }", "input_invalid"),
        ("tool: files.read, inputs: { path: .skein/skein.db }", "unauthorised"),
        ("tool: files.read, inputs: { path: nothing.txt }", "not_found"),
        ("tool: files.read, inputs: { path: big.txt }", "input_invalid"),
        ("tool: files.write, inputs: { path: .git/hooks/pre-commit, text: x }", "unauthorised"),
        ("tool: files.write, inputs: { path: .skein/x, text: x }", "unauthorised"),
        ("tool: files.write, inputs: { path: skein.toml, text: x }", "unauthorised"),
        ("tool: files.write, inputs: { path: .tools/new/TOOL.md, text: x }", "unauthorised"),
        ("tool: files.remove, inputs: { path: .workflows }", "unauthorised"),
        ("tool: files.remove, inputs: { path: .git }", "unauthorised"),
        ("tool: files.write, inputs: { path: a.txt }", "input_invalid"),
        ("tool: json.merge, inputs: { values: 3 }", "input_invalid"),
        ("tool: text.template, inputs: { template: \"{{who}}\", values: {} }", "input_invalid"),
        ("tool: git.diff, inputs: { against: \"--output=x\" }", "upstream_error"),
        ("tool: sleep, inputs: { ms: soon }", "input_invalid"),
    ] {
        let (found, message) = fails(step);
        assert_eq!(found, code, "{step}: {message}");
        assert!(!message.is_empty(), "{step}");
    }
}

#[test]
fn what_a_function_takes_and_gives_is_checked_by_the_tool() {
    let project = project("  - { id: only, kind: tool, tool: sleep, inputs: { ms: 1 } }\n");
    let strict = |part: &str, rule: &str| {
        let any = format!("{part}: {{ type: object }}");
        tool("sleep", "").replace(&any, &format!("{part}: {{ type: object, {rule} }}"))
    };
    for (part, rule, code) in [
        ("inputs", "properties: { ms: { minimum: 5 } }", "input_invalid"),
        ("outputs", "required: [x]", "output_invalid"),
    ] {
        project.folder.write(".tools/sleep/TOOL.md", strict(part, rule));
        assert_eq!(project.json("run one", 4)["error"]["code"], code);
    }
}

#[test]
fn a_function_that_there_is_not_is_refused_before_the_run() {
    let project = project("  - { id: only, kind: tool, tool: sleep, inputs: { ms: 1 } }\n");
    let about = "kind: builtin\nimplements: [{ tool: sleep, metadata: { builtin: { function: shell.run } } }]\n";
    project.folder.write(".drivers/own/DRIVER.md", driver("own", about));
    let said = project.ends("run one", 5);
    assert!(said.contains("the unknown function `shell.run`") && said.contains("files.read"), "{said}");
}

#[test]
fn a_sleep_is_late_and_can_be_cancelled() {
    let project = project("  - { id: only, kind: tool, tool: sleep, inputs: { ms: 600000 }, timeout_ms: 200 }\n");
    let result = project.json("run one", 4);
    assert_eq!(result["steps"][0]["status"], "timed_out", "{result}");
    let long = workflow("one", "  - { id: only, kind: tool, tool: sleep, inputs: { ms: 600000 } }\n");
    project.folder.write(".workflows/one/WORKFLOW.md", long);
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    going.until("attempt_started");
    project.ends(&format!("cancel {run}"), 0);
    assert_eq!(going.end().0, Some(4));
    assert_eq!(project.status(&run), "cancelled");
    project.ended_once(&run);
}

/// An interrupted call is repeated, like that of any tool that changes nothing.
#[test]
fn a_function_that_was_cut_off_is_done_again() {
    let project = project("  - { id: only, kind: tool, tool: sleep, inputs: { ms: 600000 } }\n");
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    going.until("attempt_started");
    going.signal(rustix::process::Signal::KILL);
    going.end();
    let again = project.begin(&format!("resume {run} --format jsonl"));
    again.until("attempt_started");
    project.ends(&format!("cancel {run}"), 0);
    again.end();
    let events = project.events(&run);
    let interrupted = events.iter().any(|event: &Value| event.to_string().contains("interrupted"));
    assert!(interrupted, "{events:?}");
    project.ended_once(&run);
}
