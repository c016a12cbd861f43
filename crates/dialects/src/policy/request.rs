//! The request that a policy evaluates: the principal and the operation.

use skein_core::time::Timestamp;

/// The principal that starts a run, as the project knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPrincipal {
    pub name: String,
    pub roles: Vec<String>,
}

/// One operation that a principal wants to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyRequest<'a> {
    pub who: &'a PolicyPrincipal,
    pub now: Timestamp,
    /// The class of the operation: `tool.call`, `agent.run` or `command.run`.
    pub class: &'a str,
    /// The action, if the operation has one.
    pub action: Option<&'a str>,
    /// The tool, the agent or the program.
    pub subject: &'a str,
    /// The names of the things that it changes, if known.
    pub mutates: &'a [String],
    /// True if it changes anything.
    pub changes: bool,
    /// From 0 (only reads) to 3 (irreversible).
    pub risk: u8,
}

impl PolicyRequest<'_> {
    /// The names by which a grant may refer to it, such as `mail:send` and `tool:mailer`.
    pub fn action_names(&self) -> Vec<String> {
        let sort = self.class.split('.').next().unwrap_or_default();
        let own = format!("{sort}:{}", self.subject);
        self.action.map(str::to_owned).into_iter().chain([own]).collect()
    }

    /// Returns its name for messages.
    pub fn describe(&self) -> String {
        self.action_names().swap_remove(0)
    }
}
