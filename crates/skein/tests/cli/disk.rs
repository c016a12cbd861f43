//! Disks that are full, cannot be synced, are read-only, or are gone, as seen at the command line.
//!
//! Small disks are mounted in a private namespace, where nobody else sees them; `strace` makes system calls fail.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::Value;

use crate::{
    kept::{GATED, HELD, Project},
    session::{Done, run, skein, state_home},
};

/// Runs a script in a namespace where file systems can be mounted, in the folder of the project; `$SKEIN` is the
/// program, and `disk` an empty folder.
fn in_namespace(project: &Project, script: &str) -> Done {
    fs::create_dir_all(project.path("disk")).expect("a folder can be made");
    let spaces: &[&str] =
        if rustix::process::getuid().is_root() { &["--mount"] } else { &["--map-root-user", "--mount"] };
    let mut command = Command::new("unshare");
    command.args(spaces).args(["sh", "-c", &format!("set -eu\n{script}")]).current_dir(&project.folder.0);
    command.env("SKEIN", env!("CARGO_BIN_EXE_skein")).env_remove("SKEIN_STATE").env("TERM", "xterm");
    command.env("XDG_STATE_HOME", state_home());
    let done = run(&mut command);
    assert!(
        done.code == 0,
        "this test needs `unshare` of util-linux and a tmpfs in a mount namespace, and what follows to go well:\n{}{}",
        done.out,
        done.err
    );
    done
}

/// A5: no run starts that could not be stored, and the reason is reported.
#[test]
fn a_run_on_a_full_disk_does_not_begin() {
    let project = Project::new();
    let script = "mount -t tmpfs -o size=30m none disk\n\
        $SKEIN --state disk/s runs\n\
        $SKEIN --state disk/s run asks.md --no-wait >/dev/null || echo left $?\n\
        dd if=/dev/zero of=disk/fill bs=64k 2>/dev/null || true\n\
        for how in '' --detach '--format json'; do\n\
        $SKEIN --state disk/s run held.yaml $how 2>&1 || echo exit $?\n\
        done\n\
        $SKEIN --state disk/s runs\n\
        rm disk/fill\n\
        $SKEIN --state disk/s run asks.md --no-wait >/dev/null || echo left $?\n";
    let done = in_namespace(&project, script);
    assert_eq!(done.out.matches("disk full: no space left for the journal; free some").count(), 3, "{}", done.out);
    assert_eq!(done.out.matches("exit 8").count(), 3, "{}", done.out);
    assert_eq!(done.out.matches("left 6").count(), 2, "one before, and one when there is space: {}", done.out);
    assert_eq!(done.out.matches("waits at agree").count(), 1, "what was there is there still: {}", done.out);
    assert_eq!(project.read("done.txt"), "", "nobody has worked");
}

/// A5: the disk fills up during a run. The run reports it once, waits, and continues by itself when there is space; the
/// output of its worker in between is cut, and marked.
#[test]
fn a_run_whose_disk_fills_up_goes_on_when_there_is_space() {
    let project = Project::new();
    let printing = HELD.replace("cat go; echo slow", "cat go; seq 20000; echo slow");
    let third = "  third:\n    worker: CUSTOM\n    depends_on: [slow]\n    capabilities: [READ, EDIT]\n    \
        instructions: echo third >> done.txt\n";
    project.folder.write("held.yaml", printing + third);
    let script = "mount -t tmpfs -o size=48m none disk\n\
        $SKEIN --state disk/s run held.yaml --format jsonl > out 2> err & run=$!\n\
        cat begun >/dev/null\n\
        dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null || true\n\
        echo > go\n\
        until grep -q 'disk full' err; do sleep 0.01; done\n\
        grep -c step_ended out\n\
        rm disk/fill\n\
        wait $run && echo exit $?\n\
        cat err\n\
        $SKEIN --state disk/s runs\n\
        id=$($SKEIN --state disk/s runs | cut -d' ' -f1)\n\
        $SKEIN --state disk/s events $id --format json > events\n\
        $SKEIN --state disk/s logs $id slow | tail -n 1\n";
    let done = in_namespace(&project, script);
    assert!(done.out.starts_with("1\nexit 0\n"), "nothing was told that was not kept: {}", done.out);
    assert_eq!(done.out.matches("the run is paused until space is available").count(), 1, "{}", done.out);
    assert_eq!(done.out.matches("disk space is available again").count(), 1, "{}", done.out);
    assert!(done.out.contains("SUCCEEDED"), "{}", done.out);
    assert_eq!(project.read("done.txt"), "first\nslow\nthird\n", "each was done once");
    let last = done.out.lines().last().unwrap_or_default();
    assert!(last.contains("[skein: the log ends here: ") && last.contains("No space left"), "{last}");
    let events: Value = serde_json::from_str(&project.read("events")).expect("it is JSON");
    let told = project.read("out");
    assert_eq!(told.lines().count(), events["events"].as_array().unwrap().len(), "all of it was told");
}

