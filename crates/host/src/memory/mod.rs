//! What a project remembers from run to run: short texts of a kind, with how sure they are.
//!
//! Owns where they are kept (`memory/<id>.json` in the state folder, each file whole or not there) and which may be told
//! to agents. Refuses to decide what is worth remembering: people do, and what agents propose is only a candidate.

mod pack;

use std::path::Path;

use serde::{Deserialize, Serialize};
use skein_core::{ids::RunId, limits, time::Time};

pub use self::pack::{Asked, Module, Pack, pack};
use crate::{
    chance,
    json_text::escape_invisible,
    workspace::{Root, root::PathError},
};

const FOLDER: &str = "memory";
/// More than a memory can fill.
const FILE: u64 = 64 * 1024;

/// What a memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Decision,
    Constraint,
    Gotcha,
    StyleRule,
    /// A way of solving something that recurs.
    Pattern,
    Learning,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Decision, Kind::Constraint, Kind::Gotcha, Kind::StyleRule, Kind::Pattern, Kind::Learning];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Decision => "decision",
            Kind::Constraint => "constraint",
            Kind::Gotcha => "gotcha",
            Kind::StyleRule => "style_rule",
            Kind::Pattern => "pattern",
            Kind::Learning => "learning",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::Decision => "Decisions",
            Kind::Constraint => "Constraints",
            Kind::Gotcha => "Gotchas",
            Kind::StyleRule => "Style rules",
            Kind::Pattern => "Patterns",
            Kind::Learning => "Learnings",
        }
    }
}

/// How far a memory is trusted. Only the middle two are told to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// An agent proposed it, and nobody has agreed.
    Candidate,
    Active,
    /// It has stood for long.
    Stable,
    Retired,
}

impl Status {
    pub const ALL: [Status; 4] = [Status::Candidate, Status::Active, Status::Stable, Status::Retired];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Candidate => "candidate",
            Status::Active => "active",
            Status::Stable => "stable",
            Status::Retired => "retired",
        }
    }

    fn is_told(self) -> bool {
        matches!(self, Status::Active | Status::Stable)
    }
}

/// One thing that is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub text: String,
    /// From 0 to 1.
    pub confidence: f64,
    /// The project that it is about; `current` is the one that it is kept with.
    pub scope: String,
    pub status: Status,
    /// The files that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The stages that it is for. None: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    pub created_at: Time,
    /// Who said so: a person, or the run that it was learnt from.
    pub by: String,
    /// Who agreed, if an agent proposed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("there is no memory `{0}`")]
    Unknown(String),
    #[error("the memory `{id}` cannot be read: {why}")]
    Unreadable { id: String, why: String },
    #[error("there are {most} memories, and no more can be kept; retire some and remove their files")]
    Full { most: usize },
}

/// The memories that are kept in a state folder.
#[derive(Debug)]
pub struct Memories {
    folder: Root,
}

impl Memories {
    /// Those of a state folder, which need not have any yet.
    pub fn open(state: &Path) -> Result<Memories, MemoryError> {
        Ok(Memories { folder: Root::open(state)?.make_folders(FOLDER, true)? })
    }

    pub fn new_id() -> String {
        chance::hex::<6>()
    }

    /// The id of what a run proposed, by its place in the list: always the same.
    pub fn id_of(run: &RunId, number: usize) -> String {
        let hash = blake3::hash(format!("{run} {number}").as_bytes());
        hash.to_hex()[..12].to_owned()
    }

    /// Keeps a memory, a new one or one that has changed. It is on the disk when this returns.
    pub fn keep(&self, memory: &Memory) -> Result<(), MemoryError> {
        let name = file(&memory.id).ok_or_else(|| MemoryError::Unknown(memory.id.clone()))?;
        let is_new = self.folder.look(&name)?.is_none();
        if is_new && self.names()?.len() >= limits::MEMORIES {
            return Err(MemoryError::Full { most: limits::MEMORIES });
        }
        let text = serde_json::to_string_pretty(memory).expect("a memory is JSON");
        Ok(self.folder.replace(name, escape_invisible(&text).as_bytes())?)
    }

