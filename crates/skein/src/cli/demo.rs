//! `skein demo`: shows in a minute what durable means, with nothing installed.

use std::path::PathBuf;

use clap::Args;

use crate::{
    demo::{self, DemoOptions},
    exit::Exit,
    output::CliOutput,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct DemoArguments {
    /// Answer the gate without asking, also on a terminal.
    #[arg(long)]
    yes: bool,
    /// Leave the folder when it is over.
    #[arg(long)]
    keep: bool,
    /// The folder to play in, which is left when it is over; a temporary one unless told otherwise.
    #[arg(long = "in", value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub fn run(arguments: DemoArguments, output: CliOutput) -> Exit {
    let DemoArguments { yes, keep, folder } = arguments;
    demo::run_demo(&DemoOptions { yes, keep, folder }, output)
}
