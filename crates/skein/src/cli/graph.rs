//! `skein graph`: draws the steps of a workflow.

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_core::view::build_graph;

use super::load::{load_workflow, refuse_invalid};
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

pub fn run(arguments: &GraphArguments, output: CliOutput) -> Exit {
    let loaded = match load_workflow(&arguments.workflow, output) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let Some(definition) = &loaded.report.definition else {
        return refuse_invalid(&loaded.report.diagnostics, output);
    };
    let graph = build_graph(definition, None);
    if output.is_json() {
        output.print_json(&json!(graph));
        return Exit::Done;
    }
    output.print_text(&match arguments.language {
        GraphLanguage::Ascii => draw::draw_ascii(&graph, output.paint),
        GraphLanguage::Mermaid => draw::draw_mermaid(&graph),
        GraphLanguage::Dot => draw::draw_dot(&graph),
    });
    Exit::Done
}
