//! `skein schema`: prints the JSON Schema of a format.

use clap::{Args, ValueEnum};
use skein_app::app_error::AppError;
use skein_dialects::{Dialect, dialect_schema};

use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    #[arg(value_enum)]
    dialect: SchemaFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SchemaFormat {
    Agentcore,
    Aip15,
    Ioa,
    Swdl,
}

pub(super) fn run(arguments: &SchemaArguments, output: CliOutput) -> Result<Exit, AppError> {
    let dialect = match arguments.dialect {
        SchemaFormat::Agentcore => Dialect::AgentCore,
        SchemaFormat::Aip15 => Dialect::Aip15,
        SchemaFormat::Ioa => Dialect::Ioa,
        SchemaFormat::Swdl => Dialect::Swdl,
    };
    output.print_exact(dialect_schema(dialect));
    Ok(Exit::Done)
}
