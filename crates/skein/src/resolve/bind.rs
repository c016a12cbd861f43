//! Sixth phase: how the driver that was chosen is called.

use std::collections::BTreeSet;

use skein_dialects::{DriverKind, Piece};
use skein_host::crew::{self, Function};

use super::{Candidate, capable::program};
use crate::config::Config;

/// A code that every driver has for a login that is no longer good.
const AUTH_REQUIRED: &str = "auth_required";

pub(super) fn bind(candidate: Candidate<'_>, config: &Config) -> crew::Tool {
    let Candidate { tool, found, offer } = candidate;
    let driver = &found.driver;
    let builtin = driver.kind == DriverKind::Builtin;
    let name = offer.function.as_deref().unwrap_or(&tool.id);
    // It was found a moment ago; what is gone since is said when it is started.
    let bin = driver.bin.clone().unwrap_or_default();
    let bin = program(&bin, &found.folder).map_or(bin, |path| path.display().to_string());
    let command = [bin].into_iter().chain(driver.bin_args.iter().cloned()).filter(|_| !builtin).collect();
    let mut exit_codes = driver.exit_codes.clone();
    let auth = driver.auth.as_ref();
    if let Some(expired) = auth.and_then(|auth| auth.expired) {
        exit_codes.entry(expired).or_insert_with(|| AUTH_REQUIRED.to_owned());
    }
    let given = auth.into_iter().flat_map(|auth| &auth.env).filter(|name| config.secret(name).is_some());
    let secrets: BTreeSet<&String> = given.chain(&tool.secrets).collect();
    crew::Tool {
        id: tool.id.clone(),
        version: tool.version.clone(),
        mutates: tool.mutates.clone(),
        driver: driver.id.clone(),
        command,
        function: builtin.then(|| Function::named(name)).flatten(),
        arguments: offer.argv.iter().map(|argument| argument.iter().map(piece).collect()).collect(),
        inputs: tool.inputs.clone(),
        outputs: tool.outputs.clone(),
        renames: offer.renames.clone(),
        drop_outputs: offer.drop_outputs.clone(),
        exit_codes,
        secrets: secrets.into_iter().cloned().collect(),
        limit: [tool.timeout, driver.timeout, offer.timeout].into_iter().flatten().min(),
    }
}

fn piece(piece: &Piece) -> crew::Piece {
    match piece {
        Piece::Text(text) => crew::Piece::Text(text.clone()),
        Piece::Input { path, default } => crew::Piece::Input { path: path.clone(), default: default.clone() },
    }
}
