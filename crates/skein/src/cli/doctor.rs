//! `skein doctor`: checks the setup of this machine for running workflows.

use std::path::Path;

use skein_app::{
    app_error::{AppError, AppErrorKind},
    project::DiskProject,
    state,
};
use skein_host::store::StateRegistry;

use crate::{doctor, exit::Exit, output::CliOutput};

#[derive(Debug, clap::Args)]
pub struct DoctorArguments {
    /// Accept a state folder that was copied, restored or created by an older version
    #[arg(long)]
    trust_state: bool,
}

pub fn run(arguments: &DoctorArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    if arguments.trust_state
        && let Err(why) = trust_state_folder(given)
    {
        return Err(AppError::new(AppErrorKind::Refused, &why, None));
    }
    Ok(doctor::run_checks(given, output))
}

/// Registers the state folder as one of this user's own.
fn trust_state_folder(given: Option<&Path>) -> Result<(), String> {
    let path = given.map_or_else(|| DiskProject::current_root().join(state::NAME), Path::to_owned);
    state::check_link(given, &path)?;
    StateRegistry::from_environment().accept(&path).map_err(|error| error.to_string())
}
