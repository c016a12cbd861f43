//! Processes that end too early or not at all: engines that are killed, signalled or lose their terminal, and workers
//! that fork, hide, flood their output and ignore signals.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    kept::{HELD, Project, lives, until},
    session::{skein, without_name_spaces, wrapped},
};

/// A project whose second step starts with this script.
fn project(begins: &str) -> Project {
    let project = Project::new();
    project.folder.write("held.yaml", HELD.replace("'echo $$ > begun;", &format!("'{begins} echo $$ > begun;")));
    project
}

fn pids(project: &Project, name: &str) -> Vec<String> {
    project.read(name).lines().map(|pid| project.outer_pid(pid)).collect()
}

/// Child processes in the group, in their own session, and of a parent that has exited.
const CHILDREN: &str = "sleep 1000 & echo $! >> kids; setsid sleep 1001 & echo $! >> kids; \
    (setsid sh -c \"echo \\$\\$ >> kids; exec sleep 1002\" &); until [ $(wc -l < kids) -ge 3 ]; do sleep 0.01; done;";

/// C3: all processes that a worker started end with the engine, for any end of the engine.
#[test]
fn a_killed_engine_leaves_nothing_behind() {
    let hidden = "(env -i setsid sh -c \"echo \\$\\$ >> kids; exec sleep 1003 <&- >&- 2>&-\" &); \
        until [ $(wc -l < kids) -ge 4 ]; do sleep 0.01; done;";
    let project = project(&format!("{CHILDREN} {hidden}"));
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    let mut started = pids(&project, "kids");
    started.push(worker);
    assert!(started.len() == 5 && started.iter().all(|pid| lives(pid)), "{started:?}");
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    until("they outlive the engine", || !started.iter().any(|pid| lives(pid)));
    fs::write(project.path("kids"), "").unwrap();
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    project.ended_once(&run);
}

/// C3: without namespaces, no process of the killed engine is left when the step runs again.
#[test]
fn a_killed_engine_leaves_nothing_behind_once_it_is_resumed() {
    let project = project(CHILDREN);
    let going = project.begin_as(&without_name_spaces(&project.command("run held.yaml --format jsonl")));
    let run = going.run();
    project.begun();
    let left = pids(&project, "kids");
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    assert!(left.len() == 3 && left.iter().all(|pid| lives(pid)), "they were cut off, not ended");
    fs::write(project.path("kids"), "").unwrap();
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    assert!(!left.iter().any(|pid| lives(pid)), "they are gone before the step begins again");
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    assert!(!pids(&project, "kids").iter().any(|pid| lives(pid)), "nor does anything outlive its step");
    assert_eq!(project.read("done.txt"), "first\nslow\n");
    project.ended_once(&run);
}

/// C2: a worker hides its processes: another session, no parent, no environment, no pipes.
#[test]
fn what_a_worker_hides_is_ended_with_its_step() {
    let hiding = "(env -i setsid sh -c \"echo \\$\\$ >> kids; exec sleep 1003 <&- >&- 2>&-\" &); \
        until [ -s kids ]; do sleep 0.01; done;";
    let project = project(hiding);
    let going = project.begin("run held.yaml --format jsonl");
    project.begun();
    let hidden = pids(&project, "kids");
    assert!(hidden.len() == 1 && lives(&hidden[0]), "{hidden:?}");
    project.go();
    let (code, lines, errors) = going.end();
    assert!(!lives(&hidden[0]), "{lines}{errors}");
    assert!(code == Some(0) || code == Some(4), "{lines}{errors}");
}

/// A shutdown of the machine or a closed terminal does not end a run: it is interrupted, none of its processes lives
/// on, and it can be resumed.
#[test]
fn a_run_that_is_terminated_is_left_and_can_be_resumed() {
    for signal in [Signal::TERM, Signal::HUP] {
        let project = project(CHILDREN);
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        going.signal(signal);
        let (code, lines, errors) = going.end();
        assert_eq!(code, Some(130), "{lines}{errors}");
        assert!(!lives(&worker) && !pids(&project, "kids").iter().any(|pid| lives(pid)), "{signal:?}");
        assert!(!lines.contains("cancel_asked"), "{lines}");
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        project.go();
        assert_eq!(resumed.end().0, Some(0), "{signal:?}");
        assert_eq!(project.read("done.txt"), "first\nslow\n");
        project.ended_once(&run);
    }
}

