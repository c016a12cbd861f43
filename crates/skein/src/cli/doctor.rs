//! `skein doctor`: what there is here to run workflows with, and what stands in the way.

use std::path::Path;

use crate::{doctor, exit::Exit, output::Output};

pub fn run(state: Option<&Path>, output: Output) -> Exit {
    doctor::look(state, output)
}
