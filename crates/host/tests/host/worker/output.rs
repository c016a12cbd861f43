//! The output and the input of workers.

use std::{
    fs,
    process::Command,
    sync::{Arc, Mutex},
};

use skein_core::{limits, time::Millis};
use skein_host::{
    process::{ExceededLimit, OutputFilter, ProcessOutcome},
    terminal_escape::escape_for_terminal,
};

use super::{MISBEHAVE, Place, begin, run, signed};

/// C4: a gigabyte of output, and memory stays constant.
#[test]
fn a_flood_takes_no_memory() {
    let place = Place::new();
    fs::create_dir(place.path("inner")).expect("a directory");
    let ended = run(place.misbehave(&["measure", &place.name("inner")]));
    assert_eq!(ended.how, ProcessOutcome::Exited(0), "{ended:?}");
    let kib: u64 = ended.tail.parse().expect("a figure");
    assert!(kib <= 32 * 1024, "{kib} KiB");
    let size = fs::metadata(place.path("inner/log")).expect("a log").len();
    assert!((limits::LOG_BYTES as u64..limits::LOG_BYTES as u64 + 200).contains(&size), "{size}");
    place.assert_clean();
}

/// C4: no line feed for a hundred megabytes. The beginning and the end are kept, and the bytes between are counted.
#[test]
fn a_line_without_end_is_cut_in_the_middle() {
    let place = Place::new();
    let script = "printf begin; \"$0\" flood 100000000 0; printf end";
    let mut task = place.sh(script);
    task.arguments.push(MISBEHAVE.into());
    let ended = run(task);
    let kept = limits::LOG_BYTES as u64;
    assert_eq!(ended.how, ProcessOutcome::Exited(0));
    assert_eq!((ended.log.bytes, ended.log.kept, ended.log.cut), (100_000_008, kept, true));
    assert_eq!(ended.log.problem, None);
    let log = place.log();
    assert!(log.starts_with(b"beginxxx") && log.ends_with(b"xxxend"));
    let note = format!("\n[skein: {} bytes were cut here]\n", 100_000_008 - kept);
    let at = limits::LOG_BYTES / 4;
    assert_eq!(&log[at..at + note.len()], note.as_bytes());
    assert_eq!(log.len(), limits::LOG_BYTES + note.len());
    assert!(!place.path("log.tail").exists());
}

/// C5: stored as it came, never shown as it came.
#[test]
fn garbage_is_kept_and_shown_safely() {
    let place = Place::new();
    let ended = run(place.misbehave(&["garbage"]));
    let log = place.log();
    assert!(log.starts_with(b"\xff\xfe\0\x1b]52;c;aGk=\x07") && log.ends_with(b"\xc3"));
    let safe = |text: &str| text.chars().all(|c| !c.is_control() && c != '\u{202e}');
    assert!(safe(&ended.tail) && safe(&escape_for_terminal(&log)), "{:?}", ended.tail);
    assert!(ended.tail.contains("\\x1b]52") && ended.tail.ends_with("\\u{202e}\\xc3"), "{:?}", ended.tail);
}

#[test]
fn both_streams_are_in_the_log_in_the_order_they_were_written() {
    let place = Place::new();
    run(place.sh("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"));
    let wanted: String = (1..=5).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(place.log(), wanted.as_bytes());
}

#[test]
fn standard_output_can_be_had_alone() {
    let place = Place::new();
    let mut task = place.sh("echo one; echo two >&2; echo three");
    task.stdout = Some(place.path("stdout"));
    let ended = run(task);
    assert_eq!(fs::read(place.path("stdout")).expect("a file"), b"one\nthree\n");
    assert_eq!(ended.stdout.map(|stdout| stdout.bytes), Some(10));
    let mut lines: Vec<_> = place.log().split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines.sort();
    assert_eq!(lines, [&b""[..], b"one", b"three", b"two"]);
}

/// C8: more than any pipe holds, and nobody reads.
#[test]
fn input_that_nobody_reads_blocks_nobody() {
    let place = Place::new();
    let input: Arc<[u8]> = vec![b'i'; 8 << 20].into();
    let mut task = place.misbehave(&["wait", &place.name("signed")]);
    task.stdin = Arc::clone(&input);
    let started = begin(task);
    signed(&place.path("signed"));
    started.handle.stop();
    assert_eq!(started.end().how, ProcessOutcome::Stopped);
    // It ends without having read.
    let mut task = place.task("true", &[]);
    task.stdin = input;
    assert_eq!(run(task).how, ProcessOutcome::Exited(0));
    place.assert_clean();
}