/// A5: space is reserved, so that a run can be cancelled on a full disk.
#[test]
fn a_run_is_cancelled_on_a_full_disk() {
    let project = Project::new();
    let script = "mount -t tmpfs -o size=48m none disk\n\
        $SKEIN --state disk/s run held.yaml --format jsonl > out 2> err & run=$!\n\
        cat begun >/dev/null\n\
        dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null || true\n\
        kill -INT $run\n\
        code=0; wait $run || code=$?; echo exit $code\n\
        $SKEIN --state disk/s runs\n";
    let done = in_namespace(&project, script);
    assert!(done.out.contains("exit 130\n") && done.out.contains("CANCELLED"), "{}", done.out);
    assert_eq!(project.read("done.txt"), "first\n");
}

/// The same after a row was refused for lack of space, which is when people use it: the waiting row is written to the
/// reserved space, and the cancel after it.
#[test]
fn a_run_is_cancelled_and_left_after_a_row_found_no_space() {
    let third = "  third:\n    worker: CUSTOM\n    depends_on: [slow]\n    capabilities: [READ, EDIT]\n    \
        instructions: echo third >> done.txt\n";
    // Another program takes all space that becomes free, so that the reserved space does not help.
    let greedy = "(while test -d disk/s; do dd if=/dev/zero of=disk/fill2 bs=4k oflag=append conv=notrunc \
        2>/dev/null || true; done) & greedy=$!\n";
    // A cancel that found space is not the end yet: the end has to be recorded, too, and waits for space.
    let by_another = "if $SKEIN --state disk/s cancel $id 2>&1; then echo cancel 0; kill $greedy; greedy=; \
        rm -f disk/fill disk/fill2; else echo cancel $?; fi\n";
    let cases = [
        ("", "kill -INT $run\n", "exit 130\n", "CANCELLED"),
        ("", "$SKEIN --state disk/s cancel $id\n", "exit 4\n", "CANCELLED"),
        ("", "kill -TERM $run\n", "exit 130\n", "RUNNING"),
        ("", "kill -INT $run; sleep 0.1; kill -INT $run || true\n", "exit 130\n", "CANCELLED|RUNNING"),
        (greedy, "kill -INT $run; sleep 1; kill -INT $run || true\n", "exit 130\n", "CANCELLED|RUNNING"),
        (greedy, "kill -TERM $run\n", "exit 130\n", "RUNNING"),
        (greedy, by_another, "cancel ", "RUNNING|CANCELLED"),
    ];
    for (before, how, ends, status) in cases {
        let project = Project::new();
        let printing = HELD.replace("cat go; echo slow", "cat go; seq 20000; echo slow");
        project.folder.write("held.yaml", printing + third);
        let script = format!(
            "mount -t tmpfs -o size=48m none disk\n\
            $SKEIN --state disk/s run held.yaml --format jsonl > out 2> err & run=$!\n\
            cat begun >/dev/null\n\
            id=$(grep run_started out | tr '{{,' '\\n\\n' | grep '^.run.:' | head -1 | cut -d: -f2 | tr -d '\"')\n\
            dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null || true\n\
            echo > go\n\
            n=0; until grep -q 'disk full' err; do sleep 0.01; n=$((n+1)); test $n -lt 3000; done\n\
            greedy=\n{before}\
            began=$(date +%s)\n{how}\
            code=0; wait $run || code=$?; echo exit $code\n\
            echo took $(($(date +%s) - began))\n\
            test -z \"$greedy\" || kill $greedy\n\
            rm -f disk/fill disk/fill2\n\
            $SKEIN --state disk/s runs; cat err\n"
        );
        let done = in_namespace(&project, &script);
        assert!(done.out.contains(ends), "{how}: {}", done.out);
        let took = done.out.lines().find_map(|line| line.strip_prefix("took ")).expect("it says so");
        assert!(took.parse::<u32>().is_ok_and(|took| took < 20), "{how}: {}", done.out);
        assert!(status.split('|').any(|status| done.out.contains(status)), "{how}: {}", done.out);
        if done.out.contains("cancel 0\n") {
            assert!(done.out.contains("exit 4\n") && done.out.contains("CANCELLED"), "{}", done.out);
        } else if how == by_another {
            // There may not even be space to open the state folder.
            let told = ["has stopped its workers and released it", "was told to stop its workers"];
            assert!(told.iter().any(|told| done.out.contains(told)), "{}", done.out);
            assert!(done.out.contains("cancel 8\n") && done.out.contains("exit 130\n"), "{}", done.out);
        }
        assert_eq!(project.read("done.txt"), "first\nslow\n", "{how}");
    }
}

