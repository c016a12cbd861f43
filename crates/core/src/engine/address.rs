//! Addresses of things in a run: instances, steps of instances, attempts at steps, waitpoints.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A scope instance by its number in the run. The root is 0; each new one takes the next number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceIx(pub u32);

impl InstanceIx {
    pub const ROOT: InstanceIx = InstanceIx(0);
}

/// A step of an instance, by its number in the scope. In JSON: `[instance, step]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepAt(pub InstanceIx, pub u32);

/// Something that waits for a decision or a signal, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Waitpoint(pub u32);

listed_enum! {
    /// The purpose of an attempt.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AttemptRole {
        #[default]
        Main,
        Check,
        Summary,
        Undo,
    }
}

impl AttemptRole {
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptRole::Main => "main",
            AttemptRole::Check => "check",
            AttemptRole::Summary => "summary",
            AttemptRole::Undo => "undo",
        }
    }
}

/// One attempt of one role. An id is never used twice, so the result of one attempt cannot be mistaken for that of
/// another. Its text form, in JSON and elsewhere: `instance.step.visit.iteration.role.attempt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AttemptId {
    pub at: StepAt,
    /// The number of the visit to the step, counted from 1.
    pub visit: u32,
    /// The iteration of the completion check, counted from 1.
    pub iteration: u32,
    pub role: AttemptRole,
    /// Counted from 1 for each role in each iteration.
    pub attempt: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepAt(InstanceIx(instance), step) = self.at;
        write!(f, "{instance}.{step}.{}.{}.{}.{}", self.visit, self.iteration, self.role.as_str(), self.attempt)
    }
}

impl From<AttemptId> for String {
    fn from(id: AttemptId) -> String {
        id.to_string()
    }
}

/// A text that is not a valid attempt id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an attempt id: expected instance.step.visit.iteration.role.attempt")]
pub struct AttemptIdError(String);

impl FromStr for AttemptId {
    type Err = AttemptIdError;

    fn from_str(text: &str) -> Result<AttemptId, AttemptIdError> {
        parse_attempt_id(text).ok_or_else(|| AttemptIdError(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for AttemptId {
    type Error = AttemptIdError;

    fn try_from(text: String) -> Result<AttemptId, AttemptIdError> {
        text.parse()
    }
}

fn parse_attempt_id(text: &str) -> Option<AttemptId> {
    let mut parts = text.split('.');
    let number = |parts: &mut std::str::Split<'_, char>| parts.next()?.parse::<u32>().ok();
    let at = StepAt(InstanceIx(number(&mut parts)?), number(&mut parts)?);
    let (visit, iteration) = (number(&mut parts)?, number(&mut parts)?);
    let word = parts.next()?;
    let role = AttemptRole::ALL.into_iter().find(|role| role.as_str() == word)?;
    let attempt = number(&mut parts)?;
    parts.next().is_none().then_some(AttemptId { at, visit, iteration, role, attempt })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_survives_its_text() {
        let id = AttemptId {
            at: StepAt(InstanceIx(3), 2),
            visit: 1,
            iteration: 20,
            role: AttemptRole::Check,
            attempt: u32::MAX,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in
            ["", "1.2.3.4.main", "1.2.3.4.main.5.6", "1.2.3.4.boss.5", "-1.2.3.4.main.5", "1.2.3.4.main.4294967296"]
        {
            assert!(bad.parse::<AttemptId>().is_err(), "{bad}");
        }
    }
}
