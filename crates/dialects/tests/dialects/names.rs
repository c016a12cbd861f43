//! Tests names in sources: valid ones, and those that would mislead a reader or a file system.

use skein_dialects::{Code, SourceFile, check_source};

fn codes(text: String) -> Vec<Code> {
    check_source(SourceFile::new("a.yaml", text), &())
        .diagnostics
        .iter()
        .filter(|said| said.is_error())
        .map(|said| said.code)
        .collect()
}

/// Builds an AgentCore workflow with steps of these names, written as JSON.
fn agentcore(names: &[&str]) -> String {
    let step = r#"{"worker": "CUSTOM", "instructions": "true", "capabilities": ["READ"]}"#;
    let steps: Vec<String> = names.iter().map(|name| format!("{}: {step}", quoted(name))).collect();
    format!(r#"{{"name": "x", "version": "1", "timeout": "1h", "steps": {{{}}}}}"#, steps.join(", "))
}

/// Builds an IOA workflow with steps of these names.
fn ioa(names: &[&str]) -> String {
    let step = |name: &&str| format!(r#"{{"name": {}, "agent": "a", "action": "b"}}"#, quoted(name));
    let steps: Vec<String> = names.iter().map(step).collect();
    format!(
        r#"{{"apiVersion": "ioa.dev/v0.2", "kind": "Workflow", "metadata": {{"name": "x"}}, "spec":
            {{"description": "x", "domainsInvolved": ["d"], "timeout": "1h", "steps": [{}]}}}}"#,
        steps.join(", ")
    )
}

fn quoted(name: &str) -> String {
    serde_json::to_string(name).expect("a text is JSON")
}

#[test]
fn any_safe_name_is_one() {
    let long = "n".repeat(200);
    for name in ["a", "Build", "step_1", "with space", "ünï", "构建", "😀", "a.b", "a..b", "x-", &long] {
        assert_eq!(codes(agentcore(&[name])), [], "{name:?}");
        assert_eq!(codes(ioa(&[name])), [], "{name:?}");
    }
}

#[test]
fn what_is_a_path_an_option_or_a_trick_is_none() {
    let long = "n".repeat(300);
    assert_eq!(codes(agentcore(&[""])), [Code::BadName]);
    assert_eq!(codes(ioa(&[""])), [Code::NoValue]);
    for name in [
        ".", "..", "a/b", "../a", "a\\b", "-rf", "a\0b", "a\nb", "a\u{1b}[31m", "a\u{202e}b", "a\u{200b}b", " a", "a ",
        &long,
    ] {
        assert_eq!(codes(agentcore(&[name])), [Code::BadName], "{name:?}");
        assert_eq!(codes(ioa(&[name])), [Code::BadName], "{name:?}");
    }
}

#[test]
fn names_that_a_person_or_a_file_system_cannot_tell_apart_are_refused() {
    for (one, other) in [("Test", "test"), ("e\u{301}t\u{e9}", "\u{e9}te\u{301}"), ("ÉTÉ", "été")] {
        assert_eq!(codes(agentcore(&[one, other])), [Code::TwinNames], "{one} {other}");
        assert_eq!(codes(ioa(&[one, other])), [Code::TwinNames], "{one} {other}");
    }
    assert_eq!(codes(agentcore(&["a", "a"])), [Code::DuplicateKey]);
    assert_eq!(codes(ioa(&["a", "a"])), [Code::DuplicateName]);
}

#[test]
fn the_context_directory_keeps_names_for_itself() {
    for name in ["_meta.json", "_workflow", "_convergence"] {
        assert_eq!(codes(agentcore(&[name])), [Code::ReservedName], "{name}");
    }
    assert_eq!(codes(agentcore(&["_meta"])), []);
}

#[test]
fn the_terms_of_a_format_do_not_change_names() {
    let stage = |id: &str, after: &str| {
        format!("  - {{id: {id}, name: A, depends_on: [{after}], roles: {{primary: \"agent:a\"}}}}\n")
    };
    let stages = [stage("step-1", "step-2"), stage("step-2", "step-1")].concat();
    let text = format!("workflow: {{id: x, name: X}}\nstages:\n{stages}");
    let report = check_source(SourceFile::new("a.yaml", text), &());
    let cycle = report.diagnostics.iter().find(|diagnostic| diagnostic.code == Code::Cycle).expect("a cycle");
    assert_eq!(cycle.message, "dependency cycle: step-1 -> step-2 -> step-1");
    let hint = cycle.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("a stage cannot start after itself"), "{hint}");
}

#[test]
fn a_problem_with_an_input_is_located_by_its_whole_name() {
    let step = "{id: use, kind: tool, tool: t, inputs: {a.b: $steps.nobody.x}}";
    let text = format!(
        "---\nschema: workflow/v1\nid: w\nname: W\nversion: 1.0.0\ndescription: D.\ntimeout_ms: 1000\nsteps:\n  - {step}\n---\n"
    );
    let report = check_source(SourceFile::new("WORKFLOW.md", text), &());
    let unknown = |code| matches!(code, Code::ReadsUnknownStep);
    let problem = report.diagnostics.iter().find(|diagnostic| unknown(diagnostic.code));
    let label = problem.unwrap_or_else(|| panic!("{:?}", report.diagnostics)).primary_label();
    assert_eq!(label.source.slice(label.span), "$steps.nobody.x");
}
