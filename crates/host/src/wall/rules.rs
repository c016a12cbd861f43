//! The second way: rules of Landlock for where this process may write, for systems in which nobody may have name spaces of
//! their own, as in many containers.
//!
//! Owns what of a wall such rules can keep. They allow, and cannot take back below what they allow.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

use super::Wall;

/// The first version in which a file cannot be emptied by who may not write it.
const NEEDED: ABI = ABI::V3;

/// What every program writes to.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"];

/// What is to be hidden and can be written all the same, because it is in what may be.
pub fn open(wall: &Wall) -> Option<&Path> {
    let within = |hidden: &&PathBuf| wall.writes.iter().any(|path| hidden.starts_with(path));
    wall.hides.iter().find(within).map(PathBuf::as_path)
}

/// Keeps what is written to what the wall says.
pub fn restrict(wall: &Wall) -> Result<(), String> {
    if wall.no_network {
        return Err("Landlock alone does not keep a program from every network".to_owned());
    }
    if wall.writes.iter().any(|path| path == Path::new("/")) {
        return Ok(());
    }
    match rules(wall) {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(_) => Err("Landlock is not there".to_owned()),
        Err(error) => Err(format!("Landlock: {error}")),
    }
}

fn rules(wall: &Wall) -> Result<RulesetStatus, RulesetError> {
    let writing = AccessFs::from_write(NEEDED);
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(writing)?;
    let mut ruleset = ruleset.create()?;
    for path in wall.writes.iter().cloned().chain(DEVICES.map(PathBuf::from)) {
        // What is not there cannot be written either: nothing may be made around it.
        let Ok(place) = PathFd::new(&path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(place, allowed(&path, writing)))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Of a file, only what can be done to a file.
fn allowed(path: &Path, writing: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { writing } else { writing & AccessFs::from_file(NEEDED) }
}
