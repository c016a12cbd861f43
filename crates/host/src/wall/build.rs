//! Building a wall around this process by what the system has: a view of its own, or else rules for what it writes.

use serde::{Deserialize, Serialize};

use super::{Wall, rules, view};

/// How much of a wall the system keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    All,
    /// What is written. What is to be hidden can be read, and what of it is in a workspace can be changed, as can what is
    /// protected there.
    Writes,
}

/// Builds as much of the wall as may be called one, or says why nothing could be. Then the process must not go on to the
/// program as if it were confined.
pub fn build(wall: &Wall) -> Result<Kept, String> {
    let why = match view::build(wall) {
        Ok(()) => return Ok(Kept::All),
        Err(why) => why,
    };
    match rules::restrict(wall) {
        Ok(()) => Ok(Kept::Writes),
        Err(neither) => Err(format!("{why}; {neither}")),
    }
}
