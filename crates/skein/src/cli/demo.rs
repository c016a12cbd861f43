//! `skein demo`: demonstrates durable execution in a minute, with nothing installed.

use std::path::PathBuf;

use clap::Args;
use skein_app::app_error::AppError;

use crate::{
    demo::{self, DemoOptions},
    exit::Exit,
    render::output::CliOutput,
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct DemoArguments {
    /// Answer the gate without asking, also on a terminal.
    #[arg(long)]
    yes: bool,
    /// Keep the folder afterwards.
    #[arg(long)]
    keep: bool,
    /// Folder for the demo, which is kept afterwards; default: a temporary folder.
    #[arg(long = "in", value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) fn run(arguments: DemoArguments, output: CliOutput) -> Result<Exit, AppError> {
    let DemoArguments { yes, keep, folder } = arguments;
    demo::run_demo(&DemoOptions { yes, keep, folder }, output)
}
