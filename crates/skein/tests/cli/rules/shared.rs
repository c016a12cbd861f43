//! Rules that hold for all four formats.

use crate::kept::Project;

/// The second step depends on the first, but the field is misspelt.
const MISSPELT: &str = "apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: demo}
spec:
  description: Two steps.
  domainsInvolved: [growth]
  timeout: 5m
  steps:
    - {name: first, agent: writer, action: Do it, timeout: 1m}
    - {name: second, agent: writer, action: Do it, timeout: 1m, depends_on: [first]}
";

#[test]
fn run_prints_the_warnings_of_validate() {
    let project = Project::new();
    project.folder.write("w.yaml", MISSPELT);
    let warned = "a step has no field `depends_on`";
    let said = project.ends("run w.yaml", 0);
    assert!(said.contains(warned) && said.contains("w.yaml:10:"), "{said}");
    let validated = project.json("validate w.yaml", 0)["diagnostics"].clone();
    assert!(validated.to_string().contains(warned), "{validated}");
    let result = project.json("run w.yaml", 0);
    assert_eq!(result["diagnostics"], validated);
    // The run stores them.
    let run = result["run_id"].as_str().unwrap();
    assert_eq!(project.json(&format!("runs {run}"), 0)["diagnostics"], validated);
    let detached = project.json("run w.yaml --detach", 0);
    assert_eq!(detached["diagnostics"], validated);
    // JSON lines are on standard output, and warnings for people are not.
    let lines = project.skein("run w.yaml --format jsonl");
    assert!(lines.err.contains(warned) && !lines.out.contains(warned), "{}{}", lines.out, lines.err);
}

fn failing(error: &str, retry: &str) -> Project {
    let project = Project::new();
    project.folder.write(
        "w.yaml",
        format!(
            "name: w\nversion: \"1\"\ntimeout: 5m\nsteps:\n  a:\n    worker: CUSTOM\n    capabilities: [RUN_COMMANDS, EDIT]\n    \
             instructions: |\n      echo x >> tries.txt\n      echo '{error}' > \"$SKEIN_ERROR\"\n      exit 1\n{retry}"
        ),
    );
    project
}

