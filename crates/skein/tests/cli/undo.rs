//! Undo that fails or is interrupted: the run reports the steps that were not undone, and `resume` tries again (F5,
//! F6).

use rustix::process::Signal;

use crate::kept::Project;

/// Books, and cancels its booking on undo: not while `shut` exists, and it waits for `go` if `slow` exists.
const DESK: &str = "asked=$(cat)\ncase \"$asked\" in\n\
    *Cancel*) echo \"undo $SKEIN_STEP\" >> said\n\
    if [ -e slow ]; then echo $$ > begun; cat go >/dev/null; fi\n\
    if [ -e shut ]; then echo 'the desk is shut' >&2; exit 1; fi\n\
    rm \"booked-$SKEIN_STEP\" ;;\n\
    *Charge*) echo 'the card was refused' >&2; exit 1 ;;\n\
    *) echo yes > \"booked-$SKEIN_STEP\" ;;\nesac\n";

const TRIP: &str = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: trip}\nspec:\n  \
    description: Books a trip, or nothing at all.\n  domainsInvolved: [travel]\n  timeout: 2m\n  \
    failurePolicy: compensate\n  steps:\n    \
    - {name: train, agent: booker, action: Book the train., timeout: 30s}\n    \
    - {name: room, agent: booker, action: Book a room., dependsOn: [train], timeout: 30s}\n    \
    - {name: charge, agent: booker, action: Charge the card., dependsOn: [room], timeout: 30s}\n  \
    compensation:\n    - {step: room, action: Cancel the room., agent: booker}\n    \
    - {step: train, action: Cancel the ticket., agent: booker}\n";

fn project() -> Project {
    let project = Project::new();
    project.folder.write("trip.yaml", TRIP).write("desk.sh", DESK);
    project.folder.write("skein.toml", "[agents.booker]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"desk.sh\"]\n");
    project
}

fn booked(project: &Project) -> Vec<bool> {
    ["train", "room"].iter().map(|name| project.path(&format!("booked-{name}")).exists()).collect()
}

#[test]
fn what_could_not_be_undone_is_told_and_tried_again_by_resume() {
    let project = project();
    project.folder.write("shut", "");
    let told = project.ends("run trip.yaml", 4);
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert!(told.contains("not undone") && told.contains("the desk is shut"), "{told}");
    assert!(told.contains(&format!("skein resume {run}")), "{told}");
    assert_eq!(project.status(&run), "undo_failed");
    let summary = project.ends(&format!("runs {run}"), 0);
    assert!(summary.contains("room: could not be undone: ") && summary.contains("the desk is shut"), "{summary}");
    let undo = project.json(&format!("runs {run}"), 0)["undo"].clone();
    assert_eq!(undo["failed"][0]["step"], "room", "{undo}");
    assert!(undo["failed"][0]["error"]["message"].as_str().unwrap().contains("the desk is shut"), "{undo}");
    assert_eq!(booked(&project), [true, true]);
    // Still shut: the undo is tried, and fails as before.
    project.ends(&format!("resume {run}"), 4);
    assert_eq!(project.status(&run), "undo_failed");
    std::fs::remove_file(project.path("shut")).unwrap();
    let again = project.json(&format!("resume {run}"), 4);
    assert_eq!(again["status"], "undone", "{again}");
    assert!(again["undo"].get("failed").is_none(), "{again}");
    assert_eq!(booked(&project), [false, false]);
    assert!(project.ends(&format!("resume {run}"), 5).contains("is over"));
    project.ended_once(&run);
}

/// The engine is killed in the middle of an undo: the undo runs again, and no step goes forward.
#[test]
fn an_undo_that_was_cut_off_goes_on_and_never_forward() {
    let project = project();
    project.folder.write("slow", "");
    let going = project.begin("run trip.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    std::fs::remove_file(project.path("slow")).unwrap();
    project.go();
    let (code, lines, errors) = resumed.end();
    assert_eq!(code, Some(4), "{lines}{errors}");
    assert_eq!(project.status(&run), "undone");
    assert_eq!(booked(&project), [false, false]);
    let said = project.read("said");
    let order: Vec<&str> = said.lines().collect();
    assert_eq!(order.first(), Some(&"undo room"), "{said}");
    assert_eq!(order.last(), Some(&"undo train"), "last first, and never back: {said}");
    project.ended_once(&run);
}

/// Several processes retry the undo at once: each step is undone once, each process gets an answer, and none waits
/// forever.
#[test]
fn of_many_who_try_an_undo_again_each_is_answered() {
    let project = project();
    project.folder.write("shut", "");
    project.ends("run trip.yaml", 4);
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    std::fs::remove_file(project.path("shut")).unwrap();
    std::fs::remove_file(project.path("said")).unwrap();
    let racing: Vec<_> = (0..5).map(|_| project.begin(&format!("resume {run}"))).collect();
    let ends: Vec<_> = racing.into_iter().map(|going| going.end()).collect();
    assert!(ends.iter().any(|end| end.0 == Some(4)), "{ends:?}");
    assert!(ends.iter().all(|end| end.0 == Some(4) || end.0 == Some(5)), "{ends:?}");
    assert_eq!(project.status(&run), "undone");
    assert_eq!(project.read("said"), "undo room\nundo train\n", "each once");
    assert_eq!(booked(&project), [false, false]);
    project.ended_once(&run);
}

/// An undo that is interrupted too often is abandoned and reported; a person may retry it.
#[test]
fn an_undo_that_was_cut_off_too_often_is_tried_again_by_resume() {
    let project = project();
    project.folder.write("slow", "");
    let going = project.begin("run trip.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    for _ in 0..2 {
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        resumed.signal(Signal::KILL);
        resumed.end();
    }
    std::fs::remove_file(project.path("slow")).unwrap();
    let told = project.ends(&format!("resume {run}"), 4);
    assert_eq!(project.status(&run), "undo_failed", "{told}");
    assert!(told.contains("not undone") && told.contains(&format!("skein resume {run}")), "{told}");
    assert_eq!(project.json(&format!("resume {run}"), 4)["status"], "undone");
    assert_eq!(booked(&project), [false, false]);
    project.ended_once(&run);
}
