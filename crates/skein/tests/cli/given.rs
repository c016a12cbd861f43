//! Resources that agents get by name: MCP servers, commands, skills and context modules; and names that are unknown or
//! lead outside the project.

use std::{fs, os::unix::fs::symlink};

use crate::kept::Project;

/// Stores its prompt in `told`, and does nothing else.
const CLERK: &str = "[agents.clerk]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > told\"]\n";

fn stage(more: &str) -> String {
    format!(
        "workflow: {{id: w, name: W}}\nstages:\n  - id: a\n    name: A\n    roles:\n      primary: \"agent:clerk\"\n{more}"
    )
}

fn naming(tool: &str) -> String {
    stage(&format!("      tools: [\"{tool}\"]\n"))
}

fn project(config: &str, workflow: &str) -> Project {
    let project = Project::new();
    project.folder.write("skein.toml", format!("{CLERK}{config}")).write("w.yaml", workflow);
    project
}

const TICKETS: &str = "[mcp.tickets]\ncommand = [\"cat\"]\n";

#[test]
fn a_server_that_is_not_there_is_refused_with_the_nearest() {
    let near = project(TICKETS, &naming("mcp:tickts"));
    let said = near.ends("validate w.yaml", 3);
    assert!(said.contains("SK0701") && said.contains("there is no server `tickts` in the project"), "{said}");
    assert!(said.contains("did you mean `tickets`?") && said.contains("w.yaml:7:20"), "{said}");
    // Without any server nothing can be checked, and nothing starts either.
    let none = project("", &naming("mcp:tickets"));
    let said = none.ends("validate w.yaml", 0);
    assert!(said.contains("SK0702") && said.contains("`[mcp.NAME]` in `skein.toml`"), "{said}");
    let said = none.ends("run w.yaml", 5);
    assert!(said.contains("server `mcp:tickets` is not configured; add `[mcp.tickets]` to skein.toml"), "{said}");
    assert!(none.json("runs", 0)["runs"].as_array().unwrap().is_empty());
}

/// A person who can change a file of the repository must not be able to start programs with it.
#[test]
fn a_repository_attaches_no_server_by_itself() {
    let listed = r#"{"mcpServers": {"tickets": {"command": "cat", "args": ["-u"]},
        "loud": {"command": "cat", "env": {"KEY": "${KEY}"}}}}"#;
    let alone = project("", &naming("mcp:tickets"));
    alone.folder.write(".mcp.json", listed);
    let said = alone.ends("run w.yaml", 5);
    assert!(said.contains("those of .mcp.json are used only with `mcp_json = true` in skein.toml"), "{said}");
    // The setting must precede the first table.
    alone.folder.write("skein.toml", format!("mcp_json = true\n{CLERK}"));
    alone.ends("run w.yaml", 0);
    let shown = alone.json("catalog server tickets", 0);
    assert!(shown.to_string().contains(".mcp.json"), "{shown}");
    alone.folder.write("w.yaml", naming("mcp:loud"));
    let said = alone.ends("run w.yaml", 5);
    assert!(said.contains("uses variables or headers in .mcp.json"), "{said}");
}

#[test]
fn a_server_that_is_half_described_is_refused() {
    for (config, says) in [
        ("[mcp.t]\nenv = { A = \"b\" }\n", "needs a `command` or a `url`"),
        ("[mcp.t]\ncommand = [\"cat\"]\nurl = \"https://x\"\n", "only one is allowed"),
        ("[mcp.t]\nurl = \"ftp://x\"\n", "starts with neither"),
        ("[mcp.t]\nurl = \"https://x\"\nsecrets = [\"K\"]\n", "has a `url`, and so cannot have an environment"),
        ("[mcp.t]\ncommand = [\"cat\"]\nbearer = \"K\"\n", "no `url` to send it to"),
        ("[mcp.t]\ncommand = [\"no-such-program-here\"]\n", "cannot be started"),
        ("[mcp.t]\ncommand = [\"cat\"]\nstart_timeout_ms = 1800001\n", "above the maximum of 30m"),
        ("[mcp.t]\ncommand = [\"cat\"]\nsecrets = [\"K\"]\n", "there is no secret `K`"),
        ("[mcp.t]\ncomand = [\"cat\"]\n", "did you mean `command`?"),
    ] {
        let project = project(config, &naming("mcp:t"));
        let wrong = if config.contains("comand") { 3 } else { 5 };
        let said = project.ends("run w.yaml", wrong);
        assert!(said.contains(says), "{config}: {said}");
    }
    let odd = project("[mcp.\"a.b\"]\ncommand = [\"cat\"]\n", &naming("mcp:a.b"));
    let said = odd.ends("run w.yaml", 5);
    assert!(said.contains("has an invalid name"), "{said}");
}

/// A custom program has no configuration to which a server could be added.
#[test]
fn a_program_of_ones_own_is_given_no_server() {
    let project = project(TICKETS, &naming("mcp:tickets"));
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let plan = project.ends("plan w.yaml", 0);
    assert!(plan.contains("has the server tickets: cat"), "{plan}");
    let log = project.ends(&format!("logs {run}"), 0);
    assert!(log.contains("`mcp:tickets` is available only to coding agents, and this worker is not one"), "{log}");
}

