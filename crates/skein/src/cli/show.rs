//! `skein show`: shows one workflow, with its inputs, outputs and steps.

use std::fmt::Write;

use clap::Args;
use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    plan::{describe_kind, shorten_text},
    workflows,
};
use skein_core::ir::{Schema, Workflow};

use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// File, or name of a workflow of the project.
    workflow: String,
}

pub(super) fn run(arguments: &ShowArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let described = workflows::describe_workflow(app, &arguments.workflow)?;
    match output.is_json() {
        true => output.print_json(&json!(described)),
        false => output.print_text(&render_workflow(&described.workflow, described.dialect, output)),
    }
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