    /// A memory by its id, or by how its id begins where only one does.
    pub fn find(&self, id: &str) -> Result<Memory, MemoryError> {
        let unknown = || MemoryError::Unknown(id.to_owned());
        let names = self.names()?;
        let mut found = names.iter().filter(|name| !id.is_empty() && name.starts_with(id));
        match (found.next(), found.next()) {
            (Some(only), None) => self.read(only),
            (Some(_), Some(_)) if names.iter().any(|name| name == id) => self.read(id),
            _ => Err(unknown()),
        }
    }

    /// All of them, oldest first, and why some cannot be read.
    pub fn all(&self) -> Result<(Vec<Memory>, Vec<MemoryError>), MemoryError> {
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for id in self.names()? {
            match self.read(&id) {
                Ok(memory) => all.push(memory),
                // Another process may have taken it away meanwhile.
                Err(MemoryError::Unknown(_)) => {}
                Err(error) => unread.push(error),
            }
        }
        all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok((all, unread))
    }

    fn names(&self) -> Result<Vec<String>, MemoryError> {
        let entries = self.folder.entries(2 * limits::MEMORIES)?;
        let names = entries.iter().filter_map(|entry| entry.name.to_str()?.strip_suffix(".json"));
        Ok(names.filter(|id| file(id).is_some()).map(str::to_owned).collect())
    }

    fn read(&self, id: &str) -> Result<Memory, MemoryError> {
        let unreadable = |why: String| MemoryError::Unreadable { id: id.to_owned(), why };
        let name = file(id).ok_or_else(|| MemoryError::Unknown(id.to_owned()))?;
        let bytes = match self.folder.read(name, FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Err(MemoryError::Unknown(id.to_owned())),
            Err(error) => return Err(unreadable(error.to_string())),
        };
        let memory: Memory = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        match memory.id == id {
            true => Ok(memory),
            false => Err(unreadable(format!("it says that it is `{}`", memory.id))),
        }
    }
}

/// The file of a memory. Only what can be an id leads to one.
fn file(id: &str) -> Option<String> {
    let good = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    good.then(|| format!("{id}.json"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    pub(super) fn memory(id: &str, at: i64) -> Memory {
        Memory {
            id: id.into(),
            kind: Kind::Gotcha,
            text: "mind the gap".into(),
            confidence: 0.9,
            scope: "current".into(),
            status: Status::Active,
            files: Vec::new(),
            stages: Vec::new(),
            created_at: Time(at),
            by: "ada".into(),
            approved_by: None,
        }
    }

    #[test]
    fn what_is_kept_is_found_by_how_its_id_begins() {
        let folder = tempfile::tempdir().unwrap();
        let memories = Memories::open(folder.path()).unwrap();
        for (id, at) in [("ab12", 2), ("ab34", 1), ("ab", 3)] {
            memories.keep(&memory(id, at)).unwrap();
        }
        let ids: Vec<_> = memories.all().unwrap().0.into_iter().map(|memory| memory.id).collect();
        assert_eq!(ids, ["ab34", "ab12", "ab"]);
        assert_eq!(memories.find("ab1").unwrap().id, "ab12");
        assert_eq!(memories.find("ab").unwrap().id, "ab", "all of an id is enough");
        for unknown in ["a", "", "zz", "../ab"] {
            assert!(matches!(memories.find(unknown), Err(MemoryError::Unknown(_))), "{unknown}");
        }
        assert!(memories.keep(&memory("../x", 0)).is_err());
    }

    #[test]
    fn one_that_is_damaged_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let memories = Memories::open(folder.path()).unwrap();
        memories.keep(&memory("good", 1)).unwrap();
        fs::write(folder.path().join("memory/bad.json"), "{\"id\": ").unwrap();
        fs::copy(folder.path().join("memory/good.json"), folder.path().join("memory/other.json")).unwrap();
        let (all, unread) = memories.all().unwrap();
        assert_eq!((all.len(), unread.len()), (1, 2), "{unread:?}");
    }
}
