//! Secrets: values that a step is given by name and that must never be printed.
//!
//! Owns where they come from, and the guarantee that they are complete before anything starts. A secret cannot be
//! shown, compared or stored: the only access is `SecretValue::expose`, and all written text goes through
//! [`crate::redact`].

use std::{collections::BTreeMap, env, fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use skein_core::limits;

use crate::system::read_regular_file;

/// A secret value. It prints as `***`; there is no other way to print it.
#[derive(Clone)]
pub struct SecretValue(Arc<str>);

impl SecretValue {
    /// Creates a secret. It must be long enough to be recognized in written text.
    pub(crate) fn new(text: &str) -> Result<SecretValue, SecretProblem> {
        match text {
            "" => Err(SecretProblem::Empty),
            text if text.len() < limits::SECRET_BYTES_LEAST => {
                Err(SecretProblem::Short { least: limits::SECRET_BYTES_LEAST })
            }
            text if text.len() > limits::SECRET_BYTES => Err(SecretProblem::Long { most: limits::SECRET_BYTES }),
            text if text.contains('\0') => Err(SecretProblem::Nul),
            text => Ok(SecretValue(text.into())),
        }
    }

    /// Returns the value itself, for the environment of the process that it is for.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The reason why a value cannot be used as a secret. Does not contain the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    #[error("it is empty")]
    Empty,
    #[error("it has fewer than {least} bytes, too few to redact it in logs without hiding other text")]
    Short { least: usize },
    #[error("it has more than {most} bytes")]
    Long { most: usize },
    #[error("it contains a NUL byte, which an environment variable cannot hold")]
    Nul,
    #[error("it is not UTF-8")]
    NotText,
}

/// The source of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// A variable of Skein's own environment.
    Env(String),
    /// A file that contains it. One line break at its end is not a part of the secret.
    File(PathBuf),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env(name) => write!(f, "the environment variable `{name}`"),
            SecretSource::File(path) => write!(f, "the file `{}`", path.display()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret `{name}` is not available: {from} is not set")]
    Unset { name: String, from: SecretSource },
    #[error("the secret `{name}` cannot be read from {from}: {error}")]
    Unreadable { name: String, from: SecretSource, error: std::io::Error },
    #[error("the secret `{name}` in {from} cannot be used: {why}")]
    Unusable { name: String, from: SecretSource, why: SecretProblem },
    #[error(
        "there is no secret `{name}`; add it to `[secrets]` in skein.toml, such as {name} = {{ env = \"{name}\" }}"
    )]
    Unknown { name: String },
}

/// The secrets of a host, by name.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    by_name: BTreeMap<String, SecretValue>,
}

impl Secrets {
    /// Reads all secrets. All errors are returned together.
    pub fn load(from: &BTreeMap<String, SecretSource>) -> Result<Secrets, Vec<SecretError>> {
        let mut secrets = Secrets::default();
        let mut errors = Vec::new();
        for (name, from) in from {
            match read_secret(name, from) {
                Ok(secret) => {
                    secrets.by_name.insert(name.clone(), secret);
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(secrets) } else { Err(errors) }
    }

    /// Returns the secrets that a step names, and no others.
    pub(crate) fn select_named<'a>(
        &'a self,
        names: &'a [String],
    ) -> Result<Vec<(&'a str, &'a SecretValue)>, SecretError> {
        let one = |name: &'a String| match self.by_name.get(name) {
            Some(secret) => Ok((name.as_str(), secret)),
            None => Err(SecretError::Unknown { name: name.clone() }),
        };
        names.iter().map(one).collect()
    }

    /// Returns all secrets, for redaction.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SecretValue> {
        self.by_name.values()
    }
}

