//! Runs that are listed, shown, stopped, left, killed and resumed.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kept::{Project, at_a_terminal, lives, until},
    session::Folder,
};

#[test]
fn where_nothing_was_run_there_are_no_runs() {
    let folder = Folder::new();
    let mut session = crate::session::Session::within(&folder.0);
    session.skein("runs", 0).skein("runs --format json", 0).skein("runs one", 5).skein("events one", 5);
    session.skein("logs one", 5).skein("approve one two", 5).skein("signal one two", 5).skein("cancel one", 5);
    session.skein("resume", 5).skein("resume one --format json", 5).skein("resume --all", 0);
    session.skein("runs --format jsonl", 2).skein("list --format jsonl", 2).skein("logs one two --attempt x", 2);
    session.is("runs-none");
    assert!(!folder.0.join(".skein").exists(), "looking makes nothing");
}

#[test]
fn lists_of_runs_are_filtered_and_say_how_many_more_there_are() {
    let project = Project::new();
    let (waits, second) = (project.left("asks.md"), project.left("gated.yaml"));
    project.ends(&format!("cancel {second}"), 0);
    let ids = |line: &str| {
        let list = project.json(line, 0);
        let runs = list["runs"].as_array().unwrap().clone();
        let ids: Vec<String> = runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
        (ids, list["more"].as_u64().unwrap())
    };
    let both = || vec![second.to_string(), waits.to_string()];
    assert_eq!(ids("runs"), (both(), 0));
    assert_eq!(ids("runs --limit 1"), (vec![second.to_string()], 1));
    assert_eq!(ids("runs --status waiting"), (vec![waits.to_string()], 0));
    assert_eq!(ids("runs --status waiting --status CANCELLED"), (both(), 0));
    assert_eq!(ids("runs --workflow gated"), (vec![second.to_string()], 0));
    assert_eq!(ids("runs --workflow gated --status waiting"), (Vec::new(), 0));
    assert_eq!(ids("runs --since 1h"), (both(), 0));
    assert_eq!(ids("runs --since 2999-01-01"), (Vec::new(), 0));
    assert!(project.ends("runs --limit 1", 0).contains("1 more; `--limit 2` shows them"));
    assert!(project.ends("runs --status undone", 0).contains("No runs match."));
    project.ends("runs --limit 0", 2);
    project.ends("runs --since yesterday", 2);
    // Commands that only read use the newest run if none is named.
    assert_eq!(project.json("runs -", 0)["run_id"], second.as_str());
    assert_eq!(project.json("events", 0)["run_id"], second.as_str());
    assert_eq!(project.json("logs", 0)["run_id"], second.as_str());
    project.ends("cancel -", 5);
}

#[test]
fn runs_are_listed_newest_first_and_shown_one_by_one() {
    let project = Project::new();
    let (first, second) = (project.left("asks.md"), project.left("gated.yaml"));
    let list = project.json("runs", 0);
    let ids: Vec<&str> = list["runs"].as_array().unwrap().iter().filter_map(|run| run["run_id"].as_str()).collect();
    assert_eq!(ids, [second.as_str(), first.as_str()]);
    let newest = &list["runs"][0];
    assert_eq!(newest["workflow"]["id"], "gated");
    assert_eq!((newest["status"].as_str(), newest["left"].as_bool()), (Some("waiting"), Some(true)));
    assert!(newest["started_at"].is_string() && newest["finished_at"].is_null(), "{newest}");
    let table = project.ends("runs --limit 1", 0);
    assert!(table.starts_with(&second) && table.contains("waits at sign-off") && !table.contains(&first), "{table}");
    let one = project.ends(&format!("runs {second}"), 0);
    for part in ["completed", "draft", "sign-off", "Blocked after", &format!("skein resume {second}")] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let object = project.json(&format!("runs {second}"), 0);
    assert_eq!(object["run_id"], second.as_str());
    assert_eq!(object["steps"].as_array().unwrap().len(), 3);
}

