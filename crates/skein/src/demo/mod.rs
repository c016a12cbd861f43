//! `skein demo`: a small workflow that is killed halfway and resumed, to demonstrate durable execution.
//!
//! Owns the sequence of acts. All output is that of the real commands; `verify` checks every claim before it is made,
//! and one claim that does not hold fails the demonstration. `processes` starts the processes, `files` creates the
//! folder, `narration` has the texts.

mod files;
mod narration;
mod processes;
mod verify;

use std::{
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    state,
};
use skein_core::engine::{AttemptId, AttemptRole};
use skein_host::store::SqliteStore;

use self::{
    narration::DemoNarrator,
    processes::{DemoEvent, DemoProcesses, patience_deadline},
    verify::{CUT, WorkerStart},
};
use crate::{exit::Exit, output::CliOutput, prompt};

/// The gate of the workflow.
const GATE: &str = "ask/agree";
/// The number of the signal that kills.
const SIGKILL: i32 = 9;

/// The options of the demonstration.
#[derive(Debug)]
pub struct DemoOptions {
    /// Answers the gate automatically, also on a terminal.
    pub yes: bool,
    pub keep: bool,
    pub folder: Option<PathBuf>,
}

/// The reason why the demonstration failed.
#[derive(Debug)]
pub enum DemoError {
    Stopped,
    Refused(AppErrorKind, String, Option<&'static str>),
    /// A claim did not hold.
    Broken(String),
}

impl DemoError {
    fn broken(why: impl Into<String>) -> DemoError {
        DemoError::Broken(why.into())
    }

    fn from_io(error: &io::Error) -> DemoError {
        DemoError::Broken(format!("system error: {error}"))
    }
}

/// Runs the demonstration from start to end.
pub fn run_demo(wishes: &DemoOptions, output: CliOutput) -> Result<Exit, AppError> {
    let troupe = DemoProcesses::new(output.is_json()).map_err(|error| DemoError::from_io(&error));
    let made = troupe.and_then(|troupe| Ok((troupe, files::create_demo_folder(wishes.folder.as_deref())?)));
    let (troupe, folder) = match made {
        Ok(made) => made,
        Err(trouble) => return Err(to_app_error(trouble, None, output)),
    };
    let kept = wishes.keep || wishes.folder.is_some();
    match DemoSession::new(troupe, &folder, wishes, kept, output).run_acts() {
        Ok(()) => {
            remove_folder(&folder, kept);
            Ok(Exit::Done)
        }
        Err(DemoError::Broken(why)) => Err(to_app_error(DemoError::Broken(why), Some(&folder), output)),
        Err(trouble) => {
            remove_folder(&folder, kept);
            Err(to_app_error(trouble, None, output))
        }
    }
}

fn remove_folder(folder: &Path, kept: bool) {
    if !kept {
        let _ = std::fs::remove_dir_all(folder);
    }
}

fn to_app_error(trouble: DemoError, folder: Option<&Path>, output: CliOutput) -> AppError {
    match trouble {
        DemoError::Stopped => {
            if is_live_display(output) {
                output.print_exact("\n");
            }
            AppError::new(
                AppErrorKind::Stopped,
                "the demonstration was stopped; nothing of it is left running",
                None,
            )
        }
        DemoError::Refused(kind, why, hint) => AppError::new(kind, &why, hint),
        DemoError::Broken(why) => {
            let message = format!("the demonstration failed: {why}");
            let hint = folder.map(|folder| format!("its files are in `{}`", folder.display()));
            AppError::new(AppErrorKind::Bug, &message, hint.as_deref())
        }
    }
}

/// The demonstration while it runs.
struct DemoSession {
    folder: PathBuf,
    troupe: DemoProcesses,
    /// True if the person at the terminal decides at the gate.
    asks: bool,
    kept: bool,
    tell: DemoNarrator,
}

/// A run that was killed.
struct KilledRun {
    run: String,
    engine: u32,
    /// The workers that had been started by then.
    starts: Vec<WorkerStart>,
}

impl DemoSession {
    fn new(
        mut troupe: DemoProcesses,
        folder: &Path,
        wishes: &DemoOptions,
        kept: bool,
        output: CliOutput,
    ) -> DemoSession {
        troupe.set_folder(folder);
        let asks = !wishes.yes && prompt::is_interactive(output);
        DemoSession { folder: folder.to_owned(), troupe, asks, kept, tell: DemoNarrator(output) }
    }