/// Signals do not wait for the loop: here another process holds the write lock, and the loop waits for it.
#[test]
fn a_process_whose_loop_does_not_answer_can_be_left() {
    use rustix::{
        fs::{FlockOperation, flock},
        process::Signal,
    };
    for signals in [&[Signal::TERM][..], &[Signal::INT, Signal::INT], &[Signal::HUP]] {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        let turn = fs::File::open(project.path(".skein/now.lock")).expect("it is there");
        flock(&turn, FlockOperation::LockExclusive).expect("it can be had");
        project.go();
        // The worker ends, and the record of its end waits for the write lock.
        while crate::kept::lives(&worker) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let begun = std::time::Instant::now();
        signals.iter().for_each(|signal| {
            going.signal(*signal);
            std::thread::sleep(std::time::Duration::from_millis(100));
        });
        let (code, lines, errors) = going.end();
        assert_eq!(code, Some(130), "{lines}{errors}");
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
        assert!(errors.contains(&format!("`skein resume {run}`")), "{errors}");
        drop(turn);
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        project.go();
        assert_eq!(resumed.end().0, Some(0));
    }
}

/// A5: an artifact for which there is no space fails its step, with a reason, and not the run.
#[test]
fn an_artifact_that_does_not_fit_fails_its_step() {
    let project = Project::new();
    let giving = HELD.replace(
        "cat go; echo slow >> done.txt'",
        "cat go; head -c 40000000 /dev/zero > big.bin'\n    outputs:\n      - {name: big, path: big.bin}",
    );
    project.folder.write("held.yaml", giving);
    let script = "mount -t tmpfs -o size=48m none disk\n\
        $SKEIN --state disk/s run held.yaml > out 2>&1 & run=$!\n\
        cat begun >/dev/null; echo > go\n\
        code=0; wait $run || code=$?; echo exit $code\n\
        cat out\n\
        df -k disk | tail -1 | awk '{print \"used\", ($3 < 30000)}'\n";
    let done = in_namespace(&project, script);
    assert!(done.out.contains("exit 4\n"), "{}", done.out);
    assert!(done.out.contains("the artifact `big`") && done.out.contains("no space left"), "{}", done.out);
    assert!(done.out.contains("used 1"), "nothing half done is left: {}", done.out);
}

/// A11: refused with a hint, and nothing changes.
#[test]
fn a_state_folder_that_cannot_be_written_is_refused() {
    let project = Project::new();
    let script = "mount -t tmpfs none disk\n\
        $SKEIN --state disk/s run asks.md --no-wait >/dev/null || test $? = 6\n\
        mount -o remount,ro disk\n\
        for what in 'run asks.md' runs 'resume --all' 'cancel x'; do\n\
        $SKEIN --state disk/s $what 2>&1 || echo exit $?\n\
        done\n\
        $SKEIN --state disk/new run asks.md 2>&1 || echo exit $?\n";
    let done = in_namespace(&project, script);
    assert_eq!(done.out.matches("exit 8").count(), 5, "{}", done.out);
    assert_eq!(done.out.matches("is mounted read-only").count(), 5, "{}", done.out);
    assert_eq!(done.out.matches("--state DIR").count(), 5, "{}", done.out);
}

