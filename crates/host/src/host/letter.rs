//! Letters: inputs from other processes, and their answers, as the store keeps them.

use serde::{Deserialize, Serialize};
use skein_core::engine::{Input, Refusal};

/// What is answered to a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    Refused(Refusal),
    /// The letter cannot be read.
    Unreadable(String),
}

impl From<&Result<(), Refusal>> for Answer {
    fn from(result: &Result<(), Refusal>) -> Answer {
        match result {
            Ok(()) => Answer::Done,
            Err(refusal) => Answer::Refused(refusal.clone()),
        }
    }
}

impl Answer {
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an answer serialises to JSON")
    }
}

/// Reads a letter. Only what people and programs may say from outside is let in; what the host itself says is not.
pub(super) fn read(body: &[u8]) -> Result<Input, String> {
    let input: Input = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match input {
        Input::Decide { .. }
        | Input::Signal { .. }
        | Input::Cancel { .. }
        | Input::RetryUndo { .. }
        | Input::Tampered { .. } => Ok(input),
        _ => Err("this is not for others to say".to_owned()),
    }
}
