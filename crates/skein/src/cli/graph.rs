//! `skein graph`: the steps of a workflow, drawn.

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_core::view::graph;

use super::load::{invalid, load};
use crate::{draw, exit::Exit, output::Output};

#[derive(Debug, Args)]
pub struct Arguments {
    /// A file, or the name of a workflow of the project.
    workflow: String,
    /// The language of the drawing.
    #[arg(long = "as", value_enum, default_value = "ascii")]
    language: Language,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    Ascii,
    Mermaid,
    Dot,
}

pub fn run(arguments: &Arguments, output: Output) -> Exit {
    let loaded = match load(&arguments.workflow, output) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let Some(definition) = &loaded.report.definition else {
        return invalid(&loaded.report.diagnostics, output);
    };
    let graph = graph(definition, None);
    if output.is_json() {
        output.json(&json!(graph));
        return Exit::Done;
    }
    output.text(&match arguments.language {
        Language::Ascii => draw::ascii(&graph, output.paint),
        Language::Mermaid => draw::mermaid(&graph),
        Language::Dot => draw::dot(&graph),
    });
    Exit::Done
}