#[test]
fn what_happened_is_told_in_order() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let told = project.ends(&format!("events {run}"), 0);
    let at = |part: &str| told.find(part).unwrap_or_else(|| panic!("{part}: {told}"));
    assert!(at("run started") < at("draft: started") && at("draft: completed") < at("sign-off"));
    let events = project.events(&run);
    let lines = project.ends(&format!("events {run} --format jsonl"), 0);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events, lines);
    assert!(events.iter().enumerate().all(|(i, event)| event["seq"] == i));
}

#[test]
fn logs_are_shown_without_what_a_terminal_obeys() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    let all = project.ends(&format!("logs {run}"), 0);
    assert!(all.contains("── first, attempt 1") && !all.contains('\u{1b}'), "{all:?}");
    let one = project.ends(&format!("logs {run} first --attempt 1"), 0);
    assert!(one.starts_with('a') && one.ends_with("b\n") && !one.contains('\u{1b}'), "{one:?}");
    assert_eq!(project.ends(&format!("logs {run} first --raw"), 0), "a\u{1b}[31mb\n");
    let object = project.json(&format!("logs {run} first"), 0);
    assert_eq!((object["logs"][0]["bytes"].as_u64(), object["logs"][0]["role"].as_str()), (Some(8), Some("main")));
    assert_eq!(
        project.ends(&format!("logs {run} first --prompt"), 0),
        "echo first >> done.txt; printf 'a\\033[31mb\\n'"
    );
    assert!(project.ends(&format!("logs {run} frist"), 5).contains("did you mean `first`?"));
    assert!(project.ends(&format!("logs {run} first --attempt 2"), 5).contains("has no attempt 2"));
    let following = project.begin(&format!("logs {run} --follow"));
    following.until("── first");
    project.go();
    following.until("go");
    assert_eq!(following.end().0, Some(0), "it ends with the run");
    assert_eq!(going.end().0, Some(0));
}

#[test]
fn a_run_of_another_process_is_followed_to_its_end() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    let people = project.begin(&format!("runs {run} --follow"));
    let programs = project.begin(&format!("runs {run} --follow --format jsonl"));
    people.until("first");
    programs.until("attempt_started");
    let again = project.ends(&format!("resume {run}"), 5);
    assert!(again.contains("is being run by"), "{again}");
    project.go();
    programs.until("run_decided");
    people.until("SUCCEEDED in");
    assert_eq!((people.end().0, programs.end().0, going.end().0), (Some(0), Some(0), Some(0)));
}

#[test]
fn a_run_is_cancelled_by_another_process() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    let said = project.ends(&format!("cancel {run} --reason enough"), 0);
    assert!(said.contains("was told to stop"), "{said}");
    assert_eq!(going.end().0, Some(4), "someone else cancelled it");
    assert!(!lives(&worker), "nothing of it is left");
    let object = project.json(&format!("runs {run}"), 0);
    assert_eq!((object["status"].as_str(), object["cancel"]["reason"].as_str()), (Some("cancelled"), Some("enough")));
    assert!(project.ends(&format!("cancel {run}"), 5).contains("is over"));
}

#[test]
fn a_run_that_nobody_has_is_cancelled_to_its_end() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let said = project.json(&format!("cancel {run}"), 0);
    assert_eq!(said["status"], "cancelled");
    assert_eq!(project.status(&run), "cancelled");
    assert_eq!(project.read("done.txt"), "draft\n", "nothing goes forward");
    let run = project.left("asks.md");
    assert!(project.ends(&format!("cancel {run}"), 0).contains("cancelled"));
    project.ended_once(&run);
}

#[test]
fn stopping_at_the_terminal_once_cancels() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    going.signal(Signal::INT);
    going.until("cancel_asked");
    let (code, _, errors) = going.end();
    assert_eq!(code, Some(130));
    let told = format!("press Ctrl-C again to leave it at once, and `skein resume {run}` finishes the cancellation");
    assert!(errors.contains(&told), "{errors}");
    assert!(!lives(&worker));
    assert_eq!(project.status(&run), "cancelled");
}