    fn run_acts(mut self) -> Result<(), DemoError> {
        self.show_workflow()?;
        let killed = self.kill_engine()?;
        let starts = self.resume_run(&killed)?;
        let approved = self.decide_gate(&killed.run, &starts)?;
        self.finish_demo(&killed, approved)
    }

    fn show_workflow(&mut self) -> Result<(), DemoError> {
        self.tell.print_act(narration::WORKFLOW);
        self.tell.print_cd(&self.folder);
        match self.run_command("graph demo.yaml", false)? {
            Some(0) => Ok(()),
            other => Err(unexpected_exit("graph", other)),
        }
    }

    /// Runs the workflow, and kills the engine while the long step is working.
    fn kill_engine(&mut self) -> Result<KilledRun, DemoError> {
        self.tell.print_blank();
        self.tell.print_act(narration::KILL);
        // The journal must exist before it can be followed. It is closed again before other processes open it.
        let place = self.folder.join(state::NAME);
        state::admit_folder(None, &place)
            .map_err(|why| DemoError::Refused(AppErrorKind::Refused, why, None))?;
        let store = SqliteStore::open(place);
        drop(store.map_err(|error| DemoError::Refused(AppErrorKind::Store, error.to_string(), None))?);
        let rows = self.troupe.start_listener(&["runs", "--follow"], "jsonl")?;
        self.tell.print_command("skein run demo.yaml");
        let engine = self.troupe.start_command(&["run", "demo.yaml"], false)?;
        let run = self.wait_until_middle(engine, rows)?;
        let status = self.troupe.kill_process(engine)?;
        if is_live_display(self.tell.0) {
            self.tell.print_blank();
        }
        self.tell.print_command(&format!("kill -9 {engine}"));
        if status.signal() != Some(SIGKILL) {
            return Err(DemoError::broken(format!("the engine was not killed, it ended with {status}")));
        }
        let starts = verify::read_starts(&self.folder).map_err(DemoError::Broken)?;
        verify::check_before_kill(&starts).map_err(DemoError::Broken)?;
        let killed = KilledRun { run, engine, starts };
        self.check_left_run(&killed)?;
        Ok(killed)
    }

    /// Waits until the worker that will be cut off is in the middle of its work. Returns the run.
    fn wait_until_middle(&mut self, engine: u32, rows: u32) -> Result<String, DemoError> {
        let row = self.wait_for_line(engine, rows, |row| row["run_id"].is_string())?;
        let run = row["run_id"].as_str().unwrap_or_default().to_owned();
        self.troupe.kill_process(rows)?;
        let events = self.troupe.start_listener(&["runs", &run, "--follow"], "jsonl")?;
        self.wait_for_line(engine, events, is_cut_start)?;
        self.troupe.kill_process(events)?;
        // The start is recorded before the process exists.
        self.troupe.watch_folder()?;
        let until = patience_deadline();
        while !verify::is_cut_begun(&self.folder).map_err(DemoError::Broken)? {
            check_engine_alive(&self.troupe.next_event(until)?, engine)?;
        }
        Ok(run)
    }

    /// Checks how other commands show a run whose engine was killed.
    fn check_left_run(&mut self, killed: &KilledRun) -> Result<(), DemoError> {
        let list = self.troupe.query_json(&["runs"])?;
        let row = &list["runs"][0];
        if row["left"] != true || row["status"] != "running" {
            return Err(DemoError::broken(format!("the run is not shown as interrupted: {row}")));
        }
        self.run_command("runs", false)?;
        self.tell.print_engine_gone(killed.engine, &self.troupe.find_workers());
        Ok(())
    }

    /// Resumes the run, until a person is asked.
    fn resume_run(&mut self, killed: &KilledRun) -> Result<Vec<WorkerStart>, DemoError> {
        self.tell.print_act(narration::GO_ON);
        match self.run_command(&format!("resume {} --no-wait", killed.run), false)? {
            Some(6) => {}
            other => return Err(unexpected_exit("resume", other)),
        }
        let left = self.troupe.find_workers();
        if !left.is_empty() {
            return Err(DemoError::broken(format!("{} was left running", narration::list_processes(&left))));
        }
        let starts = verify::read_starts(&self.folder).map_err(DemoError::Broken)?;
        let added = verify::check_after_kill(&killed.starts, &starts).map_err(DemoError::Broken)?;
        self.tell.print_starts(&killed.starts, &added);
        Ok(starts)
    }

