//! Requests: inputs from other processes, and their answers, as the store keeps them.

use serde::{Deserialize, Serialize};
use skein_core::engine::{Refusal, RunInput};

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestAnswer {
    Done,
    Refused(Refusal),
    /// The request cannot be read.
    Unreadable(String),
}

impl From<&Result<(), Refusal>> for RequestAnswer {
    fn from(result: &Result<(), Refusal>) -> RequestAnswer {
        match result {
            Ok(()) => RequestAnswer::Done,
            Err(refusal) => RequestAnswer::Refused(refusal.clone()),
        }
    }
}

impl RequestAnswer {
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an answer serialises to JSON")
    }
}

/// Parses a request. Accepts only inputs that people and programs may send; those of the host itself are refused.
pub(super) fn parse_request(body: &[u8]) -> Result<RunInput, String> {
    let input: RunInput = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match input {
        RunInput::Decide { .. }
        | RunInput::Signal { .. }
        | RunInput::Cancel { .. }
        | RunInput::RetryUndo { .. }
        | RunInput::Tampered { .. } => Ok(input),
        _ => Err("this input is not accepted from outside the host".to_owned()),
    }
}
