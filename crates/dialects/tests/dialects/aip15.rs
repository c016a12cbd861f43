//! Tests of AIP-15 beyond single cases: a file equals a program with the same definitions, line endings do not matter,
//! and notes report triggers that are not served.

use serde_json::json;
use skein_core::{builder::*, plan::ContentHash};
use skein_dialects::{SourceFile, SourceReport, check_source};

const SOURCE: &str = r#"---
name: Bake a cake
id: bake-a-cake
description: Bakes, asks, and eats or throws away.
version: 1.0.0
inputs: { type: object, properties: { eggs: { type: integer } } }
outputs: { type: object }
timeout_ms: 3600000
steps:
  - id: bake
    kind: tool
    tool: oven
    inputs: { eggs: $input.eggs, heat: 180 }
    outputs: { type: object, properties: { colour: { type: string } } }
    retry: { max_attempts: 2, backoff: exponential }
    timeout_ms: 20000
    compensation: clean-up
  - { id: clean-up, kind: tool, tool: sponge, inputs: { of: $steps.bake.colour } }
  - id: colour
    kind: branch
    branches: [{ when: $steps.bake.colour == "black", next: throw-away }]
    default: taste
  - id: taste
    kind: approval
    prompt: Is it good?
    approvers: [{ role: children }]
    on_reject: { next: throw-away }
    on_approve: { next: $end }
  - { id: throw-away, kind: tool, tool: bin }
---

# Cake
"#;

fn program() -> WorkflowDefinition {
    let taste =
        ApprovalStep::new("Is it good?").with_role("children").with_on_reject("throw-away").with_on_approve("$end");
    let colour = BranchStep::with_default("taste").with_arm("$steps.bake.colour == \"black\"", "throw-away");
    let steps = [
        StepDefinition::new("bake", ToolStep::tool("oven"))
            .with_input("eggs", "$input.eggs")
            .with_input("heat", 180)
            .with_outputs(json!({"type": "object", "properties": {"colour": {"type": "string"}}}))
            .with_retry(RetryDefinition::exponential(2))
            .with_timeout_ms(20_000)
            .with_compensation("clean-up"),
        StepDefinition::new("clean-up", ToolStep::tool("sponge")).with_input("of", "$steps.bake.colour"),
        StepDefinition::new("colour", colour),
        StepDefinition::new("taste", taste),
        StepDefinition::new("throw-away", ToolStep::tool("bin")),
    ];
    let mut definition = WorkflowDefinition::new("bake-a-cake", "Bakes, asks, and eats or throws away.")
        .with_input_schema(json!({"type": "object", "properties": {"eggs": {"type": "integer"}}}))
        .with_output_schema(json!({"type": "object"}))
        .with_timeout_ms(3_600_000)
        .with_steps(steps.map(define_step));
    definition.name = Some("Bake a cake".to_owned());
    definition.version = Some("1.0.0".to_owned());
    definition
}

fn checked(text: &str) -> SourceReport {
    check_source(SourceFile::new("WORKFLOW.md", text), &())
}

#[track_caller]
fn hash(text: &str) -> ContentHash {
    let report = checked(text);
    report.definition.unwrap_or_else(|| panic!("{:#?}", report.diagnostics)).hash()
}

#[test]
fn a_file_and_a_program_that_say_the_same_are_the_same() {
    let program = define_workflow(program()).commit().unwrap();
    assert_eq!(checked(SOURCE).workflow.as_deref(), Some(&*program.workflow));
    assert_eq!(hash(SOURCE), program.definition.hash());
}

#[test]
fn line_ends_a_byte_order_mark_and_the_body_mean_nothing() {
    let plain = hash(SOURCE);
    assert_eq!(hash(&SOURCE.replace('\n', "\r\n")), plain);
    assert_eq!(hash(&format!("\u{feff}{SOURCE}")), plain);
    assert_eq!(hash(&format!("{SOURCE}\n---\n\n<script>alert(1)</script>\n\n---\n")), plain);
    assert_eq!(hash(&format!("\n\n{SOURCE}")), plain);
}

#[test]
fn without_a_project_the_tools_cannot_be_checked_and_that_is_said_once() {
    let codes: Vec<&str> = checked(SOURCE).diagnostics.iter().map(|said| said.code.as_str()).collect();
    assert_eq!(codes, ["SK0702"]);
}

