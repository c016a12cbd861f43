//! What is asked of a policy: who wants something done, and what that is.

use skein_core::time::Timestamp;

/// Who begins a run, as the project knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPrincipal {
    pub name: String,
    pub roles: Vec<String>,
}

/// One thing that somebody wants done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyRequest<'a> {
    pub who: &'a PolicyPrincipal,
    pub now: Timestamp,
    /// What sort of thing is done: `tool.call`, `agent.run` or `command.run`.
    pub class: &'a str,
    /// The action that it is, where it is one of a name.
    pub action: Option<&'a str>,
    /// The tool, the agent or the program.
    pub subject: &'a str,
    /// What it changes, where that is known by name.
    pub mutates: &'a [String],
    /// Whether it changes anything.
    pub changes: bool,
    /// From 0, which only reads, to 3, which cannot be undone.
    pub risk: u8,
}

impl PolicyRequest<'_> {
    /// The names that a grant may have for it, such as `mail:send` and `tool:mailer`.
    pub fn action_names(&self) -> Vec<String> {
        let sort = self.class.split('.').next().unwrap_or_default();
        let own = format!("{sort}:{}", self.subject);
        self.action.map(str::to_owned).into_iter().chain([own]).collect()
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        self.action_names().swap_remove(0)
    }
}
