//! `skein demo`: a small workflow that is killed half way and goes on, so that one sees what durable means.
//!
//! Owns the story. Whatever is shown is what other commands really print; whatever is claimed is judged by `judge`
//! first, and one claim that does not hold makes all of it fail. `troupe` has the processes, `files` the folder, `tell` the
//! words.

mod files;
mod judge;
mod tell;
mod troupe;

use std::{
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::engine::{AttemptId, Role};
use skein_host::store::Sqlite;

use self::{
    judge::{CUT, Start},
    tell::Teller,
    troupe::{Heard, Troupe, patience},
};
use crate::{ask, exit::Exit, output::Output, state};

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
    Refused(Exit, String, Option<&'static str>),
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
    let troupe = Troupe::new(output.is_json()).map_err(|error| Trouble::system(&error));
    let made = troupe.and_then(|troupe| Ok((troupe, files::make(wishes.folder.as_deref())?)));
    let (troupe, folder) = match made {
        Ok(made) => made,
        Err(trouble) => return told(trouble, None, output),
    };
    let kept = wishes.keep || wishes.folder.is_some();
    match Play::new(troupe, &folder, wishes, kept, output).acts() {
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
            if is_drawn(output) {
                output.exact("\n");
            }
            output.refuse(Exit::Stopped, "the demonstration was stopped; nothing of it is left running", None)
        }
        Trouble::Refused(exit, why, hint) => output.refuse(exit, &why, hint),
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
    tell: Teller,
}

/// A run that was killed.
struct Killed {
    run: String,
    engine: u32,
    /// What had been started by then.
    starts: Vec<Start>,
}

impl Play {
    fn new(mut troupe: Troupe, folder: &Path, wishes: &Wishes, kept: bool, output: Output) -> Play {
        troupe.enter(folder);
        let asks = !wishes.yes && ask::is_someone_there(output);
        Play { folder: folder.to_owned(), troupe, asks, kept, tell: Teller(output) }
    }

    fn acts(mut self) -> Result<(), Trouble> {
        self.show_workflow()?;
        let killed = self.kill_engine()?;
        let starts = self.go_on(&killed)?;
        let approved = self.decide(&killed.run, &starts)?;
        self.close(&killed, approved)
    }

    fn show_workflow(&mut self) -> Result<(), Trouble> {
        self.tell.act(tell::WORKFLOW);
        self.tell.enters(&self.folder);
        match self.command("graph demo.yaml", false)? {
            Some(0) => Ok(()),
            other => Err(ended("graph", other)),
        }
    }

    /// Runs it, and kills the engine when the step that takes long is at work.
    fn kill_engine(&mut self) -> Result<Killed, Trouble> {
        self.tell.blank();
        self.tell.act(tell::KILL);
        // There must be a journal before it can be listened to. Nobody may have it open once others have it.
        let place = self.folder.join(state::NAME);
        state::admit(None, &place).map_err(|why| Trouble::Refused(Exit::Refused, why, None))?;
        let store = Sqlite::open(place);
        drop(store.map_err(|error| Trouble::Refused(Exit::Store, error.to_string(), None))?);
        let rows = self.troupe.listen(&["runs", "--follow"], "jsonl")?;
        self.tell.typed("skein run demo.yaml");
        let engine = self.troupe.start(&["run", "demo.yaml"], false)?;
        let run = self.until_middle(engine, rows)?;
        let status = self.troupe.kill(engine)?;
        if is_drawn(self.tell.0) {
            self.tell.blank();
        }
        self.tell.typed(&format!("kill -9 {engine}"));
        if status.signal() != Some(SIGKILL) {
            return Err(Trouble::broken(format!("the engine was not killed, it ended with {status}")));
        }
        let starts = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        judge::before_kill(&starts).map_err(Trouble::Broken)?;
        let killed = Killed { run, engine, starts };
        self.look_at(&killed)?;
        Ok(killed)
    }

    /// Until the worker that is to be cut off is in the middle of its work; the run.
    fn until_middle(&mut self, engine: u32, rows: u32) -> Result<String, Trouble> {
        let row = self.line(engine, rows, |row| row["run_id"].is_string())?;
        let run = row["run_id"].as_str().unwrap_or_default().to_owned();
        self.troupe.kill(rows)?;
        let events = self.troupe.listen(&["runs", &run, "--follow"], "jsonl")?;
        self.line(engine, events, is_cut)?;
        self.troupe.kill(events)?;
        // The start is recorded before there is a process.
        self.troupe.watch()?;
        let until = patience();
        while !judge::is_cut_begun(&self.folder).map_err(Trouble::Broken)? {
            over(&self.troupe.hear(until)?, engine)?;
        }
        Ok(run)
    }

    /// What others see of a run whose engine is gone.
    fn look_at(&mut self, killed: &Killed) -> Result<(), Trouble> {
        let list = self.troupe.ask(&["runs"])?;
        let row = &list["runs"][0];
        if row["left"] != true || row["status"] != "running" {
            return Err(Trouble::broken(format!("the run is not shown as left: {row}")));
        }
        self.command("runs", false)?;
        self.tell.gone(killed.engine, &self.troupe.workers());
        Ok(())
    }

    /// Goes on, until a person is asked.
    fn go_on(&mut self, killed: &Killed) -> Result<Vec<Start>, Trouble> {
        self.tell.act(tell::GO_ON);
        match self.command(&format!("resume {} --no-wait", killed.run), false)? {
            Some(6) => {}
            other => return Err(ended("resume", other)),
        }
        let left = self.troupe.workers();
        if !left.is_empty() {
            return Err(Trouble::broken(format!("{} was left running", tell::processes(&left))));
        }
        let starts = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        let added = judge::after_kill(&killed.starts, &starts).map_err(Trouble::Broken)?;
        self.tell.went_on(&killed.starts, &added);
        Ok(starts)
    }

    /// The gate, and what follows. Whether it was opened.
    fn decide(&mut self, run: &str, starts: &[Start]) -> Result<bool, Trouble> {
        self.tell.act(if self.asks { tell::YOU_DECIDE } else { tell::DECIDE });
        if !self.asks {
            match self.command(&format!("approve {run} {GATE}"), false)? {
                Some(0) => {}
                other => return Err(ended("approve", other)),
            }
        }
        let approved = match self.command(&format!("resume {run}"), self.asks)? {
            Some(0) => true,
            Some(4) if self.asks => false,
            other => return Err(ended("resume", other)),
        };
        let found = judge::starts(&self.folder).map_err(Trouble::Broken)?;
        judge::at_end(starts, &found, approved).map_err(Trouble::Broken)?;
        Ok(approved)
    }

    /// The last look, and what to say of it all.
    fn close(mut self, killed: &Killed, approved: bool) -> Result<(), Trouble> {
        let run = &killed.run;
        let result = self.troupe.ask(&["runs", run])?;
        let expected = if approved { "succeeded" } else { "failed" };
        if result["status"] != expected {
            return Err(Trouble::broken(format!("the run has not {expected}, it is {}", result["status"])));
        }
        let events = self.troupe.ask(&["events", run])?;
        let events = events["events"].as_array().map_or(&[][..], Vec::as_slice);
        let attempts = judge::journal(events).map_err(Trouble::Broken)?;
        let folder = self.kept.then_some(self.folder.as_path());
        self.tell.ended(approved, attempts);
        self.tell.next(killed, folder);
        if self.tell.0.is_json() {
            self.tell.0.json(&json!({
                "ok": true, "folder": folder, "run_id": run, "killed": killed.engine,
                "decision": if approved { "approve" } else { "reject" }, "attempts": attempts,
            }));
        }
        Ok(())
    }

    /// The next line of a listener that is meant. The engine must live meanwhile.
    fn line(&self, engine: u32, from: u32, meant: impl Fn(&Value) -> bool) -> Result<Value, Trouble> {
        let until = patience();
        loop {
            match self.troupe.hear(until)? {
                Heard::Value(pid, line) if pid == from && meant(&line) => return Ok(line),
                heard => over(&heard, engine)?,
            }
        }
    }

    /// A command as one would type it, and what it prints; its exit status.
    fn command(&mut self, line: &str, asks: bool) -> Result<Option<i32>, Trouble> {
        self.tell.typed(&format!("skein {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let pid = self.troupe.start(&words, asks)?;
        Ok(self.troupe.end(pid, asks)?.code())
    }
}

/// Whether a run that is shown has lines that are drawn again and again, which a kill leaves as they are.
fn is_drawn(output: Output) -> bool {
    !output.is_json() && io::stdout().is_terminal()
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
