//! How many workers can be started and watched to their end in a second, beside what `make -j` does with the same.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::Instant,
};

use skein_host::worker::{How, Mark, Task, start};

const COUNT: usize = 400;

fn ours(directory: &Path, at_once: usize) -> f64 {
    let mark: Mark = "bench/run/0.0.1.1.main.1".parse().expect("a mark");
    let (send, receive) = mpsc::channel();
    let begin = |n: usize| {
        let log = directory.join(format!("log{n}"));
        let send = send.clone();
        start(Task::new("/bin/true", "/", log, mark.clone()), move |ended| {
            assert_eq!(ended.how, How::Exited(0));
            let _ = send.send(());
        });
    };
    let began = Instant::now();
    (0..at_once).for_each(begin);
    for n in at_once..COUNT + at_once {
        receive.recv().expect("one ends");
        if n < COUNT {
            begin(n);
        }
    }
    COUNT as f64 / began.elapsed().as_secs_f64()
}

fn make(directory: &Path, at_once: usize) -> Option<f64> {
    let targets: Vec<String> = (0..COUNT).map(|n| format!("t{n}")).collect();
    let targets = targets.join(" ");
    let text = format!(".PHONY: all {targets}\nall: {targets}\n{targets}:\n\t@/bin/true\n");
    fs::write(directory.join("Makefile"), text).ok()?;
    let began = Instant::now();
    let mut command = Command::new("make");
    command.arg(format!("-j{at_once}")).current_dir(directory).stdout(Stdio::null());
    command.status().ok()?.success().then(|| COUNT as f64 / began.elapsed().as_secs_f64())
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    for at_once in [1, 2, 16, 64] {
        let (mut best, mut other) = (0_f64, 0_f64);
        for _ in 0..5 {
            best = best.max(ours(directory.path(), at_once));
            other = other.max(make(directory.path(), at_once).unwrap_or(0.0));
        }
        println!("{at_once:>3} at once: {best:>7.0} workers a second, make: {other:>7.0}");
    }
}
