//! Rules of Landlock: the second choice for machines on which nobody may create namespaces, as in many containers.
//!
//! Owns which part of a sandbox such rules can enforce. They allow, and cannot take back below what they allow.

use std::{io, os::fd::OwnedFd, path::Path};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};

use rustix::fs::{FileType, fstat};

use super::{SandboxSpec, place::resolve_path, view::SandboxViewError};

/// The first version in which a file cannot be emptied by a program that may not write it.
const NEEDED: ABI = ABI::V3;

/// Devices that every program writes to. Terminals are not among them: the person's is one.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/shm"];

/// The first hidden place that the worker can reach all the same, because it may write around it.
pub(super) fn writable_hidden_place(spec: &SandboxSpec) -> Option<&Path> {
    let hidden = spec.hides.iter().map(|place| place.path.as_path());
    let mut within = hidden.filter(|hidden| {
        spec.writes_everywhere || spec.writes.iter().any(|place| hidden.starts_with(&place.path))
    });
    within.next()
}

/// Confines what this process and its children write.
pub(super) fn restrict_writes(spec: &SandboxSpec) -> Result<(), SandboxViewError> {
    let unsupported = |why: &str| Err(SandboxViewError::Unsupported(why.to_owned()));
    if spec.no_network {
        return unsupported("Landlock alone does not keep a program from every network");
    }
    if spec.writes_everywhere {
        return Ok(());
    }
    match apply_rules(&open_places(spec)?) {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(_) => unsupported("this kernel has no Landlock"),
        Err(error) => unsupported(&format!("Landlock: {error}")),
    }
}

/// Opens everything that may be written. A path that leads elsewhere than it did for the engine is refused.
fn open_places(spec: &SandboxSpec) -> Result<Vec<OwnedFd>, SandboxViewError> {
    let mut opened = Vec::new();
    for place in spec.writes.iter().chain(&spec.scratch) {
        match place.open() {
            Ok(descriptor) => opened.push(descriptor),
            // Nothing can be made where nothing is, so there is nothing to allow.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(SandboxViewError::Failed(format!("opening {}", place.path.display()), error));
            }
        }
    }
    opened.extend(DEVICES.iter().filter_map(|device| resolve_path(Path::new(device)).ok()));
    Ok(opened)
}

fn apply_rules(places: &[OwnedFd]) -> Result<RulesetStatus, RulesetError> {
    let writing = AccessFs::from_write(NEEDED);
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(writing)?;
    let mut ruleset = ruleset.create()?;
    for place in places {
        ruleset = ruleset.add_rule(PathBeneath::new(place, access_for(place, writing)))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Of a file, only what can be done to a file.
fn access_for(place: &OwnedFd, writing: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let is_folder = fstat(place).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
    if is_folder { writing } else { writing & AccessFs::from_file(NEEDED) }
}

/// Keeps this process and its children from abstract sockets of programs outside of the sandbox, and from signalling them,
/// where the kernel can. A worker with a network shares the namespace of abstract sockets with its user.
pub(super) fn restrict_scope() {
    let scoped = || -> Result<(), RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
        ruleset.create()?.restrict_self()?;
        Ok(())
    };
    // An older kernel leaves them open: docs/security.md says so.
    let _ = scoped();
}
