//! `skein demo`: a small workflow that is killed halfway and resumed, to demonstrate durable execution.
//!
//! Owns the sequence of acts, and the folder, which is a project of its own and temporary unless it is to be kept. All
//! output is that of the real commands; `verify` checks every claim before it is made, and one claim that does not hold
//! fails the demonstration. `processes` starts the processes, `narration` has the texts.

mod narration;
mod processes;
mod verify;

use std::{
    fs::{self, DirBuilder},
    io::{self, IsTerminal},
    os::unix::{fs::DirBuilderExt, process::ExitStatusExt},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    init::create_file,
    prepare::probe,
    state,
};
use skein_core::engine::{AttemptId, AttemptRole};
use skein_host::host::new_run_id;

use self::{
    narration::DemoNarrator,
    processes::{DemoEvent, DemoProcesses, patience_deadline},
    verify::{CUT, WorkerStart},
};
use crate::{
    exit::Exit,
    render::{follow, output::CliOutput},
};

/// The gate of the workflow.
const GATE: &str = "ask/agree";
/// The number of the signal that kills.
const SIGKILL: i32 = 9;

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct DemoArguments {
    /// Answer the gate without asking, also on a terminal.
    #[arg(long)]
    yes: bool,
    /// Keep the folder afterwards.
    #[arg(long)]
    keep: bool,
    /// Folder for the demo, which is kept afterwards; default: a temporary folder.
    #[arg(long = "in", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The reason why the demonstration failed.
#[derive(Debug)]
pub(super) enum DemoError {
    Stopped,
    Refused(AppError),
    /// A claim did not hold.
    Broken(String),
}

impl DemoError {
    fn broken(why: impl Into<String>) -> DemoError {
        DemoError::Broken(why.into())
    }
}

impl From<io::Error> for DemoError {
    fn from(error: io::Error) -> DemoError {
        DemoError::Broken(format!("system error: {error}"))
    }
}

/// Runs the demonstration from start to end.
pub(super) fn run(arguments: &DemoArguments, output: CliOutput) -> Result<Exit, AppError> {
    let processes = DemoProcesses::new(output.is_json()).map_err(DemoError::from);
    let made = processes.and_then(|processes| Ok((processes, create_demo_folder(arguments.folder.as_deref())?)));
    let (processes, folder) = match made {
        Ok(made) => made,
        Err(trouble) => return Err(to_app_error(trouble, None, output)),
    };
    let kept = arguments.keep || arguments.folder.is_some();
    match DemoSession::new(processes, &folder, arguments, kept, output).run_acts() {
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
            AppError::new(AppErrorKind::Stopped, "the demonstration was stopped; nothing of it is left running")
        }
        DemoError::Refused(error) => error,
        DemoError::Broken(why) => {
            let message = format!("the demonstration failed: {why}");
            let hint = folder.map(|folder| format!("its files are in `{}`", folder.display()));
            AppError::bug(message).with_optional_hint(hint)
        }
    }
}

