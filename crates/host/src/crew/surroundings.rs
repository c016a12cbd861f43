//! What surrounds the work of a run, as it was settled when it was begun: who hears of it, and what its agents are told
//! besides their instructions.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{memory::Module, notify::Channel};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// How people are told, by what hooks call it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Channel>,
    /// Context modules, by their references such as `ctx:rules`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, Module>,
    /// Skills, by their references such as `skill:search`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skills: BTreeMap<String, Skill>,
}

impl Surroundings {
    pub fn is_empty(&self) -> bool {
        *self == Surroundings::default()
    }
}

/// Something that an agent is told how to do, with files that it may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    pub text: String,
    pub folder: PathBuf,
}

impl Skill {
    /// What the agent is told of it.
    pub(super) fn told(&self, name: &str) -> String {
        let short = name.split_once(':').map_or(name, |(_, name)| name);
        format!("# Skill: {short}\n\nIts files are in {}.\n\n{}", self.folder.display(), self.text.trim())
    }
}
