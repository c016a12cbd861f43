//! Violations: rules that a run broke, as the acceptor, the invariants and the references find them.

/// A rule that a run broke, with the details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleViolation(String);

/// The result of checking a rule.
pub type RuleResult<T = ()> = Result<T, RuleViolation>;

impl RuleViolation {
    /// Names the check that found the violation.
    pub fn found_by(self, check: impl std::fmt::Display) -> RuleViolation {
        RuleViolation(format!("{check}: {self}"))
    }
}

impl From<String> for RuleViolation {
    fn from(text: String) -> RuleViolation {
        RuleViolation(text)
    }
}

impl From<&str> for RuleViolation {
    fn from(text: &str) -> RuleViolation {
        RuleViolation(text.to_owned())
    }
}

/// Returns a violation with this text unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*).into());
        }
    };
}
pub(crate) use ensure;
