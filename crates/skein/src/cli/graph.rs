//! `skein graph`: draws the steps of a workflow.

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_app::{app::App, app_error::AppError, workflows};

use crate::{
    exit::Exit,
    render::{graph, output::CliOutput},
};

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

pub(super) fn run(arguments: &GraphArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let drawn = workflows::graph_workflow(app, &arguments.workflow)?;
    if output.is_json() {
        output.print_json(&json!(drawn));
        return Ok(Exit::Done);
    }
    output.print_text(&match arguments.language {
        GraphLanguage::Ascii => graph::draw_ascii(&drawn, output.paint),
        GraphLanguage::Mermaid => graph::draw_mermaid(&drawn),
        GraphLanguage::Dot => graph::draw_dot(&drawn),
    });
    Ok(Exit::Done)
}
