//! Codes of the failures that the engine itself detects.

pub const BUDGET: &str = "budget";
pub const CANCELLED: &str = "cancelled";
pub const CHECK_UNDECIDED: &str = "check_undecided";
pub const CONDITION: &str = "condition";
pub const EVIDENCE: &str = "evidence";
pub const EXHAUSTED: &str = "exhausted";
pub const EXPRESSION: &str = "expression";
pub const INPUT_INVALID: &str = "input_invalid";
pub const INPUT_MISSING: &str = "input_missing";
pub const INTERRUPTED: &str = "interrupted";
pub const LOOP_MAX: &str = "loop_max_iterations";
pub const MAX_STEPS: &str = "max_steps";
pub const MERGE_CONFLICT: &str = "merge_conflict";
pub const NOT_A_LIST: &str = "not_a_list";
pub const OUTPUT_INVALID: &str = "output_invalid";
pub const POLICY_DENIED: &str = "policy_denied";
pub const PROTECTED: &str = "protected";
pub const REJECTED: &str = "approval_rejected";
pub const STALLED: &str = "stalled";
pub const STOPPED: &str = "stopped";
pub const TIMEOUT: &str = "timeout";
pub const TOO_MANY_EVENTS: &str = "too_many_events";
pub const TOO_MANY_ITEMS: &str = "too_many_items";
pub const UNDO_FAILED: &str = "undo_failed";
