//! The texts of the demonstration: short, and only verified claims. The commands themselves print the rest.

use std::path::Path;

use skein_app::state::quote_path;
use skein_host::process::LeftoverProcess;

use super::{KilledRun, verify::WorkerStart};
use crate::render::output::CliOutput;

/// The acts: a title, and an announcement.
pub(super) const WORKFLOW: (&str, &str) = (
    "1 of 4: a workflow",
    "Two steps run side by side, one fails at first, one is repeated until a check passes, and a\n\
     person decides at the end. Each is a few lines of bash, and writes to `work.log` when it is started.",
);
pub(super) const KILL: (&str, &str) = (
    "2 of 4: the engine dies",
    "It runs. In round 2 of `polish`, with a worker in the middle of its work, the engine is killed: no\n\
     warning, no clean-up.",
);
pub(super) const GO_ON: (&str, &str) = (
    "3 of 4: it resumes",
    "The worker that is still running is ended first. Finished steps stay finished; only the interrupted\n\
     one runs again, and its worker is told so.",
);
pub(super) const YOU_DECIDE: (&str, &str) =
    ("4 of 4: a person decides", "The run waits on disk now, without any process. The person is you: `y` or `n`.");
pub(super) const DECIDE: (&str, &str) = (
    "4 of 4: a person decides",
    "The run waits on disk now, without any process. A person can decide from any\n\
     terminal, and a worker cannot.",
);

/// Prints the texts for people; programs get one value at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoNarrator(pub CliOutput);

impl DemoNarrator {
    pub(super) fn print_act(self, (title, text): (&str, &str)) {
        self.print_human(&format!("{}\n{text}\n\n", self.0.paint.title(title)));
    }

    pub(super) fn print_blank(self) {
        self.print_human("\n");
    }

    /// Prints a command, as a user would type it.
    pub(super) fn print_command(self, line: &str) {
        self.print_human(&format!("{}\n", self.0.paint.name(&format!("$ {line}"))));
    }

    pub(super) fn print_cd(self, folder: &Path) {
        self.print_command(&format!("cd {}", quote_path(folder)));
    }

    /// Reports that the engine is gone, and the workers that are still running.
    pub(super) fn print_engine_gone(self, engine: u32, left: &[LeftoverProcess]) {
        let left = match left {
            [] => String::new(),
            some => format!("\nIts worker is still running: {}.", list_processes(some)),
        };
        self.print_human(&format!("\nProcess {engine} is gone, and the run is shown as interrupted.{left}\n\n"));
    }

    pub(super) fn print_starts(self, before: &[WorkerStart], after: &[WorkerStart]) {
        self.print_human(&format!(
            "\nThe log of the workers themselves:\n  before the kill  {}\n  after it         {}\n\
             `draft`, `tests` and `lint` had finished, and did not run again: they have no line after the kill.\n\n",
            list_starts(before),
            list_starts(after)
        ));
    }

    pub(super) fn print_outcome(self, approved: bool, attempts: usize) {
        let published = if approved { "`publish` ran once." } else { "You rejected it, and `publish` did not run." };
        self.print_human(&format!(
            "\n{published} The journal has one end for each of {attempts} attempts, also for the one\n\
             that was interrupted. If any of this were not true, this command would have failed.\n"
        ));
    }

    /// Prints the place of the files, and commands to try.
    pub(super) fn print_next(self, killed: &KilledRun, folder: Option<&Path>) {
        let row = |command: String, what: &'static str| (command, what);
        let rows = match folder {
            Some(folder) => vec![
                row(format!("cd {}", quote_path(folder)), "all files, including the journal"),
                row("cat demo.yaml agree.yaml".to_owned(), "the workflows, in two formats"),
                row(format!("skein events {}", killed.run), "the events of the run"),
                row(format!("skein runs {}", killed.run), "each step and its result"),
                row("skein run demo.yaml".to_owned(), "run it again; kill it at any point, then `skein resume`"),
            ],
            None => vec![
                row("skein demo --keep".to_owned(), "the same, and keep its folder; this one is removed"),
                row("skein init hello".to_owned(), "create a first workflow of your own"),
                row("skein doctor".to_owned(), "check this machine's setup"),
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

pub(super) fn list_processes(found: &[LeftoverProcess]) -> String {
    let named = found.iter().map(|found| format!("process {} ({})", found.pid, found.name));
    named.collect::<Vec<_>>().join(", ")
}

fn list_starts(starts: &[WorkerStart]) -> String {
    starts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
