//! `skein list`: lists the workflows of the project.

use serde_json::json;
use skein_app::app_error::AppError;
use skein_dialects::{SourceReport, check_source};

use super::load::open_project;
use crate::{exit::Exit, output::CliOutput};

pub fn run(output: CliOutput) -> Result<Exit, AppError> {
    let project = open_project()?;
    let rows: Vec<WorkflowListRow> = project
        .workflows()
        .iter()
        .map(|named| {
            let path = project.display_path(&named.path);
            let report = project.read_source(&named.path).ok().map(|source| check_source(source, &project));
            WorkflowListRow::from_report(named.name.clone(), path, report.as_ref())
        })
        .collect();
    if output.is_json() {
        output
            .print_json(&json!({"workflows": rows.iter().map(WorkflowListRow::to_json).collect::<Vec<_>>()}));
    } else if rows.is_empty() {
        output.print_text("No workflows in `.workflows`, `workflows` or `artifacts/workflows`.\n");
    } else {
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
        output.print_text(&rows.iter().map(|row| row.render_line(width, output)).collect::<String>());
    }
    Ok(Exit::Done)
}

struct WorkflowListRow {
    name: String,
    path: String,
    dialect: Option<&'static str>,
    version: Option<String>,
    description: Option<String>,
    valid: bool,
}

impl WorkflowListRow {
    fn from_report(name: String, path: String, report: Option<&SourceReport>) -> WorkflowListRow {
        let workflow = report.and_then(|report| report.workflow.as_deref());
        WorkflowListRow {
            name,
            path,
            dialect: report.and_then(|report| report.dialect).map(|dialect| dialect.as_str()),
            version: workflow.and_then(|workflow| workflow.version.clone()),
            description: workflow.and_then(|workflow| workflow.description.clone()),
            valid: report.is_some_and(SourceReport::is_valid),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        json!({"name": self.name, "file": self.path, "dialect": self.dialect, "version": self.version,
               "description": self.description, "valid": self.valid})
    }

    fn render_line(&self, width: usize, output: CliOutput) -> String {
        let name = output.paint.name(&format!("{:width$}", self.name));
        let about =
            self.description.as_deref().and_then(|text| text.trim().lines().next()).unwrap_or_default();
        let state = if self.valid { String::new() } else { output.paint.error("not valid ") };
        let line = format!("{name}  {:9}  {state}{about}", self.dialect.unwrap_or("?"));
        format!("{}\n", line.trim_end())
    }
}
