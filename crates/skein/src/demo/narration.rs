//! What the demonstration says: short, and only what is so. The commands themselves print the rest.

use std::path::Path;

use skein_host::process::LeftoverProcess;

use super::{KilledRun, verify::WorkerStart};
use crate::{cli::quote_path, output::CliOutput};

/// The acts: a title, and what is about to happen.
pub const WORKFLOW: (&str, &str) = (
    "1 of 4: a workflow",
    "Two steps run side by side, one fails at first, one is repeated until a check is content, and a\n\
     person has the last word. Each is a few lines of bash, and writes to `work.log` when it is started.",
);
pub const KILL: (&str, &str) = (
    "2 of 4: the engine dies",
    "It runs. In round 2 of `polish`, with a worker in the middle of its work, the engine is killed: no\n\
     warning, no clean-up.",
);
pub const GO_ON: (&str, &str) = (
    "3 of 4: it goes on",
    "What is left of the worker is ended first. What was done stays done; only what was cut off is done\n\
     again, and its worker is told so.",
);
pub const YOU_DECIDE: (&str, &str) = (
    "4 of 4: a person decides",
    "Nobody has the run now: it waits on disk, with no process at all. The person is you: `y` or `n`.",
);
pub const DECIDE: (&str, &str) = (
    "4 of 4: a person decides",
    "Nobody has the run now: it waits on disk, with no process at all. It can be answered from any\n\
     terminal, and by no worker.",
);

/// Says it to people; programs are told nothing until the end.
#[derive(Debug, Clone, Copy)]
pub struct DemoNarrator(pub CliOutput);

impl DemoNarrator {
    pub fn print_act(self, (title, text): (&str, &str)) {
        self.print_human(&format!("{}\n{text}\n\n", self.0.paint.title(title)));
    }

    pub fn print_blank(self) {
        self.print_human("\n");
    }

    /// A command, as one would type it.
    pub fn print_command(self, line: &str) {
        self.print_human(&format!("{}\n", self.0.paint.name(&format!("$ {line}"))));
    }

    pub fn print_cd(self, folder: &Path) {
        self.print_command(&format!("cd {}", quote_path(&folder.display().to_string())));
    }

    /// The engine is gone; its workers may not be.
    pub fn print_engine_gone(self, engine: u32, left: &[LeftoverProcess]) {
        let left = match left {
            [] => String::new(),
            some => format!("\nIts worker does not know, and works on: {}.", list_processes(some)),
        };
        self.print_human(&format!("\nProcess {engine} is gone, and the journal knows that.{left}\n\n"));
    }

    pub fn print_starts(self, before: &[WorkerStart], after: &[WorkerStart]) {
        self.print_human(&format!(
            "\nWhat the workers wrote themselves:\n  before the kill  {}\n  after it         {}\n\
             `draft`, `tests` and `lint` were done, and were not done again: they have no line after the kill.\n\n",
            list_starts(before),
            list_starts(after)
        ));
    }

    pub fn print_outcome(self, approved: bool, attempts: usize) {
        let published =
            if approved { "`publish` was done once." } else { "You said no, and `publish` was not done." };
        self.print_human(&format!(
            "\n{published} The journal has one end for each of {attempts} attempts, also for the one\n\
             that was cut off. Had any of this not been so, this command would have failed.\n"
        ));
    }

    /// Where the files are, and what to try.
    pub fn print_next(self, killed: &KilledRun, folder: Option<&Path>) {
        let row = |command: String, what: &'static str| (command, what);
        let rows = match folder {
            Some(folder) => vec![
                row(
                    format!("cd {}", quote_path(&folder.display().to_string())),
                    "all of it is here, also the journal",
                ),
                row("cat demo.yaml agree.yaml".to_owned(), "what was run, in two formats"),
                row(format!("skein events {}", killed.run), "what happened, event by event"),
                row(format!("skein runs {}", killed.run), "each step, and how it went"),
                row(
                    "skein run demo.yaml".to_owned(),
                    "again; kill it wherever you like, then `skein resume`",
                ),
            ],
            None => vec![
                row("skein demo --keep".to_owned(), "the same, and its folder stays; this one is removed"),
                row("skein init hello".to_owned(), "a workflow of your own to begin with"),
                row("skein doctor".to_owned(), "whether this machine has all that it takes"),
            ],
        };
        let width = rows.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        let line = |(command, what): &(String, &str)| {
            let pad = " ".repeat(width - command.chars().count());
            format!("  {}{pad}  {what}\n", self.0.paint.title(command))
        };
        let lines: String = rows.iter().map(line).collect();
        self.print_human(&format!("\n{}\n{lines}", self.0.paint.title("Next")));
    }

    fn print_human(self, text: &str) {
        if !self.0.is_json() {
            self.0.print_text(text);
        }
    }
}

pub fn list_processes(found: &[LeftoverProcess]) -> String {
    let named = found.iter().map(|found| format!("process {} ({})", found.pid, found.name));
    named.collect::<Vec<_>>().join(", ")
}

fn list_starts(starts: &[WorkerStart]) -> String {
    starts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
