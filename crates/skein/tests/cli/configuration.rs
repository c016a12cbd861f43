//! `skein.toml`: its documentation page, and the environment of steps.

use std::fs;

use serde_json::json;

use crate::{
    kept::Project,
    session::{repository, run},
};

fn page() -> String {
    fs::read_to_string(repository().join("docs/configuration.md")).expect("the page is there")
}

#[test]
fn every_example_of_the_configuration_page_is_read() {
    let page = page();
    let examples: Vec<&str> =
        page.split("```").skip(1).step_by(2).filter_map(|part| part.strip_prefix("toml\n")).collect();
    assert!(examples.len() >= 8, "the page has {} examples", examples.len());
    for example in examples {
        let project = Project::new();
        project.folder.write("skein.toml", example);
        project.ends("validate held.yaml", 0);
    }
}

/// An unknown setting is refused with a list of all settings, so the program itself defines what the page must contain.
#[test]
fn every_setting_is_on_the_configuration_page() {
    let page = page();
    let tables =
        ["", "[agents.x]", "[workers.CLAUDE_CODE]", "[mcp.x]", "[drivers]", "[channels.x]", "[memory]", "[estimate]"];
    let mut settings = 0;
    for table in tables {
        let project = Project::new();
        project.folder.write("skein.toml", format!("{table}\nqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"));
        let said = project.ends("validate held.yaml", 3);
        let known = said.split_once("expected one of ").unwrap_or_else(|| panic!("{table}: {said}")).1;
        let known = known.lines().next().unwrap();
        for name in known.split(", ").map(str::trim) {
            let written = [format!("`{name}`"), format!("`[{name}"), format!(" {name}`"), format!("\n{name} = ")];
            assert!(written.iter().any(|form| page.contains(form)), "{table} {name} is not on the page");
            settings += 1;
        }
    }
    assert!(settings > 40, "{settings}");
}

const USES: &str = "name: uses\nversion: \"1\"\ntimeout: 10m\nsteps:\n  build:\n    worker: CUSTOM\n    \
    capabilities: [READ, EDIT]\n    instructions: |\n      OWN=1; echo \"$OWN [$SKEIN_TEST_FOO] ${SKEINLESS:-none} $HOME\"\n  \
    quiet:\n    worker: CUSTOM\n    capabilities: [READ]\n    instructions: 'echo $PATH'\n";

/// A variable that a script uses, that is set here and that no step gets is named by `plan` and `run`.
#[test]
fn a_variable_that_is_not_passed_is_told() {
    let project = Project::new();
    project.folder.write("flow.yaml", USES);
    let skein = |line: &str| {
        let mut command = project.command(line);
        run(command.env("SKEINLESS", "set here").env("OWN", "other").env("SKEIN_TEST_FOO", "x"))
    };
    let told = "SKEINLESS is not passed to steps; add it to pass_env in skein.toml (used by build)";
    let planned = skein("plan flow.yaml");
    assert!(planned.out.contains(told), "{}", planned.out);
    assert_eq!(planned.out.matches("is not passed").count(), 1, "{}", planned.out);
    let object: serde_json::Value = serde_json::from_str(&skein("plan flow.yaml --format json").out).unwrap();
    assert_eq!(object["not_passed"], json!([{"variable": "SKEINLESS", "steps": ["build"]}]));
    let ran = skein("run flow.yaml");
    assert!(ran.err.contains(told), "{}{}", ran.err, ran.out);
    let id = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert!(project.ends(&format!("logs {id} build"), 0).contains(" none "), "steps have it only if it is passed");
    project.folder.write("skein.toml", "pass_env = [\"SKEINLESS\"]\n");
    let ran = skein("run flow.yaml");
    assert!(!ran.err.contains("is not passed"), "{}", ran.err);
    let id = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert!(project.ends(&format!("logs {id} build"), 0).contains(" set here "));
    // Without the variable in the environment there is no message.
    project.folder.write("skein.toml", "");
    assert!(!project.ends("plan flow.yaml", 0).contains("is not passed"));
}
