//! Steps in worktrees: the files that they see, and the merge of their changes.

use std::{fs, os::unix::fs::PermissionsExt};

use super::{apart, changes, flow, kept, of, repository, step, trees};
use crate::run::git;

/// Two steps that change one file concurrently, each in its own worktree, and a third that sees both changes.
#[test]
fn what_steps_change_side_by_side_is_merged() {
    let left = "cat open.txt > seen.txt; sed -i s/one/ONE/ a.txt; chmod +x a.txt; ln -s a.txt link.log";
    let right = "sed -i s/seven/SEVEN/ a.txt; mkdir -p deep/er; echo new > deep/er/new.txt; echo x > ignored";
    let steps = [apart("left", "", left), apart("right", "", right)].concat()
        + &step("after", "depends_on: [left, right]", "grep ONE a.txt; grep SEVEN a.txt; cat deep/er/new.txt");
    let project = repository(&flow(&steps));
    let before = (project.read(".git/index"), git(&project.folder, &["log", "--all", "--format=%H"]));
    let told = project.ends("validate flow.yaml", 0);
    assert!(!told.contains("warning"), "{told}");
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("a.txt"), "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n");
    assert_eq!(project.read("seen.txt"), "nobody has committed this\n");
    assert_eq!(project.read("deep/er/new.txt"), "new\n");
    assert!(!project.path("ignored").exists(), "what git ignores is no change");
    assert!(fs::metadata(project.path("a.txt")).unwrap().permissions().mode() & 0o100 != 0);
    // The repository itself did not change.
    let after = (project.read(".git/index"), git(&project.folder, &["log", "--all", "--format=%H"]));
    assert_eq!(before, after);
    assert!(!git(&project.folder, &["worktree", "list"]).contains(".skein"));
    assert!(trees(&project, &result).is_empty(), "what is merged is not kept");
    let diff = changes(&project, &result, "0.0.1.1.main.1");
    assert!(diff.contains("-one\n+ONE\n") && !diff.contains("SEVEN"), "{diff}");
    let run = result["run_id"].as_str().unwrap();
    let shown = project.ends(&format!("logs {run} right --changes"), 0);
    assert!(shown.contains("-seven\n+SEVEN\n") && shown.contains("+new\n"), "{shown}");
    let whole = project.ends(&format!("logs {run} --changes"), 0);
    assert!(whole.contains("-one\n+ONE\n") && whole.contains("-seven\n+SEVEN\n"), "both are in one diff: {whole}");
    assert_eq!(whole.matches("diff --git a/a.txt").count(), 1, "{whole}");
    let files = project.json(&format!("logs {run}"), 0)["changes"].clone();
    assert_eq!(files.as_array().map(Vec::len), Some(1), "{files}");
    let logs = project.json(&format!("logs {run} right"), 0);
    assert!(logs["logs"][0]["changes"].as_str().unwrap().ends_with("changes.diff"), "{logs}");
}

/// The second step with conflicting changes fails, and leaves the workspace unchanged.
#[test]
fn changes_that_do_not_fit_are_a_failure_of_their_own() {
    let second = "cat go; sed -i s/one/second/ a.txt; echo more > more.txt";
    let first = apart("first", "", "sed -i s/one/first/ a.txt");
    let steps = first + &apart("second", "", second);
    // The pipe is not in a worktree, so the worker uses its absolute path.
    let project = repository("");
    let whole = |name: &str| project.path(name).display().to_string();
    let steps = steps.replace("cat go", &format!("cat {}", whole("go")));
    project.folder.write("flow.yaml", flow(&steps));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    let merged = |line: &str| line.contains("\"step_ended\"") && line.contains("[0,0]");
    while !merged(&going.until("step_ended")) {}
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(4), "{lines}{errors}");
    let result = project.json(&format!("runs {run}"), 0);
    let error = &of(&result, "second")["error"];
    assert_eq!((&error["class"], &error["code"]), (&"non_retryable".into(), &"merge_conflict".into()), "{result}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`a.txt`") && !message.contains("more.txt"), "{message}");
    assert_eq!(project.read("a.txt"), "first\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    assert!(!project.path("more.txt").exists(), "nothing of it is merged");
    let left = trees(&project, &result);
    assert_eq!(left.len(), 1);
    assert!(message.contains(left[0].to_str().unwrap()), "{message}");
    assert_eq!(fs::read_to_string(left[0].join("more.txt")).unwrap(), "more\n");
    assert_eq!(fs::read_to_string(left[0].parent().unwrap().join("conflicts")).unwrap(), "a.txt\n");
    let told = project.ends(&format!("runs {run}"), 0);
    assert!(told.contains("Not merged") && told.contains(left[0].to_str().unwrap()), "{told}");
}

#[test]
fn a_tree_that_is_not_merged_is_kept_and_named() {
    let steps = apart("stays", ", merge: false", "echo x > stays.txt") + &apart("idle", ", merge: false", "true");
    let project = repository(&flow(&steps));
    let plan = project.ends("plan flow.yaml", 0);
    assert!(plan.contains("works in a worktree of its own, where its changes stay"), "{plan}");
    let told = project.ends("run flow.yaml", 0);
    let result = project.json("runs", 0)["runs"][0].clone();
    let left = trees(&project, &result);
    assert_eq!(left.len(), 1, "who changed nothing leaves nothing");
    assert!(told.contains(&format!("stays: {}", left[0].display())), "{told}");
    assert!(left[0].join("stays.txt").exists() && !project.path("stays.txt").exists());
}

