//! `skein show`: shows one workflow, with its inputs, outputs and steps.

use std::fmt::Write;

use clap::Args;
use serde_json::json;
use skein_app::app_error::AppError;
use skein_core::ir::{Schema, Workflow};

use super::load::load_workflow;
use crate::{exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
pub struct ShowArguments {
    /// File, or name of a workflow of the project.
    workflow: String,
}

pub fn run(arguments: &ShowArguments, output: CliOutput) -> Result<Exit, AppError> {
    let loaded = load_workflow(&arguments.workflow, output)?;
    let report = &loaded.report;
    let (Some(workflow), Some(dialect), true) = (&report.workflow, report.dialect, report.is_valid()) else {
        return Err(AppError::invalid_source(report.diagnostics.clone()));
    };
    if output.is_json() {
        output.print_json(&json!({"dialect": dialect.as_str(), "workflow": **workflow}));
    } else {
        output.print_text(&render_workflow(workflow, dialect.as_str(), output));
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
        let about = step.description.as_deref().or(step.name.as_deref());
        (
            step.id.to_string(),
            about.map_or_else(|| skein_app::plan::describe_kind(&step.kind), skein_app::plan::shorten_text),
        )
    });
    render_section(&mut text, "Steps", &steps.collect::<Vec<_>>());
    text
}

/// Describes the fields of an object and the type of each.
fn describe_fields(schema: &Schema) -> Vec<(String, String)> {
    let required: Vec<&str> = schema.required_properties().collect();
    let field = |(name, property): (&String, &serde_json::Value)| {
        let sort = match property.get("type") {
            Some(serde_json::Value::String(sort)) => sort.clone(),
            Some(other) => other.to_string(),
            None => "anything".to_owned(),
        };
        let default = property.get("default").map(|value| format!(", default {value}"));
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let about = property.get("description").and_then(|text| text.as_str());
        let about = about.map(|text| format!(": {}", text.trim())).unwrap_or_default();
        (name.clone(), format!("{sort}{must}{}{about}", default.unwrap_or_default()))
    };
    schema.properties().map(field).collect()
}

fn render_section(text: &mut String, title: &str, rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let _ = writeln!(text, "\n{title}");
    for (name, about) in rows {
        let _ = writeln!(text, "{}", format!("  {name:width$}  {about}").trim_end());
    }
}
