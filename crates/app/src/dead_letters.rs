//! Dead letters: steps that failed permanently and were not handled yet.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skein_core::engine::format_utc;
use skein_host::{
    store::{DeadLetterSelection, RunRow, Store},
    workspace::RunDir,
};

pub use skein_host::store::{DeadLetter, DeadLetterSettlement, SettlementKind};

use crate::{
    app::App,
    app_error::AppError,
    runs::{
        follow::{RunFrontEnd, read_log_tail},
        fork::{fork_from_step, outermost_step, settle_now},
        send_input,
        start::{RunAttachment, RunOutcome},
    },
    state::StateHandle,
};

/// The dead letters of a state folder.
#[derive(Debug)]
pub struct DeadLetterList {
    pub letters: Vec<DeadLetter>,
    state: Option<PathBuf>,
}

/// Lists the newest dead letters: the open ones, or all.
pub fn list_dead_letters(app: &App, limit: u32, all: bool) -> Result<DeadLetterList, AppError> {
    let Some(state) = app.open_existing_state()? else {
        return Ok(DeadLetterList { letters: Vec::new(), state: None });
    };
    let selection = if all { DeadLetterSelection::Newest(limit) } else { DeadLetterSelection::Open(limit) };
    let letters = state.store.list_dead_letters(&selection)?;
    Ok(DeadLetterList { letters, state: Some(state.path) })
}

impl DeadLetterList {
    pub fn to_json(&self) -> Value {
        let objects = self.letters.iter().map(|letter| dead_letter_to_json(letter, self.state.as_deref()));
        json!({"dead_letters": objects.collect::<Vec<_>>()})
    }
}

/// A dead letter, its run and its log.
#[derive(Debug)]
pub struct DeadLetterDetails {
    pub letter: DeadLetter,
    pub workflow: String,
    pub run_status: String,
    /// True if the run has ended, so that it can be forked.
    pub run_closed: bool,
    /// The file with the log of the failed attempt.
    pub log: Option<PathBuf>,
    /// The end of that log.
    pub log_tail: Option<String>,
}

/// Describes a dead letter, by its id, or by its run if that has only one.
pub fn describe_dead_letter(app: &App, id: &str) -> Result<DeadLetterDetails, AppError> {
    let (state, row, letter) = find_dead_letter(app, id)?;
    let log = find_log(&letter, &state.path);
    let attempt = letter.row.attempt.filter(|_| log.is_some());
    let log_tail = attempt.and_then(|attempt| read_log_tail(&state.run_folder(&letter.run), attempt));
    let (workflow, run_status) = (row.head.workflow, row.head.native_status);
    Ok(DeadLetterDetails { letter, workflow, run_status, run_closed: row.head.closed, log, log_tail })
}

impl DeadLetterDetails {
    pub fn to_json(&self) -> Value {
        let mut object = letter_to_json(&self.letter, self.log.as_ref());
        object["workflow"] = json!(self.workflow);
        object
    }
}

/// A dead letter whose step can be run again, in a fork of its run.
#[derive(Debug)]
pub struct DeadLetterRerun {
    state: StateHandle,
    row: RunRow,
    pub step: String,
}

/// Finds a dead letter to run again.
pub fn find_rerun(app: &App, id: &str) -> Result<DeadLetterRerun, AppError> {
    let (state, row, letter) = find_dead_letter(app, id)?;
    refuse_settled(&letter)?;
    Ok(DeadLetterRerun { state, row, step: letter.row.step })
}

impl DeadLetterRerun {
    /// Returns the step that is run again as a whole.
    pub fn outermost_step(&self) -> &str {
        outermost_step(&self.step)
    }

    /// Runs the step again.
    pub fn start(
        &self,
        app: &App,
        attachment: RunAttachment,
        front_end: &dyn RunFrontEnd,
    ) -> Result<RunOutcome, AppError> {
        fork_from_step(app, &self.state, &self.row, self.outermost_step(), attachment, front_end)
    }
}

/// A dead letter that was removed from the list.
#[derive(Debug)]
pub struct DroppedDeadLetter {
    pub letter: DeadLetter,
    state: PathBuf,
}

