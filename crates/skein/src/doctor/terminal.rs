//! Checks of the terminal: its size, its colours, and its character encoding.

use std::{
    env,
    io::{self, IsTerminal},
};

use rustix::termios::tcgetwinsize;

use super::DoctorFinding;
use crate::output::CliOutput;

/// With fewer columns, most lines are cut.
const NARROW: u16 = 60;

pub fn check_terminal(output: CliOutput) -> Vec<DoctorFinding> {
    vec![check_size(), check_colour(output), check_encoding()]
}

fn check_size() -> DoctorFinding {
    if !io::stdout().is_terminal() {
        return DoctorFinding::ok(
            "size",
            "standard output is not a terminal: a run is shown line by line, without prompts",
        );
    }
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col == 0 => DoctorFinding::ok("size", "unknown: a run is shown line by line"),
        Ok(size) if size.ws_col < NARROW => {
            let message = format!("{} columns, {} rows", size.ws_col, size.ws_row);
            DoctorFinding::warning(
                "size",
                message,
                format!("use at least {NARROW} columns to see whole lines"),
            )
        }
        Ok(size) => DoctorFinding::ok("size", format!("{} columns, {} rows", size.ws_col, size.ws_row)),
        Err(error) => DoctorFinding::ok("size", format!("unknown: {error}")),
    }
}

fn check_colour(output: CliOutput) -> DoctorFinding {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let message = match output.paint.0 {
        true => "on",
        false if set("NO_COLOR") => "off, because NO_COLOR is set",
        false if env::var_os("TERM").is_some_and(|term| term == "dumb") => "off, because TERM is `dumb`",
        false => "off, because standard output is not a terminal",
    };
    DoctorFinding::ok("colour", message)
}

/// Reports the encoding. The first of these variables that is set counts.
fn check_encoding() -> DoctorFinding {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| {
        let value = env::var(name).ok().filter(|value| !value.is_empty())?;
        Some((*name, value))
    });
    match named {
        Some((name, value)) if !value.to_lowercase().replace('-', "").contains("utf8") => {
            let hint = format!("`{name}=C.UTF-8`, if lines and dots look wrong");
            DoctorFinding::warning("letters", format!("{name} is `{value}`, which is not UTF-8"), hint)
        }
        Some((name, value)) => DoctorFinding::ok("letters", format!("{name} is `{value}`")),
        None => DoctorFinding::ok("letters", "no LANG is set; UTF-8 is printed"),
    }
}
