//! Privileges in the namespaces of a sandbox: init has them to build it, and gives them up for good.

use std::io;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
        set_no_new_privs,
    },
};

/// Lets the program that this process starts next have its capabilities. Only root would have them otherwise.
pub(super) fn keep_across_exec() -> io::Result<()> {
    let held = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: held.permitted, ..held })?;
    for capability in held.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Drops all capabilities, so that no program that is started has any, also as root.
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
            // The kernel knows no more.
            Err(Errno::INVAL) => break,
            // May have been given up before, and without the right to give up more there is nothing to fear from it.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
