//! Declared triggers: the ways to start a run, and the policies around each of them.
//!
//! Owns the types that a front end fills, their defaults and their hash. Does not read a source format, and computes no
//! slots: [`Trigger::compile`](super::Trigger::compile) does.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    expr::Expr,
    ir::{Backoff, BackoffGrowth, ErrorClass, is_default},
    limits,
    plan::ContentHash,
    time::{Millis, Timestamp},
};

/// The identity of a trigger, which survives edits of everything but its subject.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TriggerKey(Arc<str>);

impl TriggerKey {
    pub fn new(text: impl Into<Arc<str>>) -> TriggerKey {
        TriggerKey(text.into())
    }

    /// Returns the key of a routine.
    pub fn from_routine(id: &str) -> TriggerKey {
        TriggerKey::new(format!("routine:{id}"))
    }

    /// Returns the key of a trigger that the settings of the project declare.
    pub fn from_config(name: &str) -> TriggerKey {
        TriggerKey::new(format!("config:{name}"))
    }

    /// Returns the key of a trigger that a workflow declares: workflow, kind and subject. Equal declarations have equal
    /// keys, so they are one trigger.
    pub fn from_workflow(workflow: &str, source: &TriggerSource) -> TriggerKey {
        let subject = match source {
            TriggerSource::Cron { cron, timezone } => format!("{cron} {timezone}"),
            TriggerSource::Interval { every, from: None } => every.to_string(),
            TriggerSource::Interval { every, from: Some(from) } => format!("{every} {}", from.0),
            TriggerSource::Calendar { rule, timezone } => format!("{rule} {timezone}"),
            TriggerSource::Webhook { path } => path.clone(),
            TriggerSource::Event { event } => event.clone(),
            TriggerSource::Manual => return TriggerKey::new(format!("{workflow}/manual")),
        };
        TriggerKey::new(format!("{workflow}/{}/{subject}", source.kind()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a short hash of the key, for URLs.
    pub fn short_id(&self) -> String {
        ContentHash::hash_bytes(self.0.as_bytes()).to_string().chars().take(12).collect()
    }
}

impl fmt::Debug for TriggerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for TriggerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The source of a trigger's fires: a schedule, requests, events or people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TriggerSource {
    Cron {
        cron: String,
        #[serde(default = "utc", skip_serializing_if = "is_utc")]
        timezone: String,
    },
    /// Elapsed time since `from`, or since the trigger was armed.
    Interval {
        every: Millis,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Timestamp>,
    },
    /// A recurrence rule of RFC 5545.
    Calendar {
        rule: String,
        #[serde(default = "utc", skip_serializing_if = "is_utc")]
        timezone: String,
    },
    Webhook {
        path: String,
    },
    Event {
        event: String,
    },
    Manual,
}

impl TriggerSource {
    /// The kind as a word of keys and tables.
    pub fn kind(&self) -> &'static str {
        match self {
            TriggerSource::Cron { .. } => "cron",
            TriggerSource::Interval { .. } => "interval",
            TriggerSource::Calendar { .. } => "calendar",
            TriggerSource::Webhook { .. } => "webhook",
            TriggerSource::Event { .. } => "event",
            TriggerSource::Manual => "manual",
        }
    }

    pub fn is_schedule(&self) -> bool {
        matches!(self, TriggerSource::Cron { .. } | TriggerSource::Interval { .. } | TriggerSource::Calendar { .. })
    }
}

/// The treatment of slots that were missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchupPolicy {
    #[default]
    Skip,
    /// The latest missed slot fires, unless a later slot is due at the same time.
    One,
    /// The latest missed slots fire, oldest first, one at a time.
    All,
}

/// The treatment of a fire while a run of the same trigger is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    Skip,
    /// One fire waits; a newer one replaces it.
    Queue,
    /// Every fire waits.
    All,
    /// The active runs are cancelled; the fire waits for their end.
    Cancel,
    Allow,
}

/// A span in which a trigger is valid; both ends are part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidityWindow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

impl ValidityWindow {
    pub fn contains(&self, at: Timestamp) -> bool {
        self.not_before.is_none_or(|first| first <= at) && self.not_after.is_none_or(|last| at <= last)
    }
}

/// The retry of failed runs of a trigger, each as a new run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerRetry {
    /// The maximum number of runs of one fire, including the first.
    pub max_attempts: u32,
    pub backoff: Backoff,
    /// The failures that are retried; every failure if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<RetryClass>,
}

impl Default for TriggerRetry {
    fn default() -> TriggerRetry {
        let backoff = Backoff {
            initial: Millis::from_mins(1),
            growth: BackoffGrowth::Exponential(2_000),
            max: Millis::from_hours(1),
            jitter: false,
        };
        TriggerRetry { max_attempts: 1, backoff, on: Vec::new() }
    }
}