    /// Decides at the gate and finishes the run. Returns true if the gate was approved.
    fn decide_gate(&mut self, run: &str, starts: &[WorkerStart]) -> Result<bool, DemoError> {
        self.tell.print_act(if self.asks { narration::YOU_DECIDE } else { narration::DECIDE });
        if !self.asks {
            match self.run_command(&format!("approve {run} {GATE}"), false)? {
                Some(0) => {}
                other => return Err(unexpected_exit("approve", other)),
            }
        }
        let approved = match self.run_command(&format!("resume {run}"), self.asks)? {
            Some(0) => true,
            Some(4) if self.asks => false,
            other => return Err(unexpected_exit("resume", other)),
        };
        let found = verify::read_starts(&self.folder).map_err(DemoError::Broken)?;
        verify::check_at_end(starts, &found, approved).map_err(DemoError::Broken)?;
        Ok(approved)
    }

    /// Checks the result, and prints the closing text.
    fn finish_demo(mut self, killed: &KilledRun, approved: bool) -> Result<(), DemoError> {
        let run = &killed.run;
        let result = self.troupe.query_json(&["runs", run])?;
        let expected = if approved { "succeeded" } else { "failed" };
        if result["status"] != expected {
            return Err(DemoError::broken(format!("the run has not {expected}, it is {}", result["status"])));
        }
        let events = self.troupe.query_json(&["events", run])?;
        let events = events["events"].as_array().map_or(&[][..], Vec::as_slice);
        let attempts = verify::check_journal(events).map_err(DemoError::Broken)?;
        let folder = self.kept.then_some(self.folder.as_path());
        self.tell.print_outcome(approved, attempts);
        self.tell.print_next(killed, folder);
        if self.tell.0.is_json() {
            self.tell.0.print_json(&json!({
                "ok": true, "folder": folder, "run_id": run, "killed": killed.engine,
                "decision": if approved { "approve" } else { "reject" }, "attempts": attempts,
            }));
        }
        Ok(())
    }

    /// Waits for the next matching line of a listener. The engine must stay alive meanwhile.
    fn wait_for_line(
        &self,
        engine: u32,
        from: u32,
        meant: impl Fn(&Value) -> bool,
    ) -> Result<Value, DemoError> {
        let until = patience_deadline();
        loop {
            match self.troupe.next_event(until)? {
                DemoEvent::Value(pid, line) if pid == from && meant(&line) => return Ok(line),
                heard => check_engine_alive(&heard, engine)?,
            }
        }
    }

    /// Runs a command as a user would type it, and shows its output. Returns its exit status.
    fn run_command(&mut self, line: &str, asks: bool) -> Result<Option<i32>, DemoError> {
        self.tell.print_command(&format!("skein {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let pid = self.troupe.start_command(&words, asks)?;
        Ok(self.troupe.wait_for_end(pid, asks)?.code())
    }
}

/// Returns true if the display of a run has lines that are redrawn, which a kill leaves unfinished.
fn is_live_display(output: CliOutput) -> bool {
    !output.is_json() && io::stdout().is_terminal()
}

/// Returns true if an event is the start of the worker that will be cut off.
fn is_cut_start(event: &Value) -> bool {
    let attempt = event["event"]["attempt_started"]["attempt"].as_str();
    let attempt = attempt.and_then(|text| text.parse::<AttemptId>().ok());
    event["path"] == CUT.0
        && attempt.is_some_and(|attempt| attempt.role == AttemptRole::Main && attempt.iteration == CUT.1)
}

fn check_engine_alive(heard: &DemoEvent, engine: u32) -> Result<(), DemoError> {
    match heard {
        DemoEvent::Ended(pid) if *pid == engine => {
            Err(DemoError::broken("the run ended before it could be killed"))
        }
        _ => Ok(()),
    }
}

fn unexpected_exit(command: &str, code: Option<i32>) -> DemoError {
    let how = code.map_or_else(|| "by a signal".to_owned(), |code| format!("with exit status {code}"));
    DemoError::Broken(format!("`skein {command}` ended {how}"))
}
