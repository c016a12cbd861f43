//! `skein demo`: a small workflow that is killed half way and goes on, so that one sees what durable means.
//!
//! Owns the story. Whatever is shown is what other commands really print; whatever is claimed is judged by `judge`
//! first, and one claim that does not hold makes all of it fail. `troupe` has the processes, `files` the folder.

mod files;
mod judge;
mod troupe;

use std::{
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::engine::{AttemptId, Role};
use skein_host::{store::Sqlite, worker::Found};

use self::{
    judge::{CUT, Start},
    troupe::{Heard, Troupe},
};
use crate::{ask, cli::quoted, exit::Exit, output::Output, state};

/// The gate of the workflow.
const GATE: &str = "ask/agree";
/// What the kill is, as a signal.
const SIGKILL: i32 = 9;

/// What someone wants of it.
#[derive(Debug)]
pub struct Wishes {
    /// The gate is answered here, also on a terminal.
    pub yes: bool,
    pub keep: bool,
    pub folder: Option<PathBuf>,
}

/// Why it did not go as it should.
#[derive(Debug)]
pub enum Trouble {
    Stopped,
    Refused(String, Option<&'static str>),
    /// Something did not happen as promised.
    Broken(String),
}

impl Trouble {
    fn broken(why: impl Into<String>) -> Trouble {
        Trouble::Broken(why.into())
    }

    fn system(error: &io::Error) -> Trouble {
        Trouble::Broken(format!("the system says no: {error}"))
    }
}

/// Plays it from start to end.
pub fn play(wishes: &Wishes, output: Output) -> Exit {
    let folder = match files::make(wishes.folder.as_deref()) {
        Ok(folder) => folder,
        Err(trouble) => return told(trouble, None, output),
    };
    let kept = wishes.keep || wishes.folder.is_some();
    let played = Play::new(&folder, wishes, kept, output).and_then(|play| play.acts());
    match played {
        Ok(()) => {
            remove(&folder, kept);
            Exit::Done
        }
        Err(Trouble::Broken(why)) => told(Trouble::Broken(why), Some(&folder), output),
        Err(trouble) => {
            remove(&folder, kept);
            told(trouble, None, output)
        }
    }
}

fn remove(folder: &Path, kept: bool) {
    if !kept {
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn told(trouble: Trouble, folder: Option<&Path>, output: Output) -> Exit {
    match trouble {
        Trouble::Stopped => {
            output.refuse(Exit::Stopped, "the demonstration was stopped; nothing of it is left running", None)
        }
        Trouble::Refused(why, hint) => output.refuse(Exit::Refused, &why, hint),
        Trouble::Broken(why) => {
            let message = format!("the demonstration did not go as it should: {why}");
            let hint = folder.map(|folder| format!("everything about it is in `{}`", folder.display()));
            output.refuse(Exit::Broken, &message, hint.as_deref())
        }
    }
}

/// The demonstration, while it is played.
struct Play {
    folder: PathBuf,
    troupe: Troupe,
    /// Whether the person at the terminal decides at the gate.
    asks: bool,
    kept: bool,
    output: Output,
}

/// A run that was killed.
struct Killed {
    run: String,
    engine: u32,
    /// What had been started by then.
    starts: Vec<Start>,
}

impl Play {
    fn new(folder: &Path, wishes: &Wishes, kept: bool, output: Output) -> Result<Play, Trouble> {
        let troupe = Troupe::new(folder, output.is_json()).map_err(|error| Trouble::system(&error))?;
        let asks = !wishes.yes && ask::is_someone_there(output);
        Ok(Play { folder: folder.to_owned(), troupe, asks, kept, output })
    }

    fn acts(mut self) -> Result<(), Trouble> {
        self.show_workflow()?;
        let killed = self.kill_engine()?;
        let starts = self.go_on(&killed)?;
        let approved = self.decide(&killed.run, &starts)?;
        self.close(&killed, approved)
    }

    fn show_workflow(&mut self) -> Result<(), Trouble> {
        self.act(1, "a workflow", "Two steps run side by side, one fails at first, one is repeated until a check is content, and a\n\
             person has the last word. Each is a few lines of bash; `work.log` gets a line whenever one is started.");
        self.typed(&format!("cd {}", quoted(&self.folder.display().to_string())));
        match self.command("graph demo.yaml", false)? {
            Some(0) => Ok(()),
            other => Err(ended("graph", other)),
        }
    }

    /// Runs it, and kills the engine when the step that takes long is at work.
    fn kill_engine(&mut self) -> Result<Killed, Trouble> {
        self.act(2, "the engine dies", "It runs, and in round 2 of `polish`, with a worker at work, the engine is killed: no warning, no\n\
             clean-up.");
        // There must be a journal before it can be listened to. Nobody may have it open once others have it.
        let store = Sqlite::open(self.folder.join(state::NAME));
        drop(store.map_err(|error| Trouble::Refused(error.to_string(), None))?);
        let rows = self.troupe.listen(&["runs", "--follow"])?;
        self.typed("skein run demo.yaml");
        let engine = self.troupe.start(&["run", "demo.yaml"], false)?;
        let row = self.line(engine, rows, |row| row["run_id"].is_string())?;
        let run = row["run_id"].as_str().unwrap_or_default().to_owned();
        self.troupe.kill(rows)?;
        let events = self.troupe.listen(&["runs", &run, "--follow"])?;
        self.line(engine, events, is_cut)?;
        self.troupe.kill(events)?;
        // The start is recorded before there is a process. It is killed when that is in the middle of its work.
        self.begun(engine)?;
        let status = self.troupe.kill(engine)?;
        if self.is_drawn() {
            self.output.exact("\n");
        }
        self.typed(&format!("kill -9 {engine}"));
        if status.signal() != Some(SIGKILL) {
            return Err(Trouble::broken(format!("the engine was not killed, it ended with {status}")));
        }
        let starts = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        judge::before_kill(&starts).map_err(Trouble::Broken)?;
        let killed = Killed { run, engine, starts };
        self.look_at(&killed)?;
        Ok(killed)
    }

    /// What others see of a run whose engine is gone.
    fn look_at(&mut self, killed: &Killed) -> Result<(), Trouble> {
        let list = self.troupe.ask(&["runs"])?;
        if list["runs"][0]["left"] != true || list["runs"][0]["status"] != "running" {
            return Err(Trouble::broken(format!("the run is not shown as left: {}", list["runs"][0])));
        }
        self.command("runs", false)?;
        let left = self.troupe.workers();
        let workers = match &left[..] {
            [] => String::new(),
            some => format!("\nIts worker does not know, and works on: {}.", processes(some)),
        };
        self.notice(&format!("Process {} is gone, and the journal knows that.{workers}", killed.engine));
        Ok(())
    }

    /// Goes on, until a person is asked.
    fn go_on(&mut self, killed: &Killed) -> Result<Vec<Start>, Trouble> {
        self.act(3, "it goes on", "What is left of the worker is ended first. What was done stays done; only what was cut off is done\n\
             again, and its worker is told so.");
        match self.command(&format!("resume {} --no-wait", killed.run), false)? {
            Some(6) => {}
            other => return Err(ended("resume", other)),
        }
        let left = self.troupe.workers();
        if !left.is_empty() {
            return Err(Trouble::broken(format!("{} was left running", processes(&left))));
        }
        let starts = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        let added = judge::after_kill(&killed.starts, &starts).map_err(Trouble::Broken)?;
        self.notice(&format!(
            "What the workers wrote themselves:\n  before the kill  {}\n  after it         {}\n\
             `draft`, `tests` and `lint` were done, and were not done again: they have no line after the kill.",
            listed(&killed.starts),
            listed(&added)
        ));
        Ok(starts)
    }

    /// The gate, and what follows. Whether it was opened.
    fn decide(&mut self, run: &str, starts: &[Start]) -> Result<bool, Trouble> {
        let wait = "Nobody has the run now: it waits on disk, with no process at all.";
        if self.asks {
            self.act(4, "a person decides", &format!("{wait} Now it is you who decides: `y` or `n`."));
        } else {
            self.act(
                4,
                "a person decides",
                &format!("{wait} A gate is opened from any terminal,\nand by no worker."),
            );
            match self.command(&format!("approve {run} {GATE}"), false)? {
                Some(0) => {}
                other => return Err(ended("approve", other)),
            }
        }
        let code = self.command(&format!("resume {run}"), self.asks)?;
        let approved = match code {
            Some(0) => true,
            Some(4) if self.asks => false,
            other => return Err(ended("resume", other)),
        };
        let found = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        judge::at_end(starts, &found, approved).map_err(Trouble::Broken)?;
        Ok(approved)
    }

    fn close(self, killed: &Killed, approved: bool) -> Result<(), Trouble> {
        let run = &killed.run;
        let result = self.troupe.ask(&["runs", run])?;
        let expected = if approved { "succeeded" } else { "failed" };
        if result["status"] != expected {
            return Err(Trouble::broken(format!("the run has not {expected}, it is {}", result["status"])));
        }
        let events = self.troupe.ask(&["events", run])?;
        let attempts = judge::journal(events["events"].as_array().map_or(&[][..], Vec::as_slice));
        let attempts = attempts.map_err(Trouble::Broken)?;
        if self.output.is_json() {
            let folder = self.kept.then_some(&self.folder);
            self.output.json(&json!({
                "ok": true, "folder": folder, "run_id": run, "killed": killed.engine,
                "decision": if approved { "approve" } else { "reject" }, "attempts": attempts,
            }));
            return Ok(());
        }
        let published =
            if approved { "`publish` was done once." } else { "You said no, and `publish` was not done." };
        self.notice(&format!(
            "{published} The journal has one end for each of {attempts} attempts, also for the one that was cut off.\n\
             Had any of this not been so, this command would have failed."
        ));
        self.output.text(&self.ending(run));
        Ok(())
    }

    /// Where the files are, and what to try.
    fn ending(&self, run: &str) -> String {
        let title = |text: &str| self.output.paint.title(text);
        let rows: Vec<(String, &str)> = if self.kept {
            vec![
                (
                    format!("cd {}", quoted(&self.folder.display().to_string())),
                    "everything is here, also its journal",
                ),
                ("cat demo.yaml agree.yaml".to_owned(), "what was run, in two formats"),
                (format!("skein events {run}"), "what happened, event by event"),
                (format!("skein logs {run} polish"), "what its workers printed"),
                ("skein run demo.yaml".to_owned(), "again; kill it wherever you like, and `skein resume`"),
            ]
        } else {
            vec![
                ("skein demo --keep".to_owned(), "the same, and its folder stays; this one is removed"),
                ("skein init hello".to_owned(), "a workflow of your own to begin with"),
                ("skein doctor".to_owned(), "whether this machine has all that it takes"),
            ]
        };
        let width = rows.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        let row = |(command, what): &(String, &str)| {
            format!("  {}{}  {what}\n", title(command), " ".repeat(width - command.chars().count()))
        };
        format!("\n{}\n{}", title("Next"), rows.iter().map(row).collect::<String>())
    }

    /// The next line of a listener that is meant. The engine must live meanwhile.
    fn line(&self, engine: u32, from: u32, meant: impl Fn(&Value) -> bool) -> Result<Value, Trouble> {
        loop {
            match self.troupe.hear()? {
                Heard::Line(pid, line) if pid == from && meant(&line) => return Ok(line),
                heard => over(&heard, engine)?,
            }
        }
    }

    /// Until the worker that is to be cut off has written that it is in the middle of its work.
    fn begun(&self, engine: u32) -> Result<(), Trouble> {
        self.troupe.watch()?;
        while !judge::is_cut_begun(&self.folder).map_err(Trouble::Broken)? {
            over(&self.troupe.hear()?, engine)?;
        }
        Ok(())
    }

    /// A command as one would type it, and what it prints; its exit status.
    fn command(&mut self, line: &str, asks: bool) -> Result<Option<i32>, Trouble> {
        self.typed(&format!("skein {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let pid = self.troupe.start(&words, asks)?;
        Ok(self.troupe.end(pid, asks)?.code())
    }

    /// Whether a run that is shown has lines that are drawn again and again, which a kill leaves as they are.
    fn is_drawn(&self) -> bool {
        !self.output.is_json() && io::stdout().is_terminal()
    }

    fn act(&self, number: u8, title: &str, text: &str) {
        let gap = if number == 1 { "" } else { "\n" };
        self.say(&format!(
            "{gap}{}\n{text}\n\n",
            self.output.paint.title(&format!("{number} of 4: {title}"))
        ));
    }

    fn typed(&self, line: &str) {
        self.say(&format!("{}\n", self.output.paint.name(&format!("$ {line}"))));
    }

    fn notice(&self, text: &str) {
        self.say(&format!("\n{text}\n"));
    }

    fn say(&self, text: &str) {
        if !self.output.is_json() {
            self.output.text(text);
        }
    }
}

/// Whether an event is the start of the worker that is to be cut off.
fn is_cut(event: &Value) -> bool {
    let attempt = event["event"]["attempt_started"]["attempt"].as_str();
    let attempt = attempt.and_then(|text| text.parse::<AttemptId>().ok());
    event["path"] == CUT.0
        && attempt.is_some_and(|attempt| attempt.role == Role::Main && attempt.iteration == CUT.1)
}

fn over(heard: &Heard, engine: u32) -> Result<(), Trouble> {
    match heard {
        Heard::Ended(pid) if *pid == engine => {
            Err(Trouble::broken("the run was over before it could be killed"))
        }
        _ => Ok(()),
    }
}

fn ended(command: &str, code: Option<i32>) -> Trouble {
    let how = code.map_or_else(|| "by a signal".to_owned(), |code| format!("with exit status {code}"));
    Trouble::Broken(format!("`skein {command}` ended {how}"))
}

fn processes(found: &[Found]) -> String {
    let named = found.iter().map(|found| format!("process {} ({})", found.pid, found.name));
    named.collect::<Vec<_>>().join(", ")
}

fn listed(starts: &[Start]) -> String {
    starts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