/// `script` gives a program a terminal, which closes when `script` is killed.
#[test]
fn a_terminal_that_closes_leaves_the_run() {
    let project = Project::new();
    let mut command = Command::new("script");
    let line = format!("exec {} run held.yaml", env!("CARGO_BIN_EXE_skein"));
    command.args(["-qec", &line, "/dev/null"]).current_dir(&project.folder.0);
    command.envs(skein(&project.folder.0).get_envs().filter_map(|(k, v)| Some((k, v?)))).env_remove("SKEIN_STATE");
    let mut terminal = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("this test needs `script`");
    let worker = project.begun();
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    until("the worker is not ended", || !lives(&worker));
    until("the run is not left", || project.json("runs", 0)["runs"][0]["left"] == true);
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(project.status(&run), "running", "it was not cancelled");
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
}

/// C1: a worker that ignores the stop request is killed after the grace period, with its children.
#[test]
fn a_worker_that_ignores_being_told_to_stop_is_killed() {
    let project = project(&format!("trap \"\" TERM INT HUP; {CHILDREN}"));
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    let worker = project.begun();
    project.ends(&format!("cancel {run}"), 0);
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(4), "{lines}{errors}");
    assert!(!lives(&worker) && !pids(&project, "kids").iter().any(|pid| lives(pid)));
    assert_eq!(project.status(&run), "cancelled");
    project.ended_once(&run);
}

/// C4: for any amount of output, the memory of the engine stays small, and the log has the beginning and the end.
#[test]
fn a_worker_that_floods_its_output_does_not_grow_the_engine() {
    let flood = "echo $$ > begun; cat go >/dev/null; echo the-beginning; head -c 300000000 /dev/zero | tr \"\\\\0\" x; \
        echo; echo the-end;";
    let project = project(flood);
    let mut command = project.command("run held.yaml --format jsonl");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let memory = |what: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with(what)).expect("it is there");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number")
    };
    project.begun();
    let before = memory("VmRSS");
    project.go();
    project.begun();
    let after = memory("VmHWM");
    project.go();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(after.saturating_sub(before) < 48 * 1024, "{before} KiB before, {after} KiB at most");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let log = project.ends(&format!("logs {run} slow"), 0);
    assert!(log.contains("the-beginning") && log.contains("the-end"), "both ends are kept");
    assert!(log.len() < 80_000_000, "{}", log.len());
}

/// A9: of many processes that resume an interrupted run, exactly one gets it.
#[test]
fn of_many_who_resume_a_run_one_has_it() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    let racing: Vec<_> = (0..6).map(|_| project.begin(&format!("resume {run} --format jsonl"))).collect();
    project.begun();
    project.go();
    let ends: Vec<_> = racing.into_iter().map(|going| going.end()).collect();
    // One that comes while the run ends may still report that end.
    assert!(ends.iter().any(|end| end.0 == Some(0)), "{ends:?}");
    assert!(ends.iter().all(|end| end.0 == Some(0) || end.0 == Some(5)), "{ends:?}");
    let begun = ends.iter().filter(|end| end.1.contains("\"attempt_started\"")).count();
    assert_eq!(begun, 1, "{ends:?}");
    assert_eq!(project.read("done.txt"), "first\nslow\n");
    project.ended_once(&run);
}

/// Lets the worker continue. Returns true if the worker reads the pipe.
fn went(project: &Project) -> bool {
    let now = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let pipe = fs::OpenOptions::new().write(true).custom_flags(now).open(project.path("go"));
    pipe.and_then(|mut pipe| pipe.write_all(b"go\n")).is_ok()
}

