//! Problems of a workflow that are found before it runs, and the paths to fields by which they are located.
//!
//! Owns the closed list of codes, the severity of each, and the parts of a problem: message, location and hint. Does
//! not know lines and files; the reader of the source maps [`ProblemLocation`] back to them.

use std::{collections::BTreeMap, fmt};

use crate::{expr::ExprSpan, ids::StepId, suggest::find_closest_name};

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident $severity:ident $word:literal,)*) => {
        /// The kind of a problem. The words are stable; documentation and tools refer to them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode { $($(#[doc = $doc])* $variant,)* }

        impl ProblemCode {
            pub const ALL: &[ProblemCode] = &[$(ProblemCode::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$variant => $word,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(ProblemCode::$variant => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    // Shape.
    EmptyWorkflow Error "empty-workflow",
    EmptyScope Error "empty-scope",
    DuplicateStep Error "duplicate-step",
    DuplicateLane Error "duplicate-lane",
    DuplicateInput Error "duplicate-input",
    DuplicateArtifact Error "duplicate-artifact",
    /// A field that has no meaning in this shape of scope.
    Misplaced Error "misplaced",
    NoArms Error "no-arms",
    TooFewLanes Error "too-few-lanes",
    NoSignals Error "no-signals",
    // The order of steps.
    UnknownDependency Error "unknown-dependency",
    UnknownTarget Error "unknown-target",
    UnknownStart Error "unknown-start",
    SelfDependency Error "self-dependency",
    /// A conflict resolver that cannot resolve the conflicts.
    BadSettler Error "bad-settler",
    Cycle Error "cycle",
    Unreachable Error "unreachable",
    // Numbers.
    BadLoopMax Error "bad-loop-max",
    BadParallelism Error "bad-parallelism",
    BadIterations Error "bad-iterations",
    BadConcurrency Error "bad-concurrency",
    BadMaxSteps Error "bad-max-steps",
    BadAttempts Error "bad-attempts",
    BadTimeout Error "bad-timeout",
    // Limits.
    TooManySteps Error "too-many-steps",
    TooManyEdges Error "too-many-edges",
    TooDeep Error "too-deep",
    CallDepth Error "call-depth",
    // Calls.
    UnknownWorkflow Error "unknown-workflow",
    Recursion Error "recursion",
    BorderClash Error "border-clash",
    // Artifacts.
    UnknownArtifactSource Error "unknown-artifact-source",
    UnknownArtifact Error "unknown-artifact",
    ArtifactNotBefore Error "artifact-not-before",
    UnknownExportSource Error "unknown-export-source",
    // Schemas.
    BadSchema Error "bad-schema",
    // Expressions.
    UnknownStep Error "unknown-step",
    SelfReference Error "self-reference",
    NotBefore Error "not-before",
    SiblingLane Error "sibling-lane",
    InsideEach Error "inside-each",
    NoItem Error "no-item",
    UnknownParameter Error "unknown-parameter",
    UnknownOutput Error "unknown-output",
    // Parameters of one run, and stored plans.
    MissingParameter Error "missing-parameter",
    BadParameter Error "bad-parameter",
    BadFrozen Error "bad-frozen",
    // Definitions by a program.
    BadName Error "bad-name",
    WrongKind Error "wrong-kind",
    BadExpression Error "bad-expression",
    BadUndo Error "bad-undo",
    // Advice.
    UndeclaredOutput Warning "undeclared-output",
    TypeClash Warning "type-clash",
    IndirectReference Warning "indirect-reference",
    NoTimeout Warning "no-timeout",
    LongTimeout Warning "long-timeout",
    WaitOutlivesRun Warning "wait-outlives-run",
    StepOutlivesRun Warning "step-outlives-run",
    ManySteps Warning "many-steps",
    ManyEdges Warning "many-edges",
    DeepCalls Warning "deep-calls",
    ManyAttempts Warning "many-attempts",
    ManyIterations Warning "many-iterations",
    SkippedGate Warning "skipped-gate",
    GateOpensItself Warning "gate-opens-itself",
    AnyoneMayApprove Warning "anyone-may-approve",
    InputMayBeMissing Warning "input-may-be-missing",
    UnboundedEach Warning "unbounded-each",
    UntrustedText Warning "untrusted-text",
    NothingToUndo Note "nothing-to-undo",
    WorkerStarts Note "worker-starts",
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Note,
    Warning,
    /// The workflow cannot be run.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A location in a workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProblemLocation {
    /// The called workflow; none for the root.
    pub workflow: Option<String>,
    pub step: Option<StepId>,
    pub field: FieldPath,
    /// The span within the expression in that field.
    pub span: Option<ExprSpan>,
}

impl ProblemLocation {
    pub fn from_field(field: impl Into<FieldPath>) -> ProblemLocation {
        ProblemLocation { field: field.into(), ..ProblemLocation::default() }
    }
}

impl fmt::Display for ProblemLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.to_string();
        let parts = [self.workflow.as_deref(), self.step.as_ref().map(StepId::as_str), Some(&field)];
        let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": "))
    }
}

