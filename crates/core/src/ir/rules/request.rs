//! The request that a policy evaluates: the principal, the operation and the time.

use serde::{Deserialize, Serialize};

use crate::{ir::is_default, time::Timestamp};

/// The principal that starts a run, as the project knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPrincipal {
    pub name: String,
    pub roles: Vec<String>,
}

/// The operation of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOperation {
    /// The class of the operation: `tool.call`, `agent.run` or `command.run`.
    pub class: String,
    /// The action, if the operation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The tool, the agent or the program.
    pub subject: String,
    /// The names of the things that it changes, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutates: Vec<String>,
    /// True if it changes anything.
    #[serde(default, skip_serializing_if = "is_default")]
    pub changes: bool,
    /// From 0 (only reads) to 3 (irreversible).
    #[serde(default, skip_serializing_if = "is_default")]
    pub risk: u8,
}

/// One operation that a principal wants to run.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    pub principal: &'a PolicyPrincipal,
    pub now: Timestamp,
    pub operation: &'a PolicyOperation,
}

impl PolicyOperation {
    /// The names by which a grant may refer to it, such as `mail:send` and `tool:mailer`.
    pub fn action_names(&self) -> Vec<String> {
        let kind = self.class.split('.').next().unwrap_or_default();
        let subject = format!("{kind}:{}", self.subject);
        self.action.clone().into_iter().chain([subject]).collect()
    }

    /// Returns its name for messages.
    pub fn describe(&self) -> String {
        self.action_names().swap_remove(0)
    }
}

/// True if a name matches a pattern, in which each star stands for any text, also an empty one.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, wanted) in [
            ("mail:send", "mail:send", true),
            ("mail:send", "mail:sends", false),
            ("mail:*", "mail:send", true),
            ("mail:*", "mailer:send", false),
            ("*", "", true),
            ("tool.*", "tool.call", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("*x", "x", true),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
