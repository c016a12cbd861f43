//! `skein list`, `skein show` and `skein graph`: the workflows of the project, one with its inputs, outputs and steps, and
//! a drawing of its steps.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    plan::{describe_kind, shorten_text},
    workflows::{self, WorkflowListEntry},
};
use skein_core::ir::{Schema, Workflow};

use crate::{
    exit::Exit,
    render::{graph, output::CliOutput},
};

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// File, or name of a workflow of the project.
    workflow: String,
}

pub(super) fn run(arguments: &ShowArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let described = workflows::describe_workflow(app, &arguments.workflow)?;
    output.print_result(|| json!(described), || render_workflow(&described.workflow, described.dialect, output));
    Ok(Exit::Done)
}

fn render_workflow(workflow: &Workflow, dialect: &str, output: CliOutput) -> String {
    let paint = output.paint;
    let version = workflow.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let mut text = format!("{}{version}  {}\n", paint.title(workflow.id.as_str()), paint.faint(dialect));
    if let Some(description) = &workflow.description {
        let _ = writeln!(text, "{}", description.trim());
    }
    render_section(&mut text, "Inputs", &describe_fields(&workflow.inputs));
    render_section(&mut text, "Outputs", &describe_fields(&workflow.scope.outputs));
    let steps = workflow.scope.steps.iter().map(|step| {
        let text = step.description.as_deref().or(step.name.as_deref());
        (step.id.to_string(), text.map_or_else(|| describe_kind(&step.kind), shorten_text))
    });
    render_section(&mut text, "Steps", &steps.collect::<Vec<_>>());
    text
}

/// Describes the fields of an object and the type of each.
fn describe_fields(schema: &Schema) -> Vec<(String, String)> {
    let required: Vec<&str> = schema.required_properties().collect();
    let field = |(name, property): (&String, &serde_json::Value)| {
        let kind = match property.get("type") {
            Some(serde_json::Value::String(kind)) => kind.clone(),
            Some(other) => other.to_string(),
            None => "anything".to_owned(),
        };
        let default = property.get("default").map(|value| format!(", default {value}"));
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let description = property.get("description").and_then(|text| text.as_str());
        let description = description.map(|text| format!(": {}", text.trim())).unwrap_or_default();
        (name.clone(), format!("{kind}{must}{}{description}", default.unwrap_or_default()))
    };
    schema.properties().map(field).collect()
}

fn render_section(page: &mut String, title: &str, rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let _ = writeln!(page, "\n{title}");
    for (name, text) in rows {
        let _ = writeln!(page, "{}", format!("  {name:width$}  {text}").trim_end());
    }
}

pub(super) fn run_list(app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let entries = workflows::list_workflows(app)?;
    output.print_result(|| json!({"workflows": entries}), || render_list(&entries, output));
    Ok(Exit::Done)
}

fn render_list(entries: &[WorkflowListEntry], output: CliOutput) -> String {
    if entries.is_empty() {
        return "No workflows in `.workflows`, `workflows` or `artifacts/workflows`.\n".to_owned();
    }
    let width = entries.iter().map(|entry| entry.name.chars().count()).max().unwrap_or_default();
    entries.iter().map(|entry| render_line(entry, width, output)).collect()
}

fn render_line(entry: &WorkflowListEntry, width: usize, output: CliOutput) -> String {
    let name = output.paint.name(&format!("{:width$}", entry.name));
    let description = entry.description.as_deref().and_then(|text| text.trim().lines().next());
    let state = if entry.valid { String::new() } else { output.paint.error("not valid ") };
    let dialect = entry.dialect.unwrap_or("?");
    let line = format!("{name}  {dialect:9}  {state}{}", description.unwrap_or_default());
    format!("{}\n", line.trim_end())
}

#[derive(Debug, Args)]
pub(super) struct GraphArguments {
    /// File, or name of a workflow of the project.
    workflow: String,
    /// Language of the drawing.
    #[arg(long = "as", value_enum, default_value = "ascii")]
    language: GraphLanguage,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GraphLanguage {
    Ascii,
    Mermaid,
    Dot,
}

pub(super) fn run_graph(arguments: &GraphArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let drawn = workflows::graph_workflow(app, &arguments.workflow)?;
    let draw = || match arguments.language {
        GraphLanguage::Ascii => graph::draw_ascii(&drawn, output.paint),
        GraphLanguage::Mermaid => graph::draw_mermaid(&drawn),
        GraphLanguage::Dot => graph::draw_dot(&drawn),
    };
    output.print_result(|| json!(drawn), draw);
    Ok(Exit::Done)
}
