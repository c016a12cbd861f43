//! `skein doctor`: what there is here to run workflows with, and what stands in the way.

use std::path::Path;

use skein_host::store::StateRegistry;

use crate::{doctor, exit::Exit, output::Output, project::OnDisk, state};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Accept a state folder that was copied, restored or made by an older version
    #[arg(long)]
    trust_state: bool,
}

pub fn run(arguments: &Arguments, given: Option<&Path>, output: Output) -> Exit {
    if arguments.trust_state
        && let Err(why) = trust(given)
    {
        return output.refuse(Exit::Refused, &why, None);
    }
    doctor::look(given, output)
}

/// Takes the state folder as one of this user's own from now on.
fn trust(given: Option<&Path>) -> Result<(), String> {
    let path = given.map_or_else(|| OnDisk::root().join(state::NAME), Path::to_owned);
    state::check_link(given, &path)?;
    StateRegistry::of_user().accept(&path).map_err(|error| error.to_string())
}
