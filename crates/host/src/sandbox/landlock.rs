//! Landlock rules: the fallback for machines on which namespaces cannot be created, such as many containers.
//!
//! Owns which part of a sandbox such rules can enforce. They grant access, and cannot revoke it below a granted folder.

use std::{io, os::fd::OwnedFd, path::Path};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, fstat};

use super::{SandboxSpec, resolve_path, view::SandboxViewError};

/// The first version that prevents a program without write access from truncating a file.
const NEEDED: ABI = ABI::V3;

/// Devices that every program writes to. Terminals are not among them, because the user's terminal is one.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/shm"];

/// Returns the first hidden place that the worker can still reach, because it may write to a folder above it.
pub(super) fn writable_hidden_place(spec: &SandboxSpec) -> Option<&Path> {
    let hidden = spec.hides.iter().map(|place| place.path.as_path());
    let mut within = hidden
        .filter(|hidden| spec.writes_everywhere || spec.writes.iter().any(|place| hidden.starts_with(&place.path)));
    within.next()
}

/// Restricts the writes of this process and its children.
pub(super) fn restrict_writes(spec: &SandboxSpec) -> Result<(), SandboxViewError> {
    let unsupported = |why: &str| Err(SandboxViewError::Unsupported(why.to_owned()));
    if spec.no_network {
        return unsupported("Landlock alone cannot block all network access");
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

/// Opens everything that may be written. A path that leads elsewhere than it did for the engine is rejected.
fn open_places(spec: &SandboxSpec) -> Result<Vec<OwnedFd>, SandboxViewError> {
    let mut opened = Vec::new();
    for place in spec.writes.iter().chain(&spec.scratch) {
        match place.open() {
            Ok(descriptor) => opened.push(descriptor),
            // Nothing can be created at a missing path, so there is nothing to allow.
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
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(writing)?;
    let mut ruleset = ruleset.create()?;
    for place in places {
        ruleset = ruleset.add_rule(PathBeneath::new(place, access_for(place, writing)))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Returns the access rights that apply: for a file, only those of files.
fn access_for(place: &OwnedFd, writing: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let is_folder = fstat(place).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
    if is_folder { writing } else { writing & AccessFs::from_file(NEEDED) }
}

/// Prevents this process and its children from connecting to abstract sockets outside of the sandbox, and from
/// signalling processes there, if the kernel supports that. A worker with network access shares the namespace of
/// abstract sockets with its user.
pub(super) fn restrict_scope() {
    let scoped = || -> Result<(), RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
        ruleset.create()?.restrict_self()?;
        Ok(())
    };
    // An older kernel does not restrict them, as docs/security.md says.
    let _ = scoped();
}
