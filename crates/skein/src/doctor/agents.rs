//! Coding agents: which are here, of which version, and whether someone has logged in. None of them is given anything to
//! do, and no key or login is read: a file is there or not, a variable is set or not.

use std::{env, path::PathBuf};

use skein_host::agent;

use super::{
    Finding,
    programs::{Answer, Answers, DEADLINE, Wanted},
};
use crate::config::Config;

/// An agent that comes as a program.
struct Agent {
    program: &'static str,
    /// How workflows and skein.toml name it.
    worker: &'static str,
    /// The file that a login leaves.
    login: Option<PathBuf>,
    /// Variables that do instead of a login.
    keys: &'static [&'static str],
    /// How to log in.
    hint: &'static str,
}

/// The agents that Skein has an adapter for.
fn agents() -> Vec<Agent> {
    let known = agent::ALL.iter().map(|adapter| Agent {
        program: adapter.program(),
        worker: adapter.word(),
        login: adapter.login().from,
        keys: adapter.credentials(),
        hint: adapter.sign_in(),
    });
    known.collect()
}

pub fn wanted(config: Option<&Config>) -> Vec<Wanted> {
    let program = |agent: &Agent| {
        let said = config.and_then(|config| config.workers.get(agent.worker)?.program.clone());
        said.unwrap_or_else(|| agent.program.to_owned())
    };
    let one =
        |agent: &Agent| Wanted { key: agent.program, program: program(agent), arguments: &["--version"] };
    agents().iter().map(one).collect()
}

pub fn look(answers: &Answers, config: Option<&Config>) -> Vec<Finding> {
    agents()
        .iter()
        .filter_map(|agent| Some(agent.look(answers.get(agent.program)?, agent.asked_for(config))))
        .collect()
}

impl Agent {
    /// Where skein.toml asks for it, if it does.
    fn asked_for(&self, config: Option<&Config>) -> Option<String> {
        let config = config?;
        let is = |worker: &Option<String>| worker.as_deref() == Some(self.worker);
        if is(&config.default_worker) {
            return Some("`default_worker`".to_owned());
        }
        let agent = config.agents.iter().find(|(_, agent)| is(&agent.worker));
        agent.map(|(name, _)| format!("`[agents.{name}]`"))
    }

    fn look(&self, answer: &Answer, asked: Option<String>) -> Finding {
        let name = self.program;
        match (answer, asked) {
            (Answer::Missing(_), None) => Finding::ok(name, "not here, and skein.toml does not ask for it"),
            (Answer::Missing(why), Some(asked)) => Finding::problem(
                name,
                format!("{asked} in skein.toml asks for it: {why}"),
                "install it, or name another",
            ),
            (Answer::Failed { path, why }, _) => {
                let message = format!("{} was asked for its version, and {why}", path.display());
                let hint = format!("see what `{name} --version` says; it has {DEADLINE}");
                Finding::warning(name, message, hint)
            }
            (Answer::Said { path, line }, _) => self.login(&format!("{line}, {}", path.display())),
        }
    }

    fn login(&self, about: &str) -> Finding {
        // An address says where to ask, and not who does.
        let set = |name: &&&str| {
            !name.ends_with("_URL") && env::var_os(name).is_some_and(|value| !value.is_empty())
        };
        if let Some(key) = self.keys.iter().find(set) {
            return Finding::ok(self.program, format!("{about}; {key} is set"));
        }
        let place = &self.login;
        if place.as_ref().is_some_and(|place| place.is_file()) {
            return Finding::ok(self.program, format!("{about}; logged in"));
        }
        let place = match place {
            Some(place) => format!("no {}", place.display()),
            None => "there is no HOME".to_owned(),
        };
        Finding::warning(self.program, format!("{about}; not logged in: {place}"), self.hint)
    }
}