/// A request to a run at the moment it ends gets an answer, yes or no.
#[test]
fn what_is_said_to_a_run_as_it_ends_is_answered() {
    let mut answers = [0, 0];
    for n in 0..12 {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        let saying = project.begin(&format!("cancel {run}"));
        if n % 2 == 0 {
            // The owner may be done before it gets the request, or have ended the worker.
            until("it neither goes on nor ends", || !lives(&worker) || went(&project));
        }
        let (code, lines, errors) = saying.end();
        let told = format!("{lines}{errors}");
        match code {
            Some(0) => answers[0] += 1,
            Some(5) if told.contains("is over") => answers[1] += 1,
            other => panic!("{other:?}: {told}"),
        }
        let ended = going.end().0;
        assert!(ended == Some(0) || ended == Some(4), "{ended:?}");
        assert_eq!(ended == Some(4), project.status(&run) == "cancelled");
        project.ended_once(&run);
    }
    assert!(answers[0] >= 6, "{answers:?}");
}

/// Every start is durable before its process exists: the journal has the start of every visible worker.
#[test]
fn a_start_is_recorded_before_its_process_exists() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    let events = project.events(&run);
    let started =
        |event: &serde_json::Value| event["path"] == "slow" && event["event"].get("attempt_started").is_some();
    assert!(events.iter().any(started), "{events:?}");
    project.go();
    assert_eq!(going.end().0, Some(0));
}

/// A run uses the definition with which it started, regardless of later changes to its file, also after a crash.
#[test]
fn a_run_does_what_it_was_begun_with() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    project.folder.write("held.yaml", HELD.replace("echo slow", "echo evil").replace("cat go;", ""));
    going.signal(Signal::KILL);
    going.end();
    fs::remove_file(project.path("held.yaml")).unwrap();
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    assert_eq!(project.read("done.txt"), "first\nslow\n");
}

/// Several processes resume one run at once: one gets it, and the others are refused or find it at its next gate. None
/// waits for events that happened before it got the run.
#[test]
fn several_that_resume_a_run_at_once_all_end() {
    use crate::kept::GATED;
    let again =
        "    - {name: last-word, agent: writer, action: \"GATE: Really?\", dependsOn: [publish], timeout: 30m}\n";
    let project = Project::new();
    project.folder.write("gated.yaml", GATED.to_owned() + again);
    let mut had = 0;
    for round in 0..8 {
        let run = project.left("gated.yaml");
        project.ends(&format!("approve {run}"), 0);
        let line = if round % 4 == 3 { "resume --all".to_owned() } else { format!("resume {run}") };
        let format = ["human", "json"][round % 2];
        let line = format!("{line} --no-wait --format {format}");
        let all: Vec<_> = (0..4).map(|_| project.begin(&line)).collect();
        for going in all {
            let (code, out, errors) = going.end();
            assert!(matches!(code, Some(0 | 5 | 6)), "`{line}`: {code:?} {out}{errors}");
            had += usize::from(code == Some(6));
        }
        assert_eq!(project.status(&run), "waiting");
        project.ended_once(&run);
        project.ends(&format!("cancel {run}"), 0);
    }
    assert!(had >= 8, "one of each has it: {had}");
}

/// A process that read the run before another one owned it, and owns it afterwards, sees the changes of the other.
/// `strace` delays the first lock of each of its threads, so that it claims the run a second and a half after it read
/// it.
#[test]
fn one_that_read_a_run_before_another_had_it_does_not_wait_for_ever() {
    use std::{process::Command, thread::sleep, time::Duration};
    let project = Project::new();
    let asks = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: asks}\nspec:\n  description: Writes.\n  \
        domainsInvolved: [editorial]\n  timeout: 1h\n  failurePolicy: abort\n  steps:\n    - {name: draft, agent: \
        holder, action: Write it., timeout: 10m, x-skein: {on_interrupted: ask}}\n";
    project.folder.write("interrupted.yaml", asks);
    project.folder.write(
        "skein.toml",
        "[agents.holder]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat >/dev/null; echo $$ > begun; cat go\"]\n",
    );
    let going = project.begin("run interrupted.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    let mut late = Command::new("strace");
    late.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e"]);
    late.arg("inject=flock:delay_enter=1500000:when=1").arg(env!("CARGO_BIN_EXE_skein"));
    let late = project.begin_as(&wrapped(late, &project.command(&format!("resume {run} --no-wait"))));
    sleep(Duration::from_millis(2_000));
    project.ends(&format!("resume {run} --no-wait"), 6);
    let (code, out, errors) = late.end();
    assert_eq!(code, Some(6), "{out}{errors}");
}