fn read_secret(name: &str, from: &SecretSource) -> Result<SecretValue, SecretError> {
    let unusable = |why| SecretError::Unusable { name: name.to_owned(), from: from.clone(), why };
    let text = match from {
        SecretSource::Env(variable) => match env::var(variable) {
            Ok(text) => text,
            Err(env::VarError::NotUnicode(_)) => return Err(unusable(SecretProblem::NotText)),
            Err(env::VarError::NotPresent) => {
                return Err(SecretError::Unset { name: name.to_owned(), from: from.clone() });
            }
        },
        SecretSource::File(path) => {
            let unreadable = |error| SecretError::Unreadable { name: name.to_owned(), from: from.clone(), error };
            // Enough to see that a secret is too long, with the end of its line.
            let bytes = read_regular_file(path, limits::SECRET_BYTES as u64 + 3).map_err(unreadable)?;
            let text = String::from_utf8(bytes).map_err(|_| unusable(SecretProblem::NotText))?;
            let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
            line.map(str::to_owned).unwrap_or(text)
        }
    };
    SecretValue::new(&text).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(from: &[(&str, SecretSource)]) -> Result<Secrets, Vec<String>> {
        let from = from.iter().map(|(name, from)| ((*name).to_owned(), from.clone())).collect();
        Secrets::load(&from).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_secret_prints_as_stars() {
        let secret = SecretValue::new("hunter2-hunter2").unwrap();
        let secrets = Secrets { by_name: [("A".to_owned(), secret.clone())].into() };
        assert_eq!(format!("{secret:?} {secret:#?}"), "*** ***");
        assert!(!format!("{secrets:?}").contains("hunter2"));
        assert_eq!(secret.expose(), "hunter2-hunter2");
    }

    #[test]
    fn the_length_limits_hold_at_their_edges() {
        let of = |n: usize| SecretValue::new(&"x".repeat(n)).map(drop);
        let (least, most) = (limits::SECRET_BYTES_LEAST, limits::SECRET_BYTES);
        assert_eq!(of(0), Err(SecretProblem::Empty));
        assert_eq!(of(least - 1), Err(SecretProblem::Short { least }));
        assert_eq!((of(least), of(most)), (Ok(()), Ok(())));
        assert_eq!(of(most + 1), Err(SecretProblem::Long { most }));
        assert_eq!(SecretValue::new("1234567\0").map(drop), Err(SecretProblem::Nul));
    }

    #[test]
    fn a_step_is_given_only_what_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            SecretSource::File(dir.path().join(name))
        };
        let secrets = load(&[
            ("A", file("a", "first-secret\n")),
            ("B", file("b", "second-secret\r\n")),
            ("C", file("c", "third-secret\n\n")),
        ])
        .unwrap();
        let names = ["B".to_owned(), "A".to_owned(), "C".to_owned()];
        let given: Vec<_> =
            secrets.select_named(&names).unwrap().into_iter().map(|(name, secret)| (name, secret.expose())).collect();
        assert_eq!(given, [("B", "second-secret"), ("A", "first-secret"), ("C", "third-secret\n")]);
        assert!(secrets.select_named(&[]).unwrap().is_empty());
        let error = secrets.select_named(&["D".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no secret `D`") && error.contains("D = { env = \"D\" }"), "{error}");
    }

    #[test]
    fn all_that_are_missing_are_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("short"), "1234567\n").unwrap();
        fs::write(dir.path().join("bytes"), [0xff; 20]).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let file = |name: &str| SecretSource::File(dir.path().join(name));
        let errors = load(&[
            ("A", SecretSource::Env("SKEIN_TEST_NO_SUCH_VARIABLE".into())),
            ("B", file("none")),
            ("C", file("short")),
            ("D", file("bytes")),
            ("E", file("pipe")),
        ])
        .unwrap_err();
        let expected = [
            "`A` is not available: the environment variable `SKEIN_TEST_NO_SUCH_VARIABLE` is not set",
            "`B` cannot be read",
            "it has fewer than 8 bytes",
            "it is not UTF-8",
            "it is not a regular file",
        ];
        assert_eq!(errors.len(), expected.len());
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_environment_variable_is_read() {
        // Cargo sets it in every process that it starts.
        let secrets = load(&[("DIR", SecretSource::Env("CARGO_MANIFEST_DIR".into()))]).unwrap();
        let names = ["DIR".to_owned()];
        assert_eq!(secrets.select_named(&names).unwrap()[0].1.expose(), env!("CARGO_MANIFEST_DIR"));
    }
}