impl DroppedDeadLetter {
    pub fn to_json(&self) -> Value {
        dead_letter_to_json(&self.letter, Some(&self.state))
    }
}

/// Removes a dead letter from the list, for a recorded reason. It stays recorded.
pub fn drop_dead_letter(app: &App, id: &str, reason: Option<String>) -> Result<DroppedDeadLetter, AppError> {
    let (state, row, letter) = find_dead_letter(app, id)?;
    send_input::require_person(&state, &row.run, "drop a dead letter")?;
    refuse_settled(&letter)?;
    let now = settle_now(SettlementKind::Dropped(reason));
    let before = state.store.settle_dead_letter(&letter.id(), &now)?;
    refuse_settled(&DeadLetter { settled: before, ..letter.clone() })?;
    Ok(DroppedDeadLetter { letter: DeadLetter { settled: Some(now), ..letter }, state: state.path })
}

fn find_log(letter: &DeadLetter, state: &Path) -> Option<PathBuf> {
    let attempt = letter.row.attempt?;
    Some(RunDir::log_path(&RunDir::run_path(state, &letter.run), attempt)).filter(|log| log.exists())
}

fn dead_letter_to_json(letter: &DeadLetter, state: Option<&Path>) -> Value {
    letter_to_json(letter, state.and_then(|state| find_log(letter, state)).as_ref())
}

fn letter_to_json(letter: &DeadLetter, log: Option<&PathBuf>) -> Value {
    json!({
        "id": letter.id().to_string(),
        "run_id": letter.run,
        "step": letter.row.step,
        "class": letter.row.class,
        "code": letter.row.code,
        "message": letter.row.message,
        "attempts": letter.row.attempts,
        "failed_at": format_utc(letter.row.at),
        "log": log,
        "settled": letter.settled.as_ref().map(settlement_to_json),
    })
}

fn settlement_to_json(settled: &DeadLetterSettlement) -> Value {
    let (how, reason, run) = match &settled.how {
        SettlementKind::Dropped(reason) => ("dropped", reason.as_deref(), None),
        SettlementKind::Rerun(run) => ("rerun", None, Some(run)),
        SettlementKind::Retried => ("retried", None, None),
    };
    json!({
        "how": how,
        "by": settled.by,
        "at": settled.at.map(format_utc),
        "reason": reason,
        "run_id": run,
    })
}

/// Finds the selected dead letter.
fn find_dead_letter(app: &App, text: &str) -> Result<(StateHandle, RunRow, DeadLetter), AppError> {
    let (run, number) = match text.rsplit_once('.').map(|(run, number)| (run, number.parse::<u64>())) {
        Some((run, Ok(number))) => (run, Some(number)),
        _ => (text, None),
    };
    let (state, row) = app.open_run(run)?;
    let mut letters = state.store.list_dead_letters(&DeadLetterSelection::InRun(row.run.clone()))?;
    let ids: Vec<String> = letters.iter().map(|dead| dead.id().to_string()).collect();
    letters.retain(|dead| number.is_none_or(|number| number == dead.row.number));
    // An open dead letter is preferred to settled ones.
    if letters.len() > 1 && letters.iter().filter(|dead| dead.settled.is_none()).count() == 1 {
        letters.retain(|dead| dead.settled.is_none());
    }
    let hint = match &ids[..] {
        [] => "`skein dlq` lists all of them".to_owned(),
        ids => format!("it has {}", ids.join(", ")),
    };
    match (letters.pop(), letters.is_empty()) {
        (Some(dead), true) => Ok((state, row, dead)),
        (Some(_), false) => {
            let message = format!("run `{}` has several dead letters; name one of them", row.run);
            Err(AppError::refused(message).with_hint(hint))
        }
        (None, _) => {
            let message = format!("run `{}` has no dead letter `{text}`", row.run);
            Err(AppError::refused(message).with_hint(hint))
        }
    }
}

/// Refuses a dead letter that is already settled.
fn refuse_settled(dead: &DeadLetter) -> Result<(), AppError> {
    match &dead.settled {
        None => Ok(()),
        Some(settled) => {
            let message = format!("the dead letter `{}` {settled}", dead.id());
            Err(AppError::refused(message).with_hint("`skein dlq --all` lists settled ones, too"))
        }
    }
}
