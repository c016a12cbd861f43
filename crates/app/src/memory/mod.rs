//! The memories of a project: facts that it remembers between runs, and that agents see.

mod capture;

use serde_json::{Value, json};
use skein_core::{engine::format_utc, limits};
use skein_host::{
    clock::Clock,
    identity::current_user,
    memory::{MemoryEntry, MemoryError, MemoryKind, MemoryStatus, ProjectMemory},
    process,
};

pub use capture::{CaptureOutcome, CaptureRequest, capture_memories};

use crate::{app::App, app_error::AppError};

/// A memory to add.
#[derive(Debug)]
pub struct NewMemory {
    pub text: String,
    pub kind: MemoryKind,
    /// From 0 to 1.
    pub confidence: f64,
    /// The project that it is about.
    pub scope: String,
    pub files: Vec<String>,
    pub stages: Vec<String>,
    /// True if it is long established.
    pub stable: bool,
}

/// Adds a memory in the name of the current user.
pub fn add_memory(app: &App, new: NewMemory) -> Result<MemoryEntry, AppError> {
    require_person()?;
    let text = new.text.trim();
    if text.is_empty() {
        return Err(AppError::usage("the text of a memory must not be empty"));
    }
    if text.len() > limits::MEMORY_BYTES {
        let message = format!("a memory has at most {} bytes, and this has {}", limits::MEMORY_BYTES, text.len());
        return Err(AppError::usage(message));
    }
    if !(0.0..=1.0).contains(&new.confidence) {
        let message = format!("the confidence must be from 0 to 1, not {}", new.confidence);
        return Err(AppError::usage(message));
    }
    let state = app.open_state(&app.project_root())?;
    let memory = MemoryEntry {
        id: ProjectMemory::new_id(),
        kind: new.kind,
        text: text.to_owned(),
        confidence: new.confidence,
        scope: new.scope,
        status: if new.stable { MemoryStatus::Stable } else { MemoryStatus::Active },
        files: new.files,
        stages: new.stages,
        created_at: Clock::new().now(),
        by: current_user(),
        approved_by: None,
    };
    ProjectMemory::open(&state.path)?.save_memory(&memory)?;
    Ok(memory)
}

/// Lists the memories of a kind, or of all kinds; retired ones only on request.
pub fn list_memories(app: &App, kind: Option<MemoryKind>, retired: bool) -> Result<Vec<MemoryEntry>, AppError> {
    let Some(state) = app.open_existing_state()? else { return Ok(Vec::new()) };
    let (mut memories, unread) = ProjectMemory::open(&state.path)?.load_all()?;
    unread.iter().for_each(|error| app.warn(&error.to_string()));
    memories.retain(|memory| retired || memory.status != MemoryStatus::Retired);
    memories.retain(|memory| kind.is_none_or(|kind| kind == memory.kind));
    Ok(memories)
}

/// Finds a memory by its id, or by a prefix of it.
pub fn find_memory(app: &App, id: &str) -> Result<MemoryEntry, AppError> {
    open_memory(app, id).map(|(_, memory)| memory)
}

/// Retires a memory: it is kept, but agents no longer see it.
pub fn retire_memory(app: &App, id: &str) -> Result<MemoryEntry, AppError> {
    require_person()?;
    let (memories, mut memory) = open_memory(app, id)?;
    memory.status = MemoryStatus::Retired;
    memories.save_memory(&memory)?;
    Ok(memory)
}

/// Approves a candidate, so that agents see it.
pub fn approve_memory(app: &App, id: &str) -> Result<MemoryEntry, AppError> {
    require_person()?;
    let (memories, mut memory) = open_memory(app, id)?;
    if matches!(memory.status, MemoryStatus::Candidate | MemoryStatus::Retired) {
        memory.status = MemoryStatus::Active;
        memory.approved_by = Some(current_user());
        memories.save_memory(&memory)?;
    }
    Ok(memory)
}

/// Returns the object of a memory.
pub fn memory_to_json(memory: &MemoryEntry) -> Value {
    let mut value = json!(memory);
    value["created_at"] = Value::from(format_utc(memory.created_at));
    value
}

fn open_memory(app: &App, id: &str) -> Result<(ProjectMemory, MemoryEntry), AppError> {
    let state = app.open_existing_state()?.ok_or_else(|| MemoryError::Unknown(id.to_owned()))?;
    let memories = ProjectMemory::open(&state.path)?;
    let memory = memories.find_memory(id)?;
    Ok((memories, memory))
}

/// Refuses workers: later agents would take their memories for those of a person.
fn require_person() -> Result<(), AppError> {
    match process::find_any_worker_mark() {
        None => Ok(()),
        Some(mark) => {
            let message = format!("this is a worker of run {}, and only people outside of runs can do this", mark.run);
            Err(AppError::refused(message))
        }
    }
}

impl From<MemoryError> for AppError {
    fn from(error: MemoryError) -> AppError {
        match error {
            MemoryError::Unknown(_) => AppError::refused(error.to_string()).with_hint("`skein memory list` lists them"),
            MemoryError::Full { .. } => AppError::refused(error.to_string()),
            MemoryError::Path(_) | MemoryError::Unreadable { .. } => AppError::store(error.to_string()),
        }
    }
}
