//! `skein schema`: the JSON Schema of a format.

use clap::{Args, ValueEnum};
use skein_dialects::{Dialect, schema};

use crate::{exit::Exit, output::Output};

#[derive(Debug, Args)]
pub struct Arguments {
    #[arg(value_enum)]
    dialect: Name,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    Agentcore,
    Aip15,
    Ioa,
    Swdl,
}

pub fn run(arguments: &Arguments, output: Output) -> Exit {
    let dialect = match arguments.dialect {
        Name::Agentcore => Dialect::AgentCore,
        Name::Aip15 => Dialect::Aip15,
        Name::Ioa => Dialect::Ioa,
        Name::Swdl => Dialect::Swdl,
    };
    output.exact(schema(dialect));
    Exit::Done
}