/// C8: full in both directions.
#[test]
fn input_and_output_go_on_at_the_same_time() {
    let place = Place::new();
    let input: Arc<[u8]> = (0..8_u32 << 20).map(|n| (n % 251) as u8).collect();
    let mut task = place.misbehave(&["copy"]);
    task.stdin = Arc::clone(&input);
    let ended = run(task);
    assert_eq!((ended.how, ended.log.bytes), (ProcessOutcome::Exited(0), 8 << 20));
    assert!(place.log() == *input, "what comes out is what went in");
}

/// C8: continues to read after the end.
#[test]
fn one_that_never_stops_reading_is_stopped_by_its_limit() {
    let place = Place::new();
    let mut task = place.misbehave(&["thirst"]);
    task.stdin = b"a little"[..].into();
    task.limit = Some(Millis(300));
    assert_eq!(run(task).how, ProcessOutcome::TimedOut(ExceededLimit::Total(Millis(300))));
    place.assert_clean();
}

/// Replaces a word, also if a chunk ends in the middle of it.
#[derive(Default)]
struct Hide(Vec<u8>);

const WORD: &[u8] = b"hunter2";

impl OutputFilter for Hide {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.extend_from_slice(bytes);
        while let Some(at) = self.0.windows(WORD.len()).position(|window| window == WORD) {
            out.extend(self.0.drain(..at));
            self.0.drain(..WORD.len());
            out.extend_from_slice(b"***");
        }
        let keep = self.0.len().min(WORD.len() - 1);
        out.extend(self.0.drain(..self.0.len() - keep));
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.0);
    }
}

#[test]
fn a_filter_sees_each_stream_whole() {
    let place = Place::new();
    let mut task = place
        .sh("printf 'a hun'; printf 'e hun' >&2; sleep 0.05; printf 'ter2 b\\n'; printf 'ter2 f\\n' >&2; printf end");
    task.stdout = Some(place.path("stdout"));
    task.filter = Some(Arc::new(|| Box::new(Hide::default())));
    let ended = run(task);
    let log = String::from_utf8(place.log()).expect("text");
    assert!(!log.contains("ter2") && log.contains("***"), "{log:?}");
    assert_eq!(fs::read(place.path("stdout")).expect("a file"), b"a *** b\nend");
    assert!(!ended.tail.contains("ter2"));
    assert_eq!(ended.log.bytes, 8 + 8 + 3);
}

#[test]
fn who_looks_on_is_told_the_last_line_and_not_every_line() {
    let place = Place::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut task = place.sh("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done; printf 'no end'");
    let ours = Arc::clone(&told);
    task.tell = Some(Box::new(move |line| ours.lock().expect("a list").push(line.to_owned())));
    let took = run(task).took;
    let told = told.lock().expect("a list");
    assert_eq!(told.last().map(String::as_str), Some("line 20000"));
    assert!(told.len() as u64 <= took.0 / 100 + 3, "{} times in {took}", told.len());
    assert!(told.iter().all(|line| line.starts_with("line ")));
}

#[test]
fn an_attempt_goes_on_without_its_log() {
    let place = Place::new();
    let mut task = place.sh("echo hello; exit 5");
    task.log = place.path("no/such/place/log");
    let ended = run(task);
    assert_eq!((ended.how, ended.tail.as_str()), (ProcessOutcome::Exited(5), "hello"));
    assert!(ended.log.cut && ended.log.problem.is_some());
}

/// A5: the disk fills up under the log. The attempt continues, and the log says where it ends.
#[test]
fn a_full_disk_cuts_the_log_and_not_the_attempt() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).expect("a directory");
    let script = "mount -t tmpfs -o size=1m none \"$1\" && \"$0\" full \"$1\" && tail -c 200 \"$1/log\"";
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script, MISBEHAVE, &place.name("disk")])
        .output()
        .expect("unshare (of util-linux) is needed for this test");
    let text = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a mount namespace with a small disk in it is needed: {text} {problem}");
    assert!(text.starts_with("Exited(0) 4000000 true"), "{text}");
    assert!(text.ends_with("]\n") && text.contains("[skein: the log ends here: "), "{text}");
    assert!(text.contains("No space left"), "{text}");
}
