//! `skein explain`, `skein schema` and `skein completions`: print the page of a code, the JSON Schema of a format, and the
//! completion script of a shell.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use serde_json::{Value, json};
use skein_app::app_error::AppError;
use skein_dialects::{Code, Dialect, dialect_schema};

use super::{Cli, parse_word};
use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// Code such as SK0101, or only 101; default: list all codes.
    code: Option<String>,
}

pub(super) fn run(arguments: &ExplainArguments, output: CliOutput) -> Result<Exit, AppError> {
    let Some(text) = &arguments.code else { return Ok(list_codes(output)) };
    let Some(code) = parse_code(text) else {
        return Err(
            AppError::refused(format!("there is no code `{text}`")).with_hint("`skein explain` lists all codes")
        );
    };
    let to_json = || {
        let mut object = code_to_json(code);
        object["page"] = json!(code.page());
        object
    };
    output.print_result(to_json, || code.page().to_owned());
    Ok(Exit::Done)
}

fn code_to_json(code: Code) -> Value {
    json!({"code": code.as_str(), "severity": code.severity().to_string(), "title": code_title(code)})
}

/// Parses a code, or only its number.
fn parse_code(text: &str) -> Option<Code> {
    let number = text.parse::<u16>().ok().map(|number| format!("SK{number:04}"));
    number.as_deref().unwrap_or(text).parse().ok()
}

/// Returns the title of a code.
fn code_title(code: Code) -> &'static str {
    let line = code.page().lines().next().unwrap_or_default();
    line.split_once(": ").map_or(line, |(_, title)| title)
}

fn list_codes(output: CliOutput) -> Exit {
    let to_json = || json!({"codes": Code::ALL.iter().map(|code| code_to_json(*code)).collect::<Vec<_>>()});
    let line = |code: &Code| {
        let name = output.paint.name(code.as_str());
        format!("{name}  {:<8}{}\n", code.severity().to_string(), code_title(*code))
    };
    output.print_result(to_json, || Code::ALL.iter().map(line).collect());
    Exit::Done
}

#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    #[arg(value_parser = parse_word(&Dialect::ALL, Dialect::as_str))]
    dialect: Dialect,
}

pub(super) fn run_schema(arguments: &SchemaArguments, output: CliOutput) -> Result<Exit, AppError> {
    output.print_exact(dialect_schema(arguments.dialect));
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run_completions(arguments: &CompletionsArguments, output: CliOutput) -> Result<Exit, AppError> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut Cli::command(), "skein", &mut text);
    output.print_exact(&String::from_utf8_lossy(&text));
    Ok(Exit::Done)
}
