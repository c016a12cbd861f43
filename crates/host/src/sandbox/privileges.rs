//! Privileges in the namespaces of a sandbox: init needs them to build it, and then drops them permanently.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};

/// Passes the capabilities of this process to the program that it starts next. Otherwise only root would have them.
pub(super) fn keep_across_exec() -> io::Result<()> {
    let held = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: held.permitted, ..held })?;
    for capability in held.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Drops all capabilities, so that no started program has any, not even as root.
pub(super) fn drop_capabilities() -> io::Result<()> {
    if !capabilities(None)?.permitted.is_empty() {
        empty_bounding_set()?;
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    }
    Ok(set_no_new_privs(true)?)
}

fn empty_bounding_set() -> io::Result<()> {
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            // The kernel has no more capabilities.
            Err(Errno::INVAL) => break,
            // It may have been dropped before. A process without the right to drop it cannot use it either.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