/// A11: a folder that others may write to, and a database that is a link, are not used.
#[test]
fn a_state_folder_that_is_not_safe_is_refused() {
    let project = Project::new();
    project.left("asks.md");
    let folder = project.path(".skein");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(folder.join("skein.db")).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let told = project.ends("runs", 5);
    assert!(told.contains("777"), "{told}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(folder.join("skein.db"), project.path("elsewhere.db")).unwrap();
    std::os::unix::fs::symlink(project.path("elsewhere.db"), folder.join("skein.db")).unwrap();
    let before = fs::read(project.path("elsewhere.db")).unwrap();
    for line in ["runs", "run asks.md"] {
        let told = project.ends(line, 8);
        assert!(told.contains("skein.db"), "{told}");
    }
    assert_eq!(fs::read(project.path("elsewhere.db")).unwrap(), before);
}

/// A6: each sync of a run fails in turn. The run ends at once, reports it, and has reported no event that is not
/// stored; the sync is never repeated, and `resume` continues the run.
#[test]
fn a_sync_that_fails_ends_the_run_and_nothing_was_told_that_is_lost() {
    let stopped = each_sync_fails(Some(".skein/skein.db-wal"));
    assert!(stopped >= 2, "the run was under way in {stopped} of them");
    each_sync_fails(None);
}

/// Makes each sync of one file, or of any file, fail in turn. Returns the number of runs that were stopped after they
/// had started.
fn each_sync_fails(only: Option<&str>) -> usize {
    let mut stopped = 0;
    for nth in 1.. {
        let project = Project::new();
        // Files that are created once are created before.
        project.left("asks.md");
        project.folder.write("gated.yaml", GATED.replace("GATE: May this go out?", "Look at it."));
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"]);
        command.arg(format!("inject=fsync,fdatasync:error=EIO:when={nth}"));
        if let Some(name) = only {
            command.arg("-P").arg(project.path(name));
        }
        command.arg(env!("CARGO_BIN_EXE_skein")).args(["run", "gated.yaml", "--format", "jsonl"]);
        command.env("XDG_STATE_HOME", state_home());
        command.current_dir(&project.folder.0).env_remove("SKEIN_STATE").stdin(std::process::Stdio::null());
        let done = run(&mut command);
        let told: BTreeSet<&str> = done.out.lines().collect();
        let begun = done.out.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line["event"]["run_started"]["start"]["run"].as_str()?.to_owned())
        });
        if let Some(id) = &begun {
            let kept = project.ends(&format!("events {id} --format jsonl"), 0);
            let kept: BTreeSet<&str> = kept.lines().collect();
            assert!(told.is_subset(&kept), "sync {nth}: {:?}", told.difference(&kept));
        }
        if done.code == 0 {
            break;
        }
        // A failed sync of a step's folder fails that step, and the failure is recorded.
        if only.is_none() && done.code == 4 && done.out.contains("Input/output error") {
            continue;
        }
        assert_eq!(done.code, 8, "sync {nth}: {}{}", done.out, done.err);
        assert!(done.err.contains("error: the journal cannot be written: "), "sync {nth}: {}", done.err);
        if let Some(id) = begun {
            stopped += 1;
            assert!(done.err.contains("acknowledged events are safe; run `skein resume`"), "{}", done.err);
            // Each thread has its own n-th sync: one may fail the step just before another fails the journal.
            if only.is_none() && project.status(&id) == "failed" {
                assert!(project.ends(&format!("events {id}"), 0).contains("Input/output error"));
                continue;
            }
            // The last event may be stored, although it was not reported.
            if project.status(&id) != "succeeded" {
                project.json(&format!("resume {id}"), 0);
            }
            assert!(project.read("done.txt").ends_with("publish\n"));
            project.ended_once(&id);
        }
        assert!(nth < 100, "a run this small has no more");
    }
    stopped
}

/// The state folder disappears or is replaced during a run: its writes would be lost, so the run ends.
#[test]
fn a_state_folder_that_is_gone_or_replaced_ends_the_run() {
    for replaced in [false, true] {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        fs::rename(project.path(".skein"), project.path("away")).unwrap();
        if replaced {
            project.left("asks.md");
        }
        project.go();
        let (code, lines, errors) = going.end();
        assert_eq!(code, Some(8), "{lines}{errors}");
        assert!(!lines.contains("run_decided"), "nothing is told that is not kept: {lines}");
        assert!(errors.contains("was moved or removed while in use"), "{errors}");
        assert!(!crate::kept::lives(&worker));
        if replaced {
            assert_eq!(project.json("runs", 0)["runs"].as_array().unwrap().len(), 1);
        }
        let _ = fs::remove_dir_all(project.path(".skein"));
        fs::rename(project.path("away"), project.path(".skein")).unwrap();
        // The folder is back in its place, so that the run can continue.
        let status = project.status(&run);
        assert!(status == "running" || status == "succeeded", "{status}");
    }
}

/// Output that cannot be written is an error, but does not interrupt a run.
#[test]
fn a_run_goes_on_when_its_output_cannot_be_written() {
    for format in ["human", "json", "jsonl"] {
        let project = Project::new();
        let full = fs::File::options().write(true).open("/dev/full").expect("this test needs /dev/full");
        let mut command = project.command(&format!("run held.yaml --format {format}"));
        let child = command.stdout(full).stderr(std::process::Stdio::piped()).spawn().expect("it starts");
        project.begun();
        project.go();
        let done = child.wait_with_output().expect("it ends");
        let said = String::from_utf8(done.stderr).expect("it is text");
        assert_eq!(done.status.code(), Some(1), "{format}: {said}");
        assert_eq!(said.matches("error: the output cannot be written").count(), 1, "{format}: {said}");
        assert_eq!(project.read("done.txt"), "first\nslow\n", "{format}");
        assert!(project.ends("runs", 0).contains("SUCCEEDED"), "{format}");
    }
}

/// A reader that closes the pipe early does not change the result of a run.
#[test]
fn a_run_goes_on_when_nobody_reads_it() {
    for format in ["human", "json", "jsonl"] {
        let project = Project::new();
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = skein(&project.folder.0);
        command.args(["run", "gated.yaml", "--no-wait", "--format", format]).stdout(writer);
        let status = command.stderr(std::process::Stdio::null()).status().expect("it runs");
        assert_eq!(status.code(), Some(6), "{format}");
        assert_eq!(project.read("done.txt"), "draft\n", "{format}");
    }
}
