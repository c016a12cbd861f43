//! Scheduling: the slots of every zone, and tables of the decisions about fires.

#![allow(clippy::unwrap_used, reason = "a test may")]

/// The module has the name of the subject, by which its tests can be selected.
mod schedule {
    mod arming;
    mod catchup;
    mod daylight_saving;
    mod fires;
    mod harness;
    mod overlap;
    mod stored_format;
}