/// At a terminal, the remaining grace period of a worker that does not stop is counted down.
#[test]
fn stopping_at_the_terminal_says_what_happens_and_counts_down() {
    let project = Project::new();
    let stubborn = crate::kept::HELD.replace("echo $$ > begun", "trap \"\" TERM; echo $$ > begun");
    project.folder.write("held.yaml", stubborn);
    let (going, mut input) = at_a_terminal(&project.folder, "run held.yaml");
    project.begun();
    std::io::Write::write_all(&mut input, b"\x03").unwrap();
    going.until("cancelling run ");
    going.until("slow (killed in ");
    std::io::Write::write_all(&mut input, b"\x03").unwrap();
    assert_eq!(going.end().0, Some(130));
}

#[test]
fn stopping_at_the_terminal_twice_leaves_it() {
    let project = Project::new();
    let stubborn = crate::kept::HELD.replace("echo $$ > begun", "trap \"\" TERM; echo $$ > begun");
    project.folder.write("held.yaml", stubborn);
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    going.signal(Signal::INT);
    going.until("cancel_asked");
    going.signal(Signal::INT);
    assert_eq!(going.end().0, Some(130));
    // Resuming the run finishes the cancellation, and does nothing else.
    let result = project.json(&format!("resume {run}"), 4);
    assert_eq!(result["status"], "cancelled");
    assert!(!lives(&worker));
    project.ended_once(&run);
}

#[test]
fn a_run_whose_process_was_killed_is_named_reaped_and_finished() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    until("it outlives its engine", || !lives(&worker));
    let list = project.ends("runs", 0);
    assert!(list.contains("interrupted"), "{list}");
    let other = project.skein("run asks.md --no-wait");
    assert_eq!(other.code, 6, "{}", other.err);
    assert!(other.err.contains(&format!("`skein resume {run}`")), "{}", other.err);
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    let (code, lines, errors) = resumed.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    assert!(!lines.contains("run_started"), "what was shown before is not shown again");
    assert_eq!(project.status(&run), "succeeded");
    assert_eq!(project.read("done.txt"), "first\nslow\n", "each was done once");
    project.ended_once(&run);
    let interrupted = project.events(&run).iter().filter(|event| event.to_string().contains("interrupted")).count();
    assert!(interrupted > 0);
}

#[test]
fn all_runs_that_were_left_are_gone_on_with() {
    let project = Project::new();
    let (one, two) = (project.left("gated.yaml"), project.left("gated.yaml"));
    let several = project.ends("resume", 2);
    assert!(several.contains("2 runs can be resumed") && several.contains("--all"), "{several}");
    project.ends(&format!("approve {one}"), 0);
    let told = project.ends("resume --all --no-wait", 6);
    assert!(told.contains(&format!("{one}  publish: completed")), "{told}");
    assert!(told.contains(&format!("{two}  resumed")), "{told}");
    project.ends(&format!("approve {two}"), 0);
    let all = project.json("resume --all", 0);
    assert_eq!(all["runs"][0]["run_id"], two.as_str());
    assert_eq!(all["runs"][0]["status"], "succeeded");
    assert_eq!(project.json("resume --all", 0)["runs"], serde_json::json!([]));
}

#[test]
fn a_run_goes_on_in_the_background() {
    let project = Project::new();
    let said = project.json("run held.yaml --detach", 0);
    let run = said["run_id"].as_str().unwrap();
    let following = project.begin(&format!("runs {run} --follow"));
    project.begun();
    assert_eq!(project.status(run), "running");
    project.go();
    following.until("SUCCEEDED in");
    assert_eq!(following.end().0, Some(0));
    let printed = std::fs::read_to_string(said["output"].as_str().unwrap()).unwrap();
    assert!(printed.contains("SUCCEEDED") && !printed.contains('\u{1b}'), "{printed}");
    let again = project.left("asks.md");
    let told = project.ends(&format!("resume {again} --detach"), 0);
    assert!(told.contains(&format!("skein runs {again} --follow")), "{told}");
    project.ends(&format!("cancel {again}"), 0);
}
