//! Two runs never write one context folder: the second is refused while the first goes on.

use rustix::process::Signal;

use crate::kept::{HELD, Project};

fn project() -> Project {
    let project = Project::new();
    let other = HELD.replace("name: held", "name: other").replace("$$ > begun; cat go", ":");
    project.folder.write("other.yaml", &other);
    project.folder.write("apart.yaml", other.replace("timeout: 10m", "timeout: 10m\ncontext_dir: ./apart"));
    project
}

#[test]
fn a_second_run_in_the_same_context_folder_is_refused() {
    let project = project();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    let before = project.read("context/first/_meta.json");
    assert!(!before.is_empty());
    for line in ["run other.yaml", "run other.yaml --detach"] {
        let no = project.ends(line, 5);
        assert!(no.contains(&format!("run {run} is at work with the context folder")), "{no}");
        assert!(no.contains(&format!("skein cancel {run}")) && no.contains("context_dir"), "{no}");
    }
    assert_eq!(project.json("runs", 0)["runs"].as_array().unwrap().len(), 1, "nothing was begun");
    // One with a folder of its own is no hindrance, nor is one that has none.
    project.ends("run apart.yaml", 0);
    project.ends("run asks.md --no-wait", 6);
    assert_eq!(project.read("context/first/_meta.json"), before, "the first keeps its folder");
    project.go();
    assert_eq!(going.end().0, Some(0));
    project.ends("run other.yaml", 0);
    assert!(
        !project.read("context/_workflow.json").contains(&run),
        "what a run left that is over is replaced"
    );
}

/// A run that was killed holds nothing. When it goes on, it has the folder again, unless another is at work there.
#[test]
fn a_context_folder_is_free_when_its_run_was_killed() {
    let project = project();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    project.ends("run other.yaml", 0);
    let other = project.begin("run held.yaml --format jsonl");
    let second = other.run();
    project.begun();
    let no = project.ends(&format!("resume {run}"), 5);
    assert!(no.contains(&format!("run {second} is at work with the context folder")), "{no}");
    let no = project.ends("resume --all", 5);
    assert!(no.contains(&format!("run {run} is left: run {second} is at work")), "{no}");
    project.go();
    assert_eq!(other.end().0, Some(0));
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    assert!(project.read("context/_workflow.json").contains(&run), "the folder tells of it again");
}
