//! `skein list`: lists the workflows of the project.

use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    workflows::{self, WorkflowListEntry},
};

use crate::{exit::Exit, render::output::CliOutput};

pub(super) fn run(app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let entries = workflows::list_workflows(app)?;
    if output.is_json() {
        output.print_json(&json!({"workflows": entries}));
    } else if entries.is_empty() {
        output.print_text("No workflows in `.workflows`, `workflows` or `artifacts/workflows`.\n");
    } else {
        let width = entries.iter().map(|entry| entry.name.chars().count()).max().unwrap_or_default();
        output.print_text(&entries.iter().map(|entry| render_line(entry, width, output)).collect::<String>());
    }
    Ok(Exit::Done)
}

fn render_line(entry: &WorkflowListEntry, width: usize, output: CliOutput) -> String {
    let name = output.paint.name(&format!("{:width$}", entry.name));
    let description = entry.description.as_deref().and_then(|text| text.trim().lines().next());
    let state = if entry.valid { String::new() } else { output.paint.error("not valid ") };
    let dialect = entry.dialect.unwrap_or("?");
    let line = format!("{name}  {dialect:9}  {state}{}", description.unwrap_or_default());
    format!("{}\n", line.trim_end())
}