#[test]
fn what_nothing_serves_is_noted() {
    let triggers = "triggers:
  - { kind: manual }
  - { kind: webhook, path: /cake }
  - { kind: event, name: guests.came }
routines:
  - \"@kitchen/sundays\"
  - inline: { schedule: { kind: manual } }
  - inline: { schedule: { kind: interval, every: 7d }, enabled: false }
steps:";
    let report = checked(&SOURCE.replace("steps:", triggers));
    let notes = report.notes.iter().filter(|note| note.code.as_str() == "SK0708");
    let lines: Vec<usize> =
        notes.map(|note| note.primary_label().source.position(note.primary_label().span.start).line).collect();
    assert_eq!(lines, [11, 12, 14, 16]);
    assert_eq!(report.workflow.map(|workflow| workflow.triggers.len()), Some(5));
}

#[test]
fn ten_thousand_steps_are_checked_and_more_are_refused() {
    let steps =
        |count: usize| -> String { (0..count).map(|i| format!("- {{id: s{i}-x, kind: tool, tool: t}}\n")).collect() };
    let of = |count: usize| {
        format!(
            "---\nname: Many\nid: many\ndescription: Many.\nversion: 1.0.0\ninputs: {{}}\noutputs: {{}}\nmax_steps: 20000\nsteps:\n{}---\n",
            steps(count)
        )
    };
    assert!(checked(&of(10_000)).is_valid());
    let report = checked(&of(10_001));
    assert!(report.diagnostics.iter().any(|said| said.code.as_str() == "SK0214"));
}

#[test]
fn lists_of_steps_nest_so_deep_and_no_deeper() {
    let nested = |depth: usize| {
        let mut step = "{id: inner, kind: tool, tool: t}".to_owned();
        for i in 0..depth {
            step = format!("{{id: m{i}-x, kind: map, over: [1], steps: [{step}]}}");
        }
        format!(
            "---\nname: Deep\nid: deep\ndescription: Deep.\nversion: 1.0.0\ninputs: {{}}\noutputs: {{}}\nsteps: [{step}]\n---\n"
        )
    };
    assert!(checked(&nested(16)).is_valid());
    let codes = |text: &str| -> Vec<&str> {
        let errors = checked(text).diagnostics.into_iter().filter(skein_dialects::Diagnostic::is_error);
        errors.map(|said| said.code.as_str()).collect()
    };
    assert_eq!(codes(&nested(17)), ["SK0214"]);
    assert_eq!(codes(&nested(200)), ["SK0007"]);
}

/// Builds a front matter with one step and optional additions.
fn small(name: &str, description: &str, top: &str, step: &str) -> String {
    format!(
        "---\nname: {name}\nid: small\ndescription: {description}\nversion: 1.0.0\ninputs: {{}}\noutputs: {{}}\n{top}\n\
         steps:\n  - {step}\n---\n"
    )
}

#[test]
fn every_range_ends_where_it_says() {
    let tool = |more: String| format!("{{ id: only, kind: tool, tool: t{more} }}");
    let of_step = |step: String| small("x", "x", "", &step);
    let of_top = |top: String| small("x", "x", &top, &tool(String::new()));
    let name = |n: usize| small(&"x".repeat(n), "x", "", &tool(String::new()));
    let description = |n: usize| small("x", &"x".repeat(n), "", &tool(String::new()));
    let id = |n: usize| of_step(format!("{{ id: {}, kind: tool, tool: t }}", "x".repeat(n)));
    let attempts = |n: usize| of_step(tool(format!(", retry: {{ max_attempts: {n}, backoff: fixed }}")));
    let passes = |n: usize| {
        let inner = "steps: [{ id: inner, kind: tool, tool: t }]";
        of_step(format!("{{ id: again, kind: loop, while: true, max_iterations: {n}, {inner} }}"))
    };
    let risk = |n: usize| of_step(tool(format!(", risk_level: {n}")));
    let timeout = |n: usize| of_top(format!("timeout_ms: {n}"));
    let max_steps = |n: usize| of_top(format!("max_steps: {n}"));
    let days = 366 * 24 * 60 * 60 * 1_000;
    #[allow(clippy::type_complexity, reason = "a table")]
    let ranges: [(&dyn Fn(usize) -> String, usize, usize); 8] = [
        (&name, 1, 80),
        (&description, 1, 2_000),
        (&id, 2, 64),
        (&attempts, 1, 20),
        (&passes, 1, 1_000),
        (&risk, 0, 3),
        (&timeout, 1, days),
        (&max_steps, 1, 4_294_967_295),
    ];
    for (text, least, most) in ranges {
        for n in [least, least + 1, most - 1, most] {
            let report = checked(&text(n));
            assert!(report.is_valid(), "{n} of {least} to {most}: {:#?}", report.diagnostics);
        }
        for n in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
            assert!(!checked(&text(n)).is_valid(), "{n} is outside of {least} to {most}: {}", text(n));
        }
    }
}