/// An unknown name, and the one that was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub wrong: String,
    pub meant: String,
}

/// One error, warning or note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    pub code: ProblemCode,
    pub severity: Severity,
    pub at: ProblemLocation,
    /// One line that states the problem, with the name of the item.
    pub message: String,
    /// The suggested fix.
    pub hint: Option<String>,
    pub slip: Option<Suggestion>,
    pub related: Vec<(ProblemLocation, String)>,
    /// The number of further problems of this kind that were counted but not kept; then the message says only that.
    pub more: usize,
}

impl PlanProblem {
    /// Creates a problem with the severity of its code.
    pub fn new(code: ProblemCode, at: ProblemLocation, message: impl Into<String>) -> PlanProblem {
        let message = message.into();
        PlanProblem {
            code,
            severity: code.severity(),
            at,
            message,
            hint: None,
            slip: None,
            related: Vec::new(),
            more: 0,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> PlanProblem {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the nearest known name, if a typo explains the difference.
    #[must_use]
    pub fn with_suggestion<'a>(mut self, wrong: &str, known: impl Iterator<Item = &'a str>) -> PlanProblem {
        if let Some(meant) = find_closest_name(wrong, known) {
            self.hint = Some(format!("did you mean `{meant}`?"));
            self.slip = Some(Suggestion { wrong: wrong.to_owned(), meant: meant.to_owned() });
        }
        self
    }

    /// Sets the hint, if there is one.
    #[must_use]
    pub fn with_optional_hint(mut self, hint: Option<String>) -> PlanProblem {
        self.hint = hint.or(self.hint);
        self
    }

    #[must_use]
    pub fn with_related(mut self, at: ProblemLocation, message: impl Into<String>) -> PlanProblem {
        self.related.push((at, message.into()));
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] ", self.severity, self.code)?;
        match self.at.to_string() {
            at if at.is_empty() => write!(f, "{}", self.message)?,
            at => write!(f, "{at}: {}", self.message)?,
        }
        self.hint.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

/// Maximum problems of one kind that are kept; further ones are counted. A generated workflow can have ten thousand.
const KEPT: usize = 50;

/// Collects problems, in order.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector {
    kept: Vec<PlanProblem>,
    counts: BTreeMap<ProblemCode, usize>,
    errors: bool,
}

impl ProblemCollector {
    pub(super) fn push(&mut self, problem: PlanProblem) {
        self.push_with(problem.code, || problem);
    }

    /// Adds a problem that takes long to build, such as one with a suggestion. It is only built if it is kept.
    pub(super) fn push_with(&mut self, code: ProblemCode, make: impl FnOnce() -> PlanProblem) {
        self.errors |= code.severity() == Severity::Error;
        let count = self.counts.entry(code).or_default();
        *count += 1;
        if *count <= KEPT {
            self.kept.push(make());
        }
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors
    }

    /// Returns all problems. If some were only counted, one more states their number.
    pub(super) fn finish(mut self) -> Vec<PlanProblem> {
        for (code, count) in self.counts {
            if count > KEPT {
                let more = count - KEPT;
                let message = format!("{more} more of these are not shown");
                self.kept.push(PlanProblem { more, ..PlanProblem::new(code, ProblemLocation::default(), message) });
            }
        }
        self.kept
    }
}

macro_rules! fields {
    ($($variant:ident $word:literal,)*) => {
        /// A field of the IR or of the builder's definitions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PlanField { $($variant,)* }

        impl PlanField {
            pub fn as_str(self) -> &'static str {
                match self { $(PlanField::$variant => $word,)* }
            }
        }
    };
}

fields! { // table
    After "after",
    Approvers "approvers",
    Arguments "arguments",
    Arms "arms",
    Artifact "artifact",
    Artifacts "artifacts",
    Attempts "attempts",
    Branches "branches",
    Check "check",
    CommandTimeout "command_timeout",
    Compensation "compensation",
    Concurrency "concurrency",
    Condition "condition",
    Default "default",
    Effects "effects",
    Env "env",
    Exports "exports",
    FilesOut "files_out",
    From "from",
    Gives "gives",
    Hooks "hooks",
    Id "id",
    IdleTimeout "idle_timeout",
    Inputs "inputs",
    Instructions "instructions",
    Isolation "isolation",
    Kind "kind",
    Lanes "lanes",
    Max "max",
    MaxIterations "max_iterations",
    MaxSteps "max_steps",
    Message "message",
    Next "next",
    On "on",
    OnApprove "on_approve",
    OnReject "on_reject",
    OnTimeout "on_timeout",
    Outputs "outputs",
    Over "over",
    Parallelism "parallelism",
    Parameters "parameters",
    Policy "policy",
    Prompt "prompt",
    Result "result",
    Resume "resume",
    Retry "retry",
    Schema "schema",
    Scope "scope",
    Secrets "secrets",
    SettledBy "settled_by",
    Shows "shows",
    Start "start",
    StartTimeout "start_timeout",
    Steps "steps",
    Summary "summary",
    Takes "takes",
    Timeout "timeout",
    Triggers "triggers",
    Undo "undo",
    When "when",
    While "while",
    Workflow "workflow",
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldSegment {
    Field(PlanField),
    /// An item of a list.
    Index(usize),
    /// A name from the source, such as that of an input.
    Name(String),
}

/// The path to a field, such as `after[2]` or `inputs.url`. Empty for the whole step or workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(Vec<FieldSegment>);

impl FieldPath {
    pub fn segments(&self) -> &[FieldSegment] {
        &self.0
    }

    #[must_use]
    pub fn field(self, field: PlanField) -> FieldPath {
        self.push(FieldSegment::Field(field))
    }

    #[must_use]
    pub fn item(self, index: usize) -> FieldPath {
        self.push(FieldSegment::Index(index))
    }

    #[must_use]
    pub fn name(self, name: impl Into<String>) -> FieldPath {
        self.push(FieldSegment::Name(name.into()))
    }

    /// Appends a JSON pointer into the value of the field.
    #[must_use]
    pub fn pointer(mut self, pointer: &str) -> FieldPath {
        let segments = pointer.split('/').skip(1);
        let names = segments.map(|segment| segment.replace("~1", "/").replace("~0", "~"));
        self.0.extend(names.map(FieldSegment::Name));
        self
    }

    /// Appends all segments of another path.
    #[must_use]
    pub fn join(mut self, path: impl Into<FieldPath>) -> FieldPath {
        self.0.extend(path.into().0);
        self
    }

    /// Returns the rest of the path if it starts with a field and continues.
    pub fn strip_prefix(&self, field: PlanField) -> Option<FieldPath> {
        match self.0.split_first()? {
            (FieldSegment::Field(first), rest) if *first == field && !rest.is_empty() => Some(FieldPath(rest.to_vec())),
            _ => None,
        }
    }

    fn push(mut self, segment: FieldSegment) -> FieldPath {
        self.0.push(segment);
        self
    }
}

impl From<PlanField> for FieldPath {
    fn from(field: PlanField) -> FieldPath {
        FieldPath(vec![FieldSegment::Field(field)])
    }
}

impl From<&[PlanField]> for FieldPath {
    fn from(fields: &[PlanField]) -> FieldPath {
        FieldPath(fields.iter().copied().map(FieldSegment::Field).collect())
    }
}

impl<const N: usize> From<[PlanField; N]> for FieldPath {
    fn from(fields: [PlanField; N]) -> FieldPath {
        FieldPath::from(&fields[..])
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            let dot = if place == 0 { "" } else { "." };
            match segment {
                FieldSegment::Field(field) => write!(f, "{dot}{}", field.as_str())?,
                FieldSegment::Index(index) => write!(f, "[{index}]")?,
                FieldSegment::Name(name) => write!(f, "{dot}{name}")?,
            }
        }
        Ok(())
    }
}

/// A field of a step or workflow that a check visits. Becomes a path only if there is a problem with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldRef<'a> {
    /// True if the field belongs to the step's undo.
    pub undo: bool,
    /// The part of the step that has the field, such as its check.
    pub group: Option<PlanField>,
    pub field: PlanField,
    pub rest: FieldRest<'a>,
}

