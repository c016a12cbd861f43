//! Names given by people, made safe by construction.
//!
//! Owns the one rule for the contents of a name: a value of these types can be a path segment, a journal key or a line
//! in a terminal without further checks. Does not know where the name is used; a format that allows less (kebab case,
//! reserved words) checks that in its own front end.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits;

/// The reason why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("a name cannot be empty")]
    Empty,
    #[error("a name can have at most {max} bytes, this has {len}")]
    TooLong { len: usize, max: usize },
    #[error("`{0}` is a file system path, not a name")]
    Dots(String),
    #[error("a name cannot contain {}", quote_character(*.0))]
    Character(char),
    #[error("a name cannot start with `-`, because a program would take it for an option")]
    Dash,
    #[error("a name cannot start or end with white space")]
    Space,
}

fn quote_character(c: char) -> String {
    if c.is_control() || hides_text(c) { format!("the character U+{:04X}", u32::from(c)) } else { format!("`{c}`") }
}

/// True for characters that change how the text around them is shown: zero-width, directional and other format
/// characters.
fn hides_text(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > limits::ID_BYTES {
        return Err(IdError::TooLong { len: text.len(), max: limits::ID_BYTES });
    }
    if text == "." || text == ".." {
        return Err(IdError::Dots(text.to_owned()));
    }
    // Nearly all names are plain, and need no further checks.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.bytes().all(is_plain) && !text.starts_with('-') {
        return Ok(());
    }
    if let Some(c) = text.chars().find(|c| matches!(c, '/' | '\\') || c.is_control() || hides_text(*c)) {
        return Err(IdError::Character(c));
    }
    if text.starts_with('-') {
        return Err(IdError::Dash);
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(IdError::Space);
    }
    Ok(())
}

macro_rules! id {
    ($(#[doc = $doc:literal] $name:ident;)*) => { $(
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates the name, if the text is valid.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                check(text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    )* };
}

id! {
    /// The id of a workflow, by which other workflows call it.
    WorkflowId;
    /// The id of a step, unique in its workflow.
    StepId;
    /// The id of a branch of a parallel step.
    BranchId;
    /// The name of an artifact that a step produces or consumes.
    ArtifactName;
    /// The name of an outside event that a step can wait for.
    SignalName;
    /// The id of a run.
    RunId;
}

/// Formats bytes as a UUID of version 4.
pub fn format_uuid_v4(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_id_cannot_be_a_path() {
        for bad in ["../x", "a/b", "..", ".", "a\\b", "a\0b", "", "-rf", " a", "a\n", "a\u{202e}b"] {
            assert!(StepId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_of_every_script_and_of_200_characters_work() {
        for good in ["build", "a..b", "テスト", "naïve-step", "_meta", "step 1", &"x".repeat(200)] {
            assert_eq!(StepId::new(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn the_length_limit_holds_at_its_edge() {
        let n = limits::ID_BYTES;
        assert!(StepId::new("x".repeat(n - 1)).is_ok());
        assert!(StepId::new("x".repeat(n)).is_ok());
        assert_eq!(StepId::new("x".repeat(n + 1)), Err(IdError::TooLong { len: n + 1, max: n }));
    }

    #[test]
    fn decoding_checks_too() {
        assert!(serde_json::from_str::<StepId>("\"../x\"").is_err());
        assert_eq!(serde_json::from_str::<StepId>("\"\\u0061b\"").unwrap().as_str(), "ab");
    }
}
