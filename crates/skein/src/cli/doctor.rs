//! `skein doctor`: checks the setup of this machine for running workflows.

use std::path::Path;

use skein_host::store::StateRegistry;

use crate::{doctor, exit::Exit, output::CliOutput, project::DiskProject, state};

#[derive(Debug, clap::Args)]
pub struct DoctorArguments {
    /// Accept a state folder that was copied, restored or created by an older version
    #[arg(long)]
    trust_state: bool,
}

pub fn run(arguments: &DoctorArguments, given: Option<&Path>, output: CliOutput) -> Exit {
    if arguments.trust_state
        && let Err(why) = trust_state_folder(given)
    {
        return output.refuse(Exit::Refused, &why, None);
    }
    doctor::run_checks(given, output)
}

/// Registers the state folder as one of this user's own.
fn trust_state_folder(given: Option<&Path>) -> Result<(), String> {
    let path = given.map_or_else(|| DiskProject::current_root().join(state::NAME), Path::to_owned);
    state::check_link(given, &path)?;
    StateRegistry::from_environment().accept(&path).map_err(|error| error.to_string())
}
