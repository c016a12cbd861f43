//! What surrounds the work of a run, as it was settled when it was begun: who hears of it, and what its agents are told
//! besides their instructions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::notify::Channel;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    /// How people are told, by what hooks call it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Channel>,
}

impl Surroundings {
    pub fn is_empty(&self) -> bool {
        *self == Surroundings::default()
    }
}