/// The rest of the path after a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldRest<'a> {
    Whole,
    Name(&'a str),
    Item(usize),
    ItemField(usize, PlanField),
    ItemFieldItem(usize, PlanField, usize),
}

impl<'a> FieldRef<'a> {
    pub(crate) fn new(field: PlanField, rest: FieldRest<'a>) -> FieldRef<'a> {
        FieldRef { undo: false, group: None, field, rest }
    }

    /// The name of the input, if the field is an input of the step itself.
    pub(crate) fn input_name(&self) -> Option<&'a str> {
        match *self {
            FieldRef { undo: false, group: None, field: PlanField::Inputs, rest: FieldRest::Name(name) } => Some(name),
            _ => None,
        }
    }

    /// True if it is this field of the step itself.
    pub(crate) fn is_field(&self, field: PlanField) -> bool {
        *self == FieldRef::new(field, FieldRest::Whole)
    }
}

impl From<FieldRef<'_>> for FieldPath {
    fn from(FieldRef { undo, group, field, rest }: FieldRef<'_>) -> FieldPath {
        let fields = undo.then_some(PlanField::Undo).into_iter().chain(group).chain([field]);
        let path = FieldPath(fields.map(FieldSegment::Field).collect());
        match rest {
            FieldRest::Whole => path,
            FieldRest::Name(name) => path.name(name),
            FieldRest::Item(i) => path.item(i),
            FieldRest::ItemField(i, field) => path.item(i).field(field),
            FieldRest::ItemFieldItem(i, field, j) => path.item(i).field(field).item(j),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::PlanField;

    use super::*;

    #[test]
    fn a_path_reads_as_people_write_it() {
        let path = FieldPath::from(PlanField::Inputs).name("a.b").pointer("/x~1y/1");
        assert_eq!(path.to_string(), "inputs.a.b.x/y.1");
        assert_eq!(path.segments()[2], FieldSegment::Name("x/y".to_owned()));
        let arm = FieldRef::new(PlanField::Arms, FieldRest::ItemField(1, PlanField::Next));
        assert_eq!(FieldPath::from(FieldRef { undo: true, ..arm }).to_string(), "undo.arms[1].next");
        assert_eq!(FieldPath::default().to_string(), "");
    }

    #[test]
    fn a_prefix_is_a_whole_field() {
        let path = FieldPath::from([PlanField::Undo, PlanField::Timeout]);
        assert_eq!(path.strip_prefix(PlanField::Undo), Some(PlanField::Timeout.into()));
        assert_eq!(path.strip_prefix(PlanField::Timeout), None);
        assert_eq!(FieldPath::from(PlanField::Undo).strip_prefix(PlanField::Undo), None);
    }

    #[test]
    fn codes_are_kebab_case_and_different() {
        let words: std::collections::BTreeSet<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), ProblemCode::ALL.len());
        for word in words {
            assert!(word.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{word}");
        }
    }

    #[test]
    fn more_than_can_be_read_are_counted() {
        let mut problems = ProblemCollector::default();
        (0..KEPT + 3)
            .for_each(|_| problems.push(PlanProblem::new(ProblemCode::Cycle, ProblemLocation::default(), "a -> a")));
        let problems = problems.finish();
        assert_eq!(problems.len(), KEPT + 1);
        assert_eq!(problems[KEPT].message, "3 more of these are not shown");
    }

    #[test]
    fn a_problem_reads_as_one_line() {
        let at = ProblemLocation { workflow: Some("child".into()), ..ProblemLocation::from_field(PlanField::Start) };
        let problem =
            PlanProblem::new(ProblemCode::UnknownStart, at, "there is no step `x`").with_hint("did you mean `y`?");
        assert_eq!(problem.to_string(), "error[unknown-start] child: start: there is no step `x` (did you mean `y`?)");
    }
}
