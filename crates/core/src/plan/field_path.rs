//! Paths to the fields of a workflow, by which problems are located. A reader of a format maps them to its source.

use std::fmt;

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
pub(super) struct FieldRef<'a> {
    /// True if the field belongs to the step's undo.
    pub undo: bool,
    /// The part of the step that has the field, such as its check.
    pub group: Option<PlanField>,
    pub field: PlanField,
    pub rest: FieldRest<'a>,
}

/// The rest of the path after a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRest<'a> {
    Whole,
    Name(&'a str),
    Item(usize),
    ItemField(usize, PlanField),
    ItemFieldItem(usize, PlanField, usize),
}

impl<'a> FieldRef<'a> {
    pub fn new(field: PlanField, rest: FieldRest<'a>) -> FieldRef<'a> {
        FieldRef { undo: false, group: None, field, rest }
    }

    /// The name of the input, if the field is an input of the step itself.
    pub fn input_name(&self) -> Option<&'a str> {
        match *self {
            FieldRef { undo: false, group: None, field: PlanField::Inputs, rest: FieldRest::Name(name) } => Some(name),
            _ => None,
        }
    }

    /// True if it is this field of the step itself.
    pub fn is_field(&self, field: PlanField) -> bool {
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
}
