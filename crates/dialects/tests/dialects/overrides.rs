//! Tests overrides: an accepted file never allows more than the workflow does by itself.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{
    ir::{Approver, GateSpec, GateTimeout, StepKindSpec, WorkerSpec, Workflow},
    time::Millis,
};
use skein_dialects::{Project, SourceFile, WorkflowNotFound, WorkflowReference, check_source};

struct Overrides(String);

impl Project for Overrides {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Err(WorkflowNotFound { why: "there are no others".to_owned(), known: Vec::new() })
    }

    fn override_source(&self) -> Option<Arc<SourceFile>> {
        Some(SourceFile::new("overrides.yaml", self.0.as_str()))
    }
}

/// The permissions of a workflow, as far as they can be compared.
#[derive(Debug, PartialEq)]
struct Allows {
    tools: BTreeSet<String>,
    secrets: BTreeSet<String>,
    network: bool,
    /// None: anyone.
    approvers: Option<BTreeSet<Approver>>,
    opens_by_itself: bool,
    waits: Millis,
}

impl Allows {
    fn of(workflow: &Workflow) -> Allows {
        let mut gate = None;
        let mut work = None;
        for step in &workflow.scope.steps {
            match &step.kind {
                StepKindSpec::Gate(found) => gate = Some(found),
                StepKindSpec::Work(found) => work = Some(found),
                _ => {}
            }
        }
        let (gate, work) = (gate.expect("there is a gate"), work.expect("there is work"));
        let WorkerSpec::Agent { tools, .. } = &work.worker else { panic!("an agent does it") };
        let GateSpec { approvers, on_timeout, timeout, .. } = &**gate;
        Allows {
            // A skill and a command are only text and give no permissions.
            tools: tools.iter().filter(|tool| tool.starts_with("mcp:")).cloned().collect(),
            secrets: work.isolation.secrets.iter().cloned().collect(),
            network: !work.isolation.no_network,
            approvers: (!approvers.is_empty()).then(|| approvers.iter().cloned().collect()),
            opens_by_itself: *on_timeout == GateTimeout::Approve,
            waits: timeout.expect("a gate has a timeout"),
        }
    }

    fn is_within(&self, all: &Allows) -> bool {
        let approvers = match (&self.approvers, &all.approvers) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(some), Some(all)) => some.is_subset(all),
        };
        let waits = match self.opens_by_itself {
            true => self.waits >= all.waits,
            false => self.waits <= all.waits,
        };
        self.tools.is_subset(&all.tools)
            && self.secrets.is_subset(&all.secrets)
            && (all.network || !self.network)
            && approvers
            && (all.opens_by_itself || !self.opens_by_itself)
            && waits
    }
}

const TOOLS: &[&str] =
    &["null", "[]", r#"["mcp:a"]"#, r#"["mcp:a", "mcp:b"]"#, r#"["mcp:c"]"#, r#"["mcp:a", "skill:c", "command:d"]"#];
const APPROVERS: &[&str] = &["null", "[]", "[ada]", "[ada, bob]", "[carol]"];
const ON_TIMEOUT: &[&str] = &["halt", "reject", "auto_approve"];
const TIMEOUTS: &[&str] = &["30m", "1h", "2h"];
const X_SKEIN: &[&str] = &["{}", "{network: none, secrets: []}", r#"{network: "on", secrets: [A, B]}"#];

fn workflow(tools: &str, approvers: &str, on_timeout: &str, x_skein: &str) -> String {
    format!(
        "workflow: {{id: w, name: W}}\nstages:\n  - id: work\n    name: Work\n    roles: {{primary: \"agent:a\", \
         tools: {tools}}}\n    x-skein: {x_skein}\n  - id: gate\n    name: Gate\n    type: gate\n    gate: \
         {{approvers: {approvers}, timeout: 1h, on_timeout: {on_timeout}}}\n"
    )
}

#[test]
fn what_is_accepted_never_allows_more() {
    let (mut accepted, mut refused) = (0, 0);
    for base in [
        workflow(TOOLS[3], APPROVERS[3], "halt", "{network: none, secrets: [A]}"),
        workflow(TOOLS[1], APPROVERS[1], "auto_approve", "{}"),
    ] {
        let alone = check_source(SourceFile::new("w.yaml", base.as_str()), &());
        let before = Allows::of(alone.workflow.as_deref().expect("it is read"));
        let places = [TOOLS, APPROVERS, ON_TIMEOUT, TIMEOUTS, X_SKEIN];
        for number in 0..places.iter().map(|words| words.len()).product() {
            let mut rest: usize = number;
            let [tools, approvers, on_timeout, timeout, x_skein] = places.map(|words| {
                let word = words[rest % words.len()];
                rest /= words.len();
                word
            });
            let overrides = format!(
                "overrides:\n  w:\n    stages:\n      work: {{roles: {{tools: {tools}}}, x-skein: {x_skein}}}\n      \
                 gate: {{gate: {{approvers: {approvers}, timeout: {timeout}, on_timeout: {on_timeout}}}}}\n"
            );
            let report = check_source(SourceFile::new("w.yaml", base.as_str()), &Overrides(overrides.clone()));
            let after = Allows::of(report.workflow.as_deref().expect("it is read"));
            assert_eq!(report.is_valid(), after.is_within(&before), "{overrides}\n{before:?}\n{after:?}");
            *if report.is_valid() { &mut accepted } else { &mut refused } += 1;
        }
    }
    assert!(accepted > 20 && refused > 20, "{accepted} accepted, {refused} refused");
}

#[test]
fn where_there_are_none_nothing_changes() {
    let text = workflow(TOOLS[3], APPROVERS[3], "halt", "{}");
    let alone = check_source(SourceFile::new("w.yaml", text.as_str()), &());
    for overrides in ["", "# nothing\n", "null\n", "overrides:\n", "overrides: {}\n", "overrides: {w: }\n"] {
        let report = check_source(SourceFile::new("w.yaml", text.as_str()), &Overrides(overrides.to_owned()));
        assert!(report.is_valid(), "{overrides}");
        assert_eq!(report.workflow, alone.workflow, "{overrides}");
    }
}