#[test]
fn a_class_with_a_hyphen_is_known() {
    let project = failing(r#"{"class": "non-retryable"}"#, "    on_failure: retry\n    max_retries: 2\n");
    let result = project.json("run w.yaml", 4);
    assert_eq!(result["steps"][0]["error"]["class"], "non_retryable");
    assert_eq!(project.read("tries.txt"), "x\n");
}

#[test]
fn an_unknown_class_is_refused_loudly() {
    let project =
        failing(r#"{"class": "flaky", "message": "it broke"}"#, "    on_failure: retry\n    max_retries: 2\n");
    let result = project.json("run w.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!((error["class"].as_str(), error["code"].as_str()), (Some("non_retryable"), Some("unknown_error_class")));
    let message = error["message"].as_str().unwrap();
    for part in ["unknown class `flaky`", "SKEIN_ERROR", "rate_limit", "it broke"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(project.read("tries.txt"), "x\n");
}

/// Files of other systems that also have `steps` or `stages`.
const FOREIGN: &[(&str, &str)] = &[
    (
        ".gitlab-ci.yml",
        "workflow:\n  name: Pipeline\nstages: [build, test]\nbuild:\n  stage: build\n  script: [make]\n",
    ),
    ("cloudbuild.yaml", "steps:\n  - name: gcr.io/cloud-builders/docker\n    args: [build, .]\ntimeout: 1200s\n"),
    ("azure-pipelines.yml", "trigger: [main]\nstages:\n  - stage: Build\n    jobs:\n      - job: make\n"),
    ("azure-steps.yml", "name: build\npool: {vmImage: ubuntu-latest}\nsteps:\n  - script: make\n"),
    ("pipeline.yml", "steps:\n  - label: Test\n    command: make test\n  - wait\n"),
    ("codefresh.yml", "version: '1.0'\nstages: [a]\nsteps:\n  clone:\n    type: git-clone\n"),
    ("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1}\n"),
    ("chart.yaml", "name: {{ .Values.name }}\nimage: {{ .Values.image }}\n"),
];

#[test]
fn validate_skips_files_of_a_folder_that_are_not_workflows() {
    let project = Project::new();
    project.folder.write("tree/held.yaml", project.read("held.yaml"));
    for (name, text) in FOREIGN {
        project.folder.write(&format!("tree/{name}"), text);
    }
    // JSON objects that this program prints are skipped, too.
    let mut skipped = FOREIGN.len();
    for command in ["plan held.yaml", "show held.yaml", "list", "schema swdl", "validate held.yaml"] {
        let done = project.skein(&format!("{command} --format json"));
        let name = command.replace(' ', "-");
        project.folder.write(&format!("tree/{name}.json"), &done.out);
        skipped += 1;
    }
    let run = project.left("asks.md");
    let done = project.skein(&format!("runs {run} --format json"));
    project.folder.write("tree/run.json", &done.out);
    skipped += 1;
    let said = project.ends("validate tree", 0);
    assert!(said.contains(&format!("{skipped} files that are not workflows were skipped")), "{said}");
    let object = project.json("validate tree", 0);
    assert_eq!(object["skipped"], skipped);
    // A file that is named explicitly is checked.
    for (name, _) in FOREIGN {
        project.ends(&format!("validate tree/{name}"), 3);
    }
}

#[test]
fn validate_judges_broken_workflows_of_a_folder() {
    for text in [
        "workflow: {id: w}\nstages: [a]\n",
        "stages:\n  - id: a\n    nmae: A\n",
        "name: w\nversion: \"1\"\ntimeout: 5 minutes\nsteps: {a: {worker: CUSTOM}}\n",
        "name: w\nsteps:\n  a: {instructions: [\n",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nspec: {steps: []}\n",
    ] {
        let project = Project::new();
        project.folder.write("tree/w.yaml", text);
        project.ends("validate tree", 3);
    }
    let project = Project::new();
    project.folder.write("tree/a/WORKFLOW.md", "---\nsteps: []\n---\n");
    project.ends("validate tree", 3);
}

/// The outputs of `run`, `runs`, `runs RUN` and `events` for a run that fails.
fn printed(project: &Project, file: &str) -> String {
    let ran = project.ends(&format!("run {file}"), 4);
    [ran, project.ends("runs", 0), project.ends("runs -", 0), project.ends("events", 0)].join("\n")
}

#[test]
fn people_read_the_words_of_agentcore() {
    let project = Project::new();
    let step = |id: &str, script: &str, more: &str| {
        format!("  {id}:\n    worker: CUSTOM\n    capabilities: [READ]\n    instructions: {script}\n{more}")
    };
    let steps = [
        step("a", "exit 0", ""),
        step("b", "exit 1", "    depends_on: [a]\n"),
        step("c", "exit 0", "    depends_on: [b]\n"),
    ];
    project.folder.write("w.yaml", format!("name: w\nversion: \"1\"\ntimeout: 5m\nsteps:\n{}", steps.concat()));
    let said = printed(&project, "w.yaml");
    for part in [
        "1 SUCCEEDED, 1 FAILED, 1 SKIPPED",
        "FAILED in ",
        "a: SUCCEEDED\n",
        "run FAILED",
        "`b` failed and the workflow aborts",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("succeeded") && !said.contains("policy is"), "{said}");
}

#[test]
fn people_read_the_words_of_swdl() {
    let project = Project::new();
    let agent = |name: &str, script: &str| {
        format!("[agents.{name}]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n")
    };
    project.folder.write("skein.toml", agent("good", "true") + &agent("bad", "exit 1"));
    let stage = |id: &str, agent: &str, more: &str| {
        format!(
            "  - id: {id}\n    name: {id}\n    roles: {{primary: \"agent:{agent}\"}}\n    error_policy: {{retry: {{max_attempts: 1}}}}\n{more}"
        )
    };
    let stages = [
        stage("aa", "good", ""),
        stage("bb", "bad", "    depends_on: [aa]\n"),
        stage("cc", "good", "    depends_on: [bb]\n"),
    ];
    project.folder.write("w.yaml", format!("workflow: {{id: w, name: W}}\nstages:\n{}", stages.concat()));
    let said = printed(&project, "w.yaml");
    for part in ["1 success, 1 failed, 1 skipped", "aa: success\n", "`bb` failed and `on_failure` is `halt`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("succeeded") && !said.contains("abort"), "{said}");
}