impl TriggerRetry {
    pub fn applies_to(&self, class: Option<ErrorClass>) -> bool {
        self.on.is_empty() || class.is_some_and(|class| self.on.iter().any(|named| named.contains(class)))
    }
}

/// A group of failures that a routine names in `retry.on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryClass {
    Timeout,
    #[serde(alias = "5xx")]
    Transient,
    #[serde(alias = "rate-limit")]
    RateLimit,
}

impl RetryClass {
    pub fn contains(self, class: ErrorClass) -> bool {
        match self {
            RetryClass::Timeout => class == ErrorClass::Timeout,
            RetryClass::Transient => {
                matches!(class, ErrorClass::Transient | ErrorClass::Network | ErrorClass::Service)
            }
            RetryClass::RateLimit => class == ErrorClass::RateLimit,
        }
    }
}

/// The actions that follow when all attempts of a fire have failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FailureActions {
    /// Channels that are notified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// An event that is emitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fire_event: Option<String>,
    /// True to keep the failure as a dead letter.
    #[serde(skip_serializing_if = "is_default")]
    pub create_work_item: bool,
}

/// An event that a routine emits about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoutineEvent {
    RoutineTriggered,
    RoutineCompleted,
    RoutineFailed,
}

/// A trigger as it is declared. Its hash is what a person arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerDefinition {
    pub key: TriggerKey,
    /// The name of the workflow that it starts.
    pub workflow: String,
    pub source: TriggerSource,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub enabled: bool,
    /// The maximum delay of a slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter: Millis,
    /// Only a cron schedule may set it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub catchup: CatchupPolicy,
    /// By default, schedules skip, and hooks, events and people are allowed to overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<OverlapPolicy>,
    #[serde(default = "max_active", skip_serializing_if = "is_max_active")]
    pub max_active: u32,
    /// The maximum number of runs that start in a minute.
    #[serde(default = "rate", skip_serializing_if = "is_rate")]
    pub rate: u32,
    /// Consecutive failures after which a schedule or event trigger is paused; 0 for never.
    #[serde(default = "pause_after", skip_serializing_if = "is_pause_after")]
    pub pause_after: u32,
    /// The windows in which the trigger is valid; always, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub valid: Vec<ValidityWindow>,
    /// A condition over the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expr>,
    /// Dotted paths in the payload, each with the value that it must have, or a list of such values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filter: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<TriggerRetry>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: FailureActions,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emits: Vec<RoutineEvent>,
    /// The inputs, the correlation and the identity of its runs, as declared. Only the hash depends on them here.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub binding: Value,
}

impl TriggerDefinition {
    /// Creates a trigger with the default policies.
    pub fn new(key: TriggerKey, workflow: impl Into<String>, source: TriggerSource) -> TriggerDefinition {
        TriggerDefinition {
            key,
            workflow: workflow.into(),
            source,
            enabled: true,
            jitter: Millis(0),
            catchup: CatchupPolicy::Skip,
            overlap: None,
            max_active: max_active(),
            rate: rate(),
            pause_after: pause_after(),
            valid: Vec::new(),
            condition: None,
            filter: BTreeMap::new(),
            retry: None,
            on_failure: FailureActions::default(),
            emits: Vec::new(),
            binding: Value::Null,
        }
    }

    /// The policy for fires that name none.
    pub fn default_overlap(&self) -> OverlapPolicy {
        self.overlap.unwrap_or(if self.source.is_schedule() { OverlapPolicy::Skip } else { OverlapPolicy::Allow })
    }

    /// True if the trigger is valid at this time.
    pub fn is_valid_at(&self, at: Timestamp) -> bool {
        self.valid.is_empty() || self.valid.iter().any(|window| window.contains(at))
    }
}

/// Settings of the server that apply to all schedules. They are no part of what is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleSettings {
    /// A slot that is later than this is missed.
    pub grace: Millis,
    /// The age up to which missed slots are caught up.
    pub catchup_window: Millis,
}

impl Default for ScheduleSettings {
    fn default() -> ScheduleSettings {
        ScheduleSettings {
            grace: Millis(limits::TRIGGER_GRACE_DEFAULT),
            catchup_window: Millis(limits::TRIGGER_CATCHUP_WINDOW_DEFAULT),
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

fn is_utc(zone: &str) -> bool {
    zone == "UTC"
}

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

fn max_active() -> u32 {
    limits::TRIGGER_MAX_ACTIVE_DEFAULT
}

fn is_max_active(value: &u32) -> bool {
    *value == max_active()
}

fn rate() -> u32 {
    limits::TRIGGER_RATE_DEFAULT
}

fn is_rate(value: &u32) -> bool {
    *value == rate()
}

fn pause_after() -> u32 {
    limits::TRIGGER_PAUSE_AFTER_DEFAULT
}

fn is_pause_after(value: &u32) -> bool {
    *value == pause_after()
}