/// All rounds of a check happen in the worktree, and only complete work is merged.
#[test]
fn work_that_is_checked_is_merged_when_it_is_complete() {
    let check = "completion_check:\n      worker: CUSTOM\n      capabilities: [READ]\n      timeout: 1m\n      instructions: test \"$(wc -l < rounds)\" -eq 3\n    \
                 max_iterations: 5\n    x-skein: {workspace: {isolation: worktree}}";
    let count = format!("echo round >> rounds; test ! -e {}", "WHOLE/rounds");
    let project = repository("");
    let whole = project.folder.0.display().to_string();
    project.folder.write("flow.yaml", flow(&step("count", check, &count.replace("WHOLE", &whole))));
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("rounds"), "round\nround\nround\n");
    assert!(trees(&project, &result).is_empty());
}

/// Each item has its own worktree.
#[test]
fn items_have_a_tree_each() {
    let workflow = "workflow: {id: items, name: Items, version: \"1.0.0\"}\nconfig: {parameters: {names: {type: \"array<string>\", default: [x, y, z]}}}\n\
        stages:\n  - id: all\n    name: All\n    \
        type: fan_out\n    x-skein: {workspace: {isolation: worktree}}\n    fan_out:\n      source: \"${{ parameters.names }}\"\n      \
        stage_template:\n        roles: {primary: \"agent:writer\"}\n        inputs:\n          name: {type: string, source: \"${{ item }}\"}\n";
    let project = repository(workflow);
    let script = "cat > /dev/null; n=$(tr -dc xyz < $SKEIN_INPUTS | tail -c 1); pwd > $n.item";
    project.folder.write(
        "skein.toml",
        format!("[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"bash\", \"-c\", '''{script}''']\ncapabilities = [\"READ\", \"EDIT\"]\n"),
    );
    let result = project.json("run flow.yaml", 0);
    let mut places = ["x", "y", "z"].map(|name| project.read(&format!("{name}.item"))).to_vec();
    places.sort();
    places.dedup();
    assert!(places.len() == 3 && places.iter().all(|place| place.contains("/trees/")), "{places:?}");
    assert!(trees(&project, &result).is_empty());
}

/// A step in a part of the repository sees all of it, and writes only in its part.
#[test]
fn a_tree_is_of_the_whole_repository() {
    let script = "basename $PWD; cat ../a.txt > copy.txt; echo x > ../outside.txt && exit 7; git log -1 --format=%s HEAD~1; \
                  git add copy.txt && git commit --quiet --message mine && git status --short";
    let more = "workspace: part\n    x-skein: {workspace: {isolation: worktree}}";
    let project = repository(&flow(&step("it", more, script)));
    project.folder.write("part/there.txt", "x\n");
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("part/copy.txt"), project.read("a.txt"));
    assert!(!project.path("outside.txt").exists());
    let log = fs::read_to_string(kept(&project, &result).join("attempts/0.0.1.1.main.1/log")).unwrap();
    assert!(log.starts_with("part\n") && log.contains("begin\n") && !log.contains("copy.txt"), "{log}");
    assert_eq!(git(&project.folder, &["log", "--format=%s"]), "begin\n", "what it commits stays there");
}

/// The changes of a step in the shared workspace are shown, too, without secrets and truncated to the limit.
#[test]
fn what_a_step_changes_in_the_workspace_is_told() {
    let more = "x-skein: {secrets: [TOKEN]}";
    let script = "echo \"$TOKEN\" > new.txt; rm a.txt; yes 0123456789abcdef | head -n 400000 > zz.txt; head -c 17000000 /dev/zero > big";
    let project = repository(&flow(&step("it", more, script)));
    project.folder.write("skein.toml", "[secrets]\nTOKEN = { env = \"TOKEN\" }\n");
    let mut command = project.command("run flow.yaml --format json");
    let done = crate::session::run(command.env("TOKEN", "hush-hush-hush"));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let result = serde_json::from_str(&done.out).unwrap();
    let diff = changes(&project, &result, "0.0.1.1.main.1");
    assert!(diff.contains("deleted file") && diff.contains("b/new.txt"), "{}", &diff[..400]);
    assert!(!diff.contains("hush-hush"), "{}", &diff[..400]);
    assert!(diff.len() < 4_200_000 && diff.contains("\n# cut here: "), "{}", diff.len());
    assert!(diff.ends_with("# 1 file larger than 16777216 bytes not compared\n"), "{}", &diff[diff.len() - 200..]);
    assert_eq!(project.read("new.txt"), "hush-hush-hush\n");
}

/// The guards of a check are evaluated in the worktree.
#[test]
fn guards_look_into_the_tree() {
    let check = "completion_check:\n      worker: CUSTOM\n      capabilities: [READ]\n      timeout: 1m\n      instructions: 'true'\n    \
        max_iterations: 3\n    convergence: {enabled: true, stall_threshold: 2, allowed_paths: [src]}\n    \
        x-skein: {workspace: {isolation: worktree}}";
    let script = "mkdir -p src; echo x > src/x; if [ $SKEIN_ITERATION -eq 1 ]; then echo x > outside.txt; else rm -f outside.txt; fi";
    let project = repository(&flow(&step("it", check, script)));
    let result = project.json("run flow.yaml", 0);
    assert_eq!(of(&result, "it")["iterations"], 2, "{result}");
    assert!(project.path("src/x").exists() && !project.path("outside.txt").exists());
}
