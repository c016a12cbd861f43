//! The memory of a project across runs: short texts with a kind and a confidence.
//!
//! Owns where memories are kept (`memory/<id>.json` in the state folder, each file complete or absent) and which of
//! them may be given to agents. Does not decide what is worth remembering: people do, and a proposal of an agent is
//! only a candidate.

mod context_pack;

use std::path::Path;

use serde::{Deserialize, Serialize};
use skein_core::{ids::RunId, limits, time::Timestamp};

pub use self::context_pack::ContextModule;
pub(crate) use self::context_pack::{PackRequest, build_pack};
use crate::{
    json_text::escape_invisible,
    system,
    workspace::{RootFolder, root::FilePathError},
};

const FOLDER: &str = "memory";
/// The maximum size of a file, which is more than a memory can fill.
const FILE: u64 = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    Decision,
    Constraint,
    Gotcha,
    StyleRule,
    /// A solution of a recurring problem.
    Pattern,
    Learning,
}

impl MemoryKind {
    pub const ALL: [MemoryKind; 6] = [
        MemoryKind::Decision,
        MemoryKind::Constraint,
        MemoryKind::Gotcha,
        MemoryKind::StyleRule,
        MemoryKind::Pattern,
        MemoryKind::Learning,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Decision => "decision",
            MemoryKind::Constraint => "constraint",
            MemoryKind::Gotcha => "gotcha",
            MemoryKind::StyleRule => "style_rule",
            MemoryKind::Pattern => "pattern",
            MemoryKind::Learning => "learning",
        }
    }

    fn section_title(self) -> &'static str {
        match self {
            MemoryKind::Decision => "Decisions",
            MemoryKind::Constraint => "Constraints",
            MemoryKind::Gotcha => "Gotchas",
            MemoryKind::StyleRule => "Style rules",
            MemoryKind::Pattern => "Patterns",
            MemoryKind::Learning => "Learnings",
        }
    }
}

/// The trust in a memory. Only active and stable memories are given to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStatus {
    /// Proposed by an agent, not approved yet.
    Candidate,
    Active,
    /// Valid for a long time.
    Stable,
    Retired,
}

impl MemoryStatus {
    pub const ALL: [MemoryStatus; 4] =
        [MemoryStatus::Candidate, MemoryStatus::Active, MemoryStatus::Stable, MemoryStatus::Retired];