/// The demonstration while it runs.
struct DemoSession {
    folder: PathBuf,
    processes: DemoProcesses,
    /// True if the person at the terminal decides at the gate.
    asks: bool,
    kept: bool,
    narrator: DemoNarrator,
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
        mut processes: DemoProcesses,
        folder: &Path,
        arguments: &DemoArguments,
        kept: bool,
        output: CliOutput,
    ) -> DemoSession {
        processes.set_folder(folder);
        let asks = !arguments.yes && follow::is_interactive(output) && probe::is_fully_enforced();
        DemoSession { folder: folder.to_owned(), processes, asks, kept, narrator: DemoNarrator(output) }
    }

    fn run_acts(mut self) -> Result<(), DemoError> {
        self.show_workflow()?;
        let killed = self.kill_engine()?;
        let starts = self.resume_run(&killed)?;
        let approved = self.decide_gate(&killed.run, &starts)?;
        self.finish_demo(&killed, approved)
    }

    fn show_workflow(&mut self) -> Result<(), DemoError> {
        self.narrator.print_act(narration::WORKFLOW);
        self.narrator.print_cd(&self.folder);
        match self.run_command("graph demo.yaml", false)? {
            Some(0) => Ok(()),
            other => Err(unexpected_exit("graph", other)),
        }
    }

    /// Runs the workflow, and kills the engine while the long step is working.
    fn kill_engine(&mut self) -> Result<KilledRun, DemoError> {
        self.narrator.print_blank();
        self.narrator.print_act(narration::KILL);
        // The journal must exist before it can be followed. It is closed again before other processes open it.
        state::create_state_folder(&self.folder).map_err(DemoError::Refused)?;
        let rows = self.processes.start_listener(&["runs", "--follow"], "jsonl")?;
        self.narrator.print_command("skein run demo.yaml");
        let engine = self.processes.start_command(&["run", "demo.yaml"], false)?;
        let run = self.wait_until_middle(engine, rows)?;
        let status = self.processes.kill_process(engine)?;
        if is_live_display(self.narrator.0) {
            self.narrator.print_blank();
        }
        self.narrator.print_command(&format!("kill -9 {engine}"));
        if status.signal() != Some(SIGKILL) {
            return Err(DemoError::broken(format!("the engine was not killed, it ended with {status}")));
        }
        let starts = verify::read_starts(&self.folder)?;
        verify::check_before_kill(&starts)?;
        let killed = KilledRun { run, engine, starts };
        self.check_left_run(&killed)?;
        Ok(killed)
    }

    /// Waits until the worker that will be cut off is in the middle of its work. Returns the run.
    fn wait_until_middle(&mut self, engine: u32, rows: u32) -> Result<String, DemoError> {
        let row = self.wait_for_line(engine, rows, |row| row["run_id"].is_string())?;
        let run = row["run_id"].as_str().unwrap_or_default().to_owned();
        self.processes.kill_process(rows)?;
        let events = self.processes.start_listener(&["runs", &run, "--follow"], "jsonl")?;
        self.wait_for_line(engine, events, is_cut_start)?;
        self.processes.kill_process(events)?;
        // The start is recorded before the process exists.
        self.processes.watch_folder()?;
        let until = patience_deadline();
        while !verify::is_cut_begun(&self.folder)? {
            check_engine_alive(&self.processes.next_event(until)?, engine)?;
        }
        Ok(run)
    }

    /// Checks how other commands show a run whose engine was killed.
    fn check_left_run(&mut self, killed: &KilledRun) -> Result<(), DemoError> {
        let list = self.processes.query_json(&["runs"])?;
        let row = &list["runs"][0];
        if row["left"] != true || row["status"] != "running" {
            return Err(DemoError::broken(format!("the run is not shown as interrupted: {row}")));
        }
        self.run_command("runs", false)?;
        self.narrator.print_engine_gone(killed.engine, &self.processes.find_workers());
        Ok(())
    }

    /// Resumes the run, until a person is asked.
    fn resume_run(&mut self, killed: &KilledRun) -> Result<Vec<WorkerStart>, DemoError> {
        self.narrator.print_act(narration::GO_ON);
        match self.run_command(&format!("resume {} --no-wait", killed.run), false)? {
            Some(6) => {}
            other => return Err(unexpected_exit("resume", other)),
        }
        let left = self.processes.find_workers();
        if !left.is_empty() {
            return Err(DemoError::broken(format!("{} was left running", narration::list_processes(&left))));
        }
        let starts = verify::read_starts(&self.folder)?;
        let added = verify::check_after_kill(&killed.starts, &starts)?;
        self.narrator.print_starts(&killed.starts, &added);
        Ok(starts)
    }

    /// Decides at the gate and finishes the run. Returns true if the gate was approved.
    fn decide_gate(&mut self, run: &str, starts: &[WorkerStart]) -> Result<bool, DemoError> {
        self.narrator.print_act(if self.asks { narration::YOU_DECIDE } else { narration::DECIDE });
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
        let found = verify::read_starts(&self.folder)?;
        verify::check_at_end(starts, &found, approved)?;
        Ok(approved)
    }

    /// Checks the result, and prints the closing text.
    fn finish_demo(mut self, killed: &KilledRun, approved: bool) -> Result<(), DemoError> {
        let run = &killed.run;
        let result = self.processes.query_json(&["runs", run])?;
        let expected = if approved { "succeeded" } else { "failed" };
        if result["status"] != expected {
            return Err(DemoError::broken(format!("the run has not {expected}, it is {}", result["status"])));
        }
        let events = self.processes.query_json(&["events", run])?;
        let events = events["events"].as_array().map_or(&[][..], Vec::as_slice);
        let attempts = verify::check_journal(events)?;
        let folder = self.kept.then_some(self.folder.as_path());
        self.narrator.print_outcome(approved, attempts);
        self.narrator.print_next(killed, folder);
        if self.narrator.0.is_json() {
            self.narrator.0.print_json(&json!({
                "ok": true, "folder": folder, "run_id": run, "killed": killed.engine,
                "decision": if approved { "approve" } else { "reject" }, "attempts": attempts,
            }));
        }
        Ok(())
    }

    /// Waits for the next matching line of a listener. The engine must stay alive meanwhile.
    fn wait_for_line(&self, engine: u32, from: u32, matches: impl Fn(&Value) -> bool) -> Result<Value, DemoError> {
        let until = patience_deadline();
        loop {
            match self.processes.next_event(until)? {
                DemoEvent::Value(pid, line) if pid == from && matches(&line) => return Ok(line),
                event => check_engine_alive(&event, engine)?,
            }
        }
    }

    /// Runs a command as a user would type it, and shows its output. Returns its exit status.
    fn run_command(&mut self, line: &str, asks: bool) -> Result<Option<i32>, DemoError> {
        self.narrator.print_command(&format!("skein {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let pid = self.processes.start_command(&words, asks)?;
        Ok(self.processes.wait_for_end(pid, asks)?.code())
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

fn check_engine_alive(event: &DemoEvent, engine: u32) -> Result<(), DemoError> {
    match event {
        DemoEvent::Ended(pid) if *pid == engine => Err(DemoError::broken("the run ended before it could be killed")),
        _ => Ok(()),
    }
}

fn unexpected_exit(command: &str, code: Option<i32>) -> DemoError {
    let how = code.map_or_else(|| "by a signal".to_owned(), |code| format!("with exit status {code}"));
    DemoError::Broken(format!("`skein {command}` ended {how}"))
}

macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../templates/demo/", $name)))
    };
}

/// The files of the project, with their contents.
const FILES: [(&str, &str); 3] = [template!("demo.yaml"), template!("agree.yaml"), template!("skein.toml")];

/// Creates the folder, with the project in it.
fn create_demo_folder(wanted: Option<&Path>) -> Result<PathBuf, DemoError> {
    let folder =
        wanted.map_or_else(|| std::env::temp_dir().join(format!("skein-demo-{}", new_run_id())), Path::to_owned);
    let failed =
        |error| DemoError::Refused(AppError::refused(format!("`{}` cannot be created: {error}", folder.display())));
    if wanted.is_some() && folder.exists() {
        let mut entries = fs::read_dir(&folder).map_err(failed)?;
        if entries.next().is_some() {
            let message =
                format!("`{}` is not empty, and the demonstration needs a folder of its own", folder.display());
            let hint = "name one that is empty, or that does not exist";
            return Err(DemoError::Refused(AppError::refused(message).with_hint(hint)));
        }
    } else {
        DirBuilder::new().recursive(wanted.is_some()).mode(0o700).create(&folder).map_err(failed)?;
    }
    let folder = fs::canonicalize(&folder).map_err(failed)?;
    for (name, text) in FILES {
        create_file(&folder.join(name), text).map_err(failed)?;
    }
    Ok(folder)
}
