//! AIP-15's closed sets of words and its ranges. Does not own the default values: those are in the builder.

use std::ops::RangeInclusive;

pub(super) const ITERATIONS: RangeInclusive<u32> = 1..=1_000;

/// The eight kinds of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aip15StepKind {
    Tool,
    Branch,
    Parallel,
    Suspend,
    Approval,
    Map,
    Loop,
    Subworkflow,
}

pub(super) const KINDS: &[(&str, Aip15StepKind)] = &[
    ("tool", Aip15StepKind::Tool),
    ("branch", Aip15StepKind::Branch),
    ("parallel", Aip15StepKind::Parallel),
    ("suspend", Aip15StepKind::Suspend),
    ("approval", Aip15StepKind::Approval),
    ("map", Aip15StepKind::Map),
    ("loop", Aip15StepKind::Loop),
    ("subworkflow", Aip15StepKind::Subworkflow),
];

impl Aip15StepKind {
    /// The name with its article, for messages.
    pub(crate) fn display_name(self) -> &'static str {
        match self {
            Aip15StepKind::Tool => "a tool step",
            Aip15StepKind::Branch => "a branch step",
            Aip15StepKind::Parallel => "a parallel step",
            Aip15StepKind::Suspend => "a suspend step",
            Aip15StepKind::Approval => "an approval step",
            Aip15StepKind::Map => "a map step",
            Aip15StepKind::Loop => "a loop step",
            Aip15StepKind::Subworkflow => "a subworkflow step",
        }
    }
}

/// The fields that only some kinds have, and those kinds.
pub(super) const OF_KINDS: &[(&str, &str)] = &[
    ("tool", "tool steps"),
    ("action", "tool steps"),
    ("pinned_provider", "tool steps"),
    ("branches", "branch and parallel steps"),
    ("default", "branch steps"),
    ("resume", "suspend steps"),
    ("prompt", "approval steps"),
    ("artifacts", "approval steps"),
    ("approvers", "approval steps"),
    ("on_timeout", "approval steps, and of `resume`"),
    ("on_approve", "approval steps"),
    ("on_reject", "approval steps"),
    ("over", "map steps"),
    ("parallelism", "map steps"),
    ("steps", "map and loop steps, and of branches of parallel steps"),
    ("while", "loop steps"),
    ("max_iterations", "loop steps"),
    ("workflow", "subworkflow steps"),
];

/// Fields that exactly one kind of step has.
pub(super) const ONLY: &[(&str, &str)] = &[
    ("tool", "tool"),
    ("action", "tool"),
    ("resume", "suspend"),
    ("approvers", "approval"),
    ("over", "map"),
    ("while", "loop"),
    ("workflow", "subworkflow"),
];

/// Fields that moved out of workflows, and their present place.
pub(super) const REMOVED: &[(&str, &str)] = &[
    ("code", "it is `code` of the DRIVER.md that implements a step's tool"),
    ("run", "it is `run` of the DRIVER.md that implements a step's tool"),
    ("runner", "it is `runner` of the DRIVER.md that implements a step's tool"),
    ("secrets", "they are in the SECRETS.md that `auth.ref` of a DRIVER.md names"),
    ("network", "it is `network.egress` of the DRIVER.md that implements a step's tool"),
];

/// Fields of older files, and their replacements.
pub(super) const OLD: &[(&str, &str)] = &[
    ("entry", "remove it: a workflow only has steps, and a tool is implemented in its DRIVER.md"),
    ("runtime", "files are `inputsFiles` and `outputsFiles`; the rest is in the DRIVER.md of each tool"),
];

/// The placeholders in a file path that the host fills in.
pub(super) const PATH_TOKENS: &[&str] = &["runId", "workflowId", "isoDate"];