    pub fn as_str(self) -> &'static str {
        match self {
            MemoryStatus::Candidate => "candidate",
            MemoryStatus::Active => "active",
            MemoryStatus::Stable => "stable",
            MemoryStatus::Retired => "retired",
        }
    }

    fn is_usable(self) -> bool {
        matches!(self, MemoryStatus::Active | MemoryStatus::Stable)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEntry {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: MemoryKind,
    pub text: String,
    /// From 0 to 1.
    pub confidence: f64,
    /// The project that it is about; `current` is the project that it is stored with.
    pub scope: String,
    pub status: MemoryStatus,
    /// The files that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The stages that it is for. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    pub created_at: Timestamp,
    /// The author: a person, or the run that it was learned from.
    pub by: String,
    /// The person who approved it, if an agent proposed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error("there is no memory `{0}`")]
    Unknown(String),
    #[error("the memory `{id}` cannot be read: {why}")]
    Unreadable { id: String, why: String },
    #[error("the limit of {most} memories is reached; retire some and remove their files")]
    Full { most: usize },
}

/// The memories in a state folder.
#[derive(Debug)]
pub struct ProjectMemory {
    folder: RootFolder,
}

impl ProjectMemory {
    /// Opens the memories of a state folder, which may have none yet.
    pub fn open(state: &Path) -> Result<ProjectMemory, MemoryError> {
        Ok(ProjectMemory { folder: RootFolder::open(state)?.make_folders(FOLDER, true)? })
    }

    pub fn new_id() -> String {
        system::random_hex::<6>()
    }

    /// Returns the id of a run's proposal, which is always the same for the same position in the list.
    pub fn proposal_id(run: &RunId, number: usize) -> String {
        let hash = blake3::hash(format!("{run} {number}").as_bytes());
        hash.to_hex()[..12].to_owned()
    }

    /// Stores a new or changed memory. It is on disk when this returns.
    pub fn save_memory(&self, memory: &MemoryEntry) -> Result<(), MemoryError> {
        let name = file_name(&memory.id).ok_or_else(|| MemoryError::Unknown(memory.id.clone()))?;
        let is_new = self.folder.entry_kind(&name)?.is_none();
        if is_new && self.list_ids()?.len() >= limits::MEMORIES {
            return Err(MemoryError::Full { most: limits::MEMORIES });
        }
        let text = serde_json::to_string_pretty(memory).expect("a memory is JSON");
        Ok(self.folder.replace_file(name, escape_invisible(&text).as_bytes())?)
    }

    /// Finds a memory by its id, or by a unique prefix of its id.
    pub fn find_memory(&self, id: &str) -> Result<MemoryEntry, MemoryError> {
        let unknown = || MemoryError::Unknown(id.to_owned());
        let names = self.list_ids()?;
        let mut found = names.iter().filter(|name| !id.is_empty() && name.starts_with(id));
        match (found.next(), found.next()) {
            (Some(only), None) => self.read_memory(only),
            (Some(_), Some(_)) if names.iter().any(|name| name == id) => self.read_memory(id),
            _ => Err(unknown()),
        }
    }

    /// Loads all memories, oldest first, and the errors of those that cannot be read.
    pub fn load_all(&self) -> Result<(Vec<MemoryEntry>, Vec<MemoryError>), MemoryError> {
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for id in self.list_ids()? {
            match self.read_memory(&id) {
                Ok(memory) => all.push(memory),
                // Another process may have removed it meanwhile.
                Err(MemoryError::Unknown(_)) => {}
                Err(error) => unread.push(error),
            }
        }
        all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok((all, unread))
    }

    fn list_ids(&self) -> Result<Vec<String>, MemoryError> {
        let entries = self.folder.list_entries(2 * limits::MEMORIES)?;
        let names = entries.iter().filter_map(|entry| entry.name.to_str()?.strip_suffix(".json"));
        Ok(names.filter(|id| file_name(id).is_some()).map(str::to_owned).collect())
    }

    fn read_memory(&self, id: &str) -> Result<MemoryEntry, MemoryError> {
        let unreadable = |why: String| MemoryError::Unreadable { id: id.to_owned(), why };
        let name = file_name(id).ok_or_else(|| MemoryError::Unknown(id.to_owned()))?;
        let bytes = match self.folder.read_file(name, FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Err(MemoryError::Unknown(id.to_owned())),
            Err(error) => return Err(unreadable(error.to_string())),
        };
        let memory: MemoryEntry = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        match memory.id == id {
            true => Ok(memory),
            false => Err(unreadable(format!("its id is `{}`", memory.id))),
        }
    }
}

/// Returns the file name of a memory, or `None` if the id is not valid.
fn file_name(id: &str) -> Option<String> {
    let good = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    good.then(|| format!("{id}.json"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    pub(super) fn memory(id: &str, at: i64) -> MemoryEntry {
        MemoryEntry {
            id: id.into(),
            kind: MemoryKind::Gotcha,
            text: "mind the gap".into(),
            confidence: 0.9,
            scope: "current".into(),
            status: MemoryStatus::Active,
            files: Vec::new(),
            stages: Vec::new(),
            created_at: Timestamp(at),
            by: "ada".into(),
            approved_by: None,
        }
    }

    #[test]
    fn what_is_kept_is_found_by_how_its_id_begins() {
        let folder = tempfile::tempdir().unwrap();
        let memories = ProjectMemory::open(folder.path()).unwrap();
        for (id, at) in [("ab12", 2), ("ab34", 1), ("ab", 3)] {
            memories.save_memory(&memory(id, at)).unwrap();
        }
        let ids: Vec<_> = memories.load_all().unwrap().0.into_iter().map(|memory| memory.id).collect();
        assert_eq!(ids, ["ab34", "ab12", "ab"]);
        assert_eq!(memories.find_memory("ab1").unwrap().id, "ab12");
        assert_eq!(memories.find_memory("ab").unwrap().id, "ab", "all of an id is enough");
        for unknown in ["a", "", "zz", "../ab"] {
            assert!(matches!(memories.find_memory(unknown), Err(MemoryError::Unknown(_))), "{unknown}");
        }
        assert!(memories.save_memory(&memory("../x", 0)).is_err());
    }

    #[test]
    fn one_that_is_damaged_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let memories = ProjectMemory::open(folder.path()).unwrap();
        memories.save_memory(&memory("good", 1)).unwrap();
        fs::write(folder.path().join("memory/bad.json"), "{\"id\": ").unwrap();
        fs::copy(folder.path().join("memory/good.json"), folder.path().join("memory/other.json")).unwrap();
        let (all, unread) = memories.load_all().unwrap();
        assert_eq!((all.len(), unread.len()), (1, 2), "{unread:?}");
    }
}
