//! The resources of a run, fixed when it begins: notification channels, and the material for its agents beside their
//! instructions.

use std::{collections::BTreeMap, path::PathBuf};

use super::telemetry::TelemetryEvent;
use crate::{agent::ToolServer, memory::ContextModule, notify::NotifyChannel};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunResources {
    /// Notification channels, by the names that hooks use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, NotifyChannel>,
    /// Context modules, by their references such as `ctx:rules`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, ContextModule>,
    /// Skills, by their references such as `skill:search`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub skills: BTreeMap<String, AgentSkill>,
    /// Tool servers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, ToolServer>,
    /// Subscriptions to the events of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub telemetry: Vec<TelemetrySubscription>,
}

/// A channel that subscribes to some of the events of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySubscription {
    pub name: String,
    pub channel: NotifyChannel,
    /// Event names without their domain, event classes, or `*`.
    pub events: Vec<String>,
}

impl TelemetrySubscription {
    pub(super) fn wants(&self, event: &TelemetryEvent) -> bool {
        let short = event.event.rsplit('.').next().unwrap_or_default();
        self.events.iter().any(|asked| asked == "*" || asked == event.class || asked == short)
    }
}

impl RunResources {
    pub fn is_empty(&self) -> bool {
        *self == RunResources::default()
    }
}

/// A skill: instructions for an agent, with files that it may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSkill {
    pub text: String,
    pub folder: PathBuf,
}

impl AgentSkill {
    /// The text about it in the prompt.
    pub(super) fn render_instructions(&self, name: &str) -> String {
        let short = name.split_once(':').map_or(name, |(_, name)| name);
        format!("# Skill: {short}\n\nIts files are in {}.\n\n{}", self.folder.display(), self.text.trim())
    }
}