#[test]
fn a_command_is_told_as_instructions() {
    let project = project("", &naming("command:tidy"));
    project.folder.write(".claude/commands/tidy.md", "---\ndescription: x\n---\nTidy up. !`touch run-by-us`\n");
    project.ends("run w.yaml", 0);
    let told = project.read("told");
    assert!(told.contains("# Skill: tidy") && told.contains("Tidy up. !`touch run-by-us`"), "{told}");
    assert!(!project.path("run-by-us").exists());
}

#[test]
fn what_an_agent_is_not_told_is_a_warning_with_the_nearest() {
    let workflow = stage("      tools: [\"skill:tidess\"]\n    context: {modules: [\"ctx:rulse\"]}\n");
    let project = project("", &workflow);
    project.folder.write("context/rules.md", "Be kind.\n").write("skills/tides/SKILL.md", "Look.\n");
    let said = project.ends("validate w.yaml", 0);
    for says in [
        "there is no context module `rulse` in the project, so it is not passed to the agent",
        "did you mean `rules`?",
        "there is no skill `tidess` in the project",
        "did you mean `tides`?",
    ] {
        assert!(said.contains(says), "{says}: {said}");
    }
    project.ends("validate w.yaml --strict", 3);
    project.ends("run w.yaml", 0);
}

/// A name is looked up in folders of the project, and nowhere else.
#[test]
fn a_name_leads_nowhere_else() {
    for (workflow, says) in [
        (stage("    context: {modules: [\"ctx:../secret\"]}\n"), "`ctx:../secret` is not a context module"),
        (stage("    context: {modules: [\"ctx:/etc/passwd\"]}\n"), "`ctx:/etc/passwd` is not a context module"),
        (naming("skill:../secret"), "`skill:../secret` is not a reference to an artifact"),
        (naming("command:a/../../b"), "`command:a/../../b` is not a reference to an artifact"),
    ] {
        let project = project("", &workflow);
        project.folder.write("secret.md", "Nobody is told.\n");
        let said = project.ends("run w.yaml", 3);
        assert!(said.contains(says) && said.contains("w.yaml:"), "{said}");
    }
    // A link that leads out of the project is not followed.
    let outside = crate::session::Folder::new();
    outside.write("secret.md", "Nobody is told.\n");
    let project = project("", &stage("    context: {modules: [\"ctx:rules\"]}\n"));
    fs::create_dir(project.path("context")).unwrap();
    symlink(outside.0.join("secret.md"), project.path("context/rules.md")).unwrap();
    project.ends("run w.yaml", 0);
    assert!(!project.read("told").contains("Nobody is told."));
}

/// A file can only narrow the permissions of an agent. Only the project can extend them.
#[test]
fn the_tools_of_an_agents_file_narrow_what_it_may_do() {
    let agent = "[agents.clerk]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"touch wrote || true\"]\n";
    for (tools, wrote) in [("Read, Grep", false), ("[Read, Bash(ls)]", false), ("Read, Write", true), ("[Edit]", true)]
    {
        let project = Project::new();
        project.folder.write("skein.toml", agent).write("w.yaml", stage(""));
        project.folder.write("agents/clerk.md", format!("---\nname: clerk\ntools: {tools}\n---\nWrite.\n"));
        project.ends("run w.yaml", 0);
        assert_eq!(project.path("wrote").exists(), wrote, "{tools}");
        // The project's own settings take precedence.
        let said = if wrote { "\"READ\"" } else { "\"READ\", \"EDIT\"" };
        let _ = fs::remove_file(project.path("wrote"));
        project.folder.write("skein.toml", format!("{agent}capabilities = [{said}]\n"));
        project.ends("run w.yaml", 0);
        assert_eq!(project.path("wrote").exists(), !wrote, "{tools}, and {said}");
    }
}

/// The worker of each item gets the context modules that select the stage.
#[test]
fn the_items_of_a_stage_are_told_what_is_for_the_stage() {
    let project = Project::new();
    project.folder.write("skein.toml", "[agents.clerk]\nworker = \"CUSTOM\"\ncommand = [\"cat\"]\n").write(
        "w.yaml",
        "workflow: {id: w, name: W}\nconfig: {parameters: {boats: {type: \"array<string>\", default: [ada, eve]}}}\n\
         context: {global_modules: [\"ctx:each\", \"ctx:other\"]}\nstages:\n  - id: each\n    name: Each\n    type: fan_out\n    \
         fan_out:\n      source: \"${{ parameters.boats }}\"\n      stage_template:\n        roles: {primary: \"agent:clerk\"}\n        \
         inputs: {boat: {type: string, source: \"${{ item }}\"}}\n",
    );
    for (name, text) in [("each", "For each."), ("other", "For others.")] {
        let module = format!("---\nselectors: {{workflow_stages: [{name}]}}\n---\n{text}\n");
        project.folder.write(&format!("context/{name}.md"), module);
    }
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    let log = project.ends(&format!("logs {run}"), 0);
    assert_eq!((log.matches("For each.").count(), log.matches("For others.").count()), (2, 0), "{log}");
}
