//! SWDL's default values, its closed sets of words, and its words for states.

use skein_core::{
    ir::{ErrorClass, GateTimeout, HandoffFormat, HookTiming, RunStatus, StatusWords, StepStatus},
    time::Millis,
};

pub(super) const VERSION: &str = "1.0.0";
pub(super) const TIMEOUT: Millis = Millis::from_hours(2);
pub(super) const STAGE_TIMEOUT: Millis = Millis::from_mins(30);
pub(super) const GATE_TIMEOUT: Millis = Millis::from_hours(24);
/// The timeout of a summary, which is one short answer.
pub(super) const SUMMARY_TIMEOUT: Millis = Millis::from_mins(5);
/// The model of an agent without one. Only some agent programs know it, so the host decides.
pub(super) const MODEL: &str = "opus";

pub(super) const MAX_ATTEMPTS: u32 = 2;
pub(super) const INITIAL_INTERVAL: Millis = Millis::from_secs(30);
pub(super) const MAX_INTERVAL: Millis = Millis::from_mins(5);
/// In thousandths.
pub(super) const BACKOFF_MULTIPLIER: u32 = 2_000;
/// The maximum factor: a larger one would reach the longest interval at once.
pub(super) const MULTIPLIER_MOST: f64 = 1_000.0;
/// The maximum number of codes in one list of errors.
pub(super) const ERRORS_MOST: usize = 100;
/// The maximum number of attempts after a broken output contract: one retry, even if the policy allows more.
pub(super) const VALIDATION_ATTEMPTS: u32 = 2;

pub(super) const INPUT_REQUIRED: bool = true;
pub(super) const OUTPUT_REQUIRED: bool = true;
pub(super) const PARAMETER_REQUIRED: bool = false;

pub(super) const MEMORY_SCOPE: &str = "current";
pub(super) const MEMORY_MIN_CONFIDENCE: f64 = 0.7;
pub(super) const MEMORY_MAX_TOKENS: u32 = 2_000;
pub(super) const MEMORY_CATEGORIES: &[&str] =
    &["decision", "constraint", "gotcha", "style_rule", "pattern", "learning"];

/// The classes of failure that another attempt may resolve, besides a broken contract.
pub(super) const RETRIED: [ErrorClass; 7] = ErrorClass::CURABLE;

/// The kind of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StageType {
    #[default]
    Agent,
    Gate,
    FanOut,
}

pub(super) const STAGE_TYPES: &[(&str, StageType)] =
    &[("agent", StageType::Agent), ("gate", StageType::Gate), ("fan_out", StageType::FanOut)];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SwdlOnFailure {
    #[default]
    Halt,
    Continue,
    SkipDependents,
    Rollback,
}

/// The values of `on_failure` of a stage.
pub(super) const ON_FAILURE: &[(&str, SwdlOnFailure)] = &[
    ("halt", SwdlOnFailure::Halt),
    ("continue", SwdlOnFailure::Continue),
    ("skip_dependents", SwdlOnFailure::SkipDependents),
    ("rollback", SwdlOnFailure::Rollback),
];

/// The values of `on_stage_failure`, for all stages.
pub(super) const ON_STAGE_FAILURE: &[(&str, SwdlOnFailure)] =
    &[("halt", SwdlOnFailure::Halt), ("continue", SwdlOnFailure::Continue), ("rollback", SwdlOnFailure::Rollback)];

pub(super) const GATE_KINDS: &[(&str, ())] = &[("manual_approval", ())];

/// The action of a gate when nobody decides in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SwdlOnTimeout {
    #[default]
    Halt,
    Reject,
    AutoApprove,
}

pub(super) const ON_TIMEOUT: &[(&str, SwdlOnTimeout)] =
    &[("halt", SwdlOnTimeout::Halt), ("reject", SwdlOnTimeout::Reject), ("auto_approve", SwdlOnTimeout::AutoApprove)];

impl SwdlOnTimeout {
    pub(crate) fn to_gate_timeout(self) -> GateTimeout {
        match self {
            SwdlOnTimeout::Halt => GateTimeout::Expire,
            SwdlOnTimeout::Reject => GateTimeout::Reject,
            SwdlOnTimeout::AutoApprove => GateTimeout::Approve,
        }
    }
}

/// The formats in which the outputs of a stage are passed to its dependents; the first is the default.
pub(super) const HANDOFF_FORMATS: &[(&str, HandoffFormat)] =
    &[("structured", HandoffFormat::Structured), ("markdown", HandoffFormat::Markdown), ("raw", HandoffFormat::Raw)];

pub(super) const HOOKS: &[(&str, HookTiming)] =
    &[("on_start", HookTiming::Start), ("on_complete", HookTiming::Success), ("on_failure", HookTiming::Failure)];

/// The kinds of artifact; the first is the worker of a stage.
pub(super) const ARTIFACTS: &[&str] = &["agent", "skill", "mcp", "command"];
pub(super) const CONTEXT_MODULE: &str = "ctx";

pub(super) fn status_words() -> StatusWords {
    StatusWords::from_tables(run_word, step_word)
        .with_failure_words("`on_failure` is `halt`", "`on_failure` is `rollback`")
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "pending",
        RunStatus::Running => "running",
        RunStatus::Waiting => "waiting_for_approval",
        RunStatus::Undoing => "rolling_back",
        RunStatus::Succeeded => "success",
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Undone | RunStatus::UndoFailed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending | StepStatus::Ready => "pending",
        StepStatus::Running | StepStatus::Checking => "running",
        StepStatus::Waiting => "waiting_for_approval",
        StepStatus::Succeeded | StepStatus::Undone => "success",
        StepStatus::Failed | StepStatus::Incomplete => "failed",
        StepStatus::TimedOut => "timed_out",
        StepStatus::Skipped => "skipped",
        StepStatus::Cancelled => "cancelled",
    }
}
