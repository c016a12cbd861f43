//! The journal of a run, row by row.

use skein_core::{
    engine::{JournalBatch, JournalError},
    ids::RunId,
    plan::Plan,
};
use skein_host::store::{RunRow, Store};

use crate::{app::App, app_error::AppError, state::StateHandle};

/// The journal of a run that is being read.
#[derive(Debug)]
pub struct RunJournal {
    state: StateHandle,
    row: RunRow,
    pub plan: Plan,
}

/// Opens the journal of a run; none or `-`: of the newest.
pub fn open_journal(app: &App, run: Option<&str>) -> Result<RunJournal, AppError> {
    let (state, row) = app.open_run_or_newest(run)?;
    let plan = state.load_plan(&row)?;
    Ok(RunJournal { state, row, plan })
}

impl RunJournal {
    pub fn run(&self) -> &RunId {
        &self.row.run
    }

    /// Passes on the rows one by one, because a journal can be long.
    pub fn read_rows(&self, mut each: impl FnMut(&JournalBatch) -> Result<(), JournalError>) -> Result<(), AppError> {
        let mut broken = None;
        self.state.store.read_journal(&self.row.run, 0, &mut |batch| {
            broken = each(&batch).err();
            broken.is_none()
        })?;
        let refuse = |error| format!("the journal of `{}` cannot be read: {error}", self.row.run);
        broken.map_or(Ok(()), |error: JournalError| Err(AppError::store(refuse(error))))
    }
}
