//! The terms that messages about a workflow use. A format with other words for the same things provides its own.

/// The terms of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkflowTerms {
    pub step: &'static str,
    /// A step that runs its inner steps once for each item of a list, with its article.
    pub an_each: &'static str,
    pub each: &'static str,
    /// A list of steps that a parallel step runs beside others.
    pub lane: &'static str,
    pub lanes: &'static str,
    pub parameter: &'static str,
    pub signal: &'static str,
}

impl WorkflowTerms {
    /// The terms of the IR.
    pub const IR: WorkflowTerms = WorkflowTerms {
        step: "step",
        an_each: "an each",
        each: "each",
        lane: "lane",
        lanes: "lanes",
        parameter: "parameter",
        signal: "signal",
    };
}
