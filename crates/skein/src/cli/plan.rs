//! `skein plan`: shows what a run would do.

use std::path::PathBuf;

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    plan::shorten_text,
    workflows::{self, PlanRequest, PlannedWorkflow},
};
use skein_core::plan::Severity;

use crate::{
    exit::Exit,
    render::{output::CliOutput, plan},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct PlanArguments {
    /// File, or name of a workflow of the project.
    workflow: String,
    /// Parameter, parsed by its declared type.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// File with a JSON object of parameters.
    #[arg(long = "params", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl From<PlanArguments> for PlanRequest {
    fn from(arguments: PlanArguments) -> PlanRequest {
        let PlanArguments { workflow, parameters, file } = arguments;
        PlanRequest { workflow, parameters, parameter_file: file }
    }
}

pub(super) fn run(arguments: PlanArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let planned = workflows::plan_workflow(app, &arguments.into())?;
    output.print_result(|| planned.to_json(), || render_planned(&planned, output));
    Ok(Exit::Done)
}

fn render_planned(planned: &PlannedWorkflow, output: CliOutput) -> String {
    let mut text = plan::render_plan(&planned.view, output.paint);
    for field in &planned.overridden {
        let word = output.paint.title(&format!("{:12}", "Overridden"));
        let before = field.before.as_ref().map(|value| format!(" instead of {}", shorten_text(&value.to_string())));
        let shown =
            format!("{} is {}{}", field.field, shorten_text(&field.value.to_string()), before.unwrap_or_default());
        let at = field.source.position(field.span.start);
        let aside = output.paint.faint(&format!("[at {}:{}]", field.source.name, at.line));
        text += &format!("{word}  {shown} {aside}\n");
    }
    for note in planned.diagnostics.iter().chain(&planned.notes) {
        let word = if note.severity == Severity::Note {
            output.paint.title(&format!("{:12}", "Note"))
        } else {
            output.paint.warning(&format!("{:12}", "Warning"))
        };
        let place = note.primary_label();
        let position = place.source.position(place.span.start);
        let aside = format!("[{} at {}:{}]", note.code, place.source.name, position.line);
        text += &format!("{word}  {} {}\n", note.message, output.paint.faint(&aside));
    }
    text
}
