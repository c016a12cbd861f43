//! `skein graph`: draws the steps of a workflow.

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_app::app_error::AppError;
use skein_core::view::build_graph;

use super::load::load_workflow;
use crate::{draw, exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
pub struct GraphArguments {
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

pub fn run(arguments: &GraphArguments, output: CliOutput) -> Result<Exit, AppError> {
    let loaded = load_workflow(&arguments.workflow, output)?;
    let Some(definition) = &loaded.report.definition else {
        return Err(AppError::invalid_source(loaded.report.diagnostics));
    };
    let graph = build_graph(definition, None);
    if output.is_json() {
        output.print_json(&json!(graph));
        return Ok(Exit::Done);
    }
    output.print_text(&match arguments.language {
        GraphLanguage::Ascii => draw::draw_ascii(&graph, output.paint),
        GraphLanguage::Mermaid => draw::draw_mermaid(&graph),
        GraphLanguage::Dot => draw::draw_dot(&graph),
    });
    Ok(Exit::Done)
}
