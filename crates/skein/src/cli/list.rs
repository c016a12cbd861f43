//! `skein list`: the workflows of the project.

use serde_json::json;
use skein_dialects::{Report, check};

use super::load::open_project;
use crate::{exit::Exit, output::Output};

pub fn run(output: Output) -> Exit {
    let project = match open_project(output) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let rows: Vec<Row> = project
        .workflows()
        .iter()
        .map(|named| {
            let path = project.shown(&named.path);
            let report = project.source(&named.path).ok().map(|source| check(source, &project));
            Row::of(named.name.clone(), path, report.as_ref())
        })
        .collect();
    if output.is_json() {
        output.json(&json!({"workflows": rows.iter().map(Row::json).collect::<Vec<_>>()}));
    } else if rows.is_empty() {
        output.text("No workflows in `.workflows`, `workflows` or `artifacts/workflows`.\n");
    } else {
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
        output.text(&rows.iter().map(|row| row.line(width, output)).collect::<String>());
    }
    Exit::Done
}

struct Row {
    name: String,
    path: String,
    dialect: Option<&'static str>,
    version: Option<String>,
    description: Option<String>,
    valid: bool,
}

impl Row {
    fn of(name: String, path: String, report: Option<&Report>) -> Row {
        let workflow = report.and_then(|report| report.workflow.as_deref());
        Row {
            name,
            path,
            dialect: report.and_then(|report| report.dialect).map(|dialect| dialect.as_str()),
            version: workflow.and_then(|workflow| workflow.version.clone()),
            description: workflow.and_then(|workflow| workflow.description.clone()),
            valid: report.is_some_and(Report::is_valid),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({"name": self.name, "file": self.path, "dialect": self.dialect, "version": self.version,
               "description": self.description, "valid": self.valid})
    }

    fn line(&self, width: usize, output: Output) -> String {
        let name = output.paint.name(&format!("{:width$}", self.name));
        let about =
            self.description.as_deref().and_then(|text| text.trim().lines().next()).unwrap_or_default();
        let state = if self.valid { String::new() } else { output.paint.error("not valid ") };
        let line = format!("{name}  {:9}  {state}{about}", self.dialect.unwrap_or("?"));
        format!("{}\n", line.trim_end())
    }
}
