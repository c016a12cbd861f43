//! Coding agents: which are here, of which version, and whether someone has logged in. None of them is given anything to
//! do, and no key or login is read: a file is there or not, a variable is set or not.

use std::{env, path::PathBuf};

use skein_host::agent;

use super::{
    DoctorFinding,
    programs::{DEADLINE, ProgramStatus, ProgramStatuses, VersionQuery},
};
use crate::config::ProjectConfig;

/// An agent that comes as a program.
struct AgentInstallation {
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
fn known_agents() -> Vec<AgentInstallation> {
    let known = agent::ALL.iter().map(|adapter| AgentInstallation {
        program: adapter.program(),
        worker: adapter.agent_name(),
        login: adapter.login_link().from,
        keys: adapter.credential_variables(),
        hint: adapter.login_hint(),
    });
    known.collect()
}

pub fn version_queries(config: Option<&ProjectConfig>) -> Vec<VersionQuery> {
    let program = |agent: &AgentInstallation| {
        let said = config.and_then(|config| config.workers.get(agent.worker)?.program.clone());
        said.unwrap_or_else(|| agent.program.to_owned())
    };
    let one = |agent: &AgentInstallation| VersionQuery {
        key: agent.program,
        program: program(agent),
        arguments: &["--version"],
    };
    known_agents().iter().map(one).collect()
}

pub fn check_agents(answers: &ProgramStatuses, config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    known_agents()
        .iter()
        .filter_map(|agent| {
            Some(agent.check_version(answers.get(agent.program)?, agent.find_setting(config)))
        })
        .collect()
}

impl AgentInstallation {
    /// Where skein.toml asks for it, if it does.
    fn find_setting(&self, config: Option<&ProjectConfig>) -> Option<String> {
        let config = config?;
        let is = |worker: &Option<String>| worker.as_deref() == Some(self.worker);
        if is(&config.default_worker) {
            return Some("`default_worker`".to_owned());
        }
        let agent = config.agents.iter().find(|(_, agent)| is(&agent.worker));
        agent.map(|(name, _)| format!("`[agents.{name}]`"))
    }

    fn check_version(&self, answer: &ProgramStatus, asked: Option<String>) -> DoctorFinding {
        let name = self.program;
        match (answer, asked) {
            (ProgramStatus::Missing(_), None) => {
                DoctorFinding::ok(name, "not here, and skein.toml does not ask for it")
            }
            (ProgramStatus::Missing(why), Some(asked)) => DoctorFinding::problem(
                name,
                format!("{asked} in skein.toml asks for it: {why}"),
                "install it, or name another",
            ),
            (ProgramStatus::Failed { path, why }, _) => {
                let message = format!("{} was asked for its version, and {why}", path.display());
                let hint = format!("see what `{name} --version` says; it has {DEADLINE}");
                DoctorFinding::warning(name, message, hint)
            }
            (ProgramStatus::Said { path, line }, _) => {
                self.check_login(&format!("{line}, {}", path.display()))
            }
        }
    }

    fn check_login(&self, about: &str) -> DoctorFinding {
        // An address says where to ask, and not who does.
        let set = |name: &&&str| {
            !name.ends_with("_URL") && env::var_os(name).is_some_and(|value| !value.is_empty())
        };
        if let Some(key) = self.keys.iter().find(set) {
            return DoctorFinding::ok(self.program, format!("{about}; {key} is set"));
        }
        let place = &self.login;
        if place.as_ref().is_some_and(|place| place.is_file()) {
            return DoctorFinding::ok(self.program, format!("{about}; logged in"));
        }
        let place = match place {
            Some(place) => format!("no {}", place.display()),
            None => "there is no HOME".to_owned(),
        };
        DoctorFinding::warning(self.program, format!("{about}; not logged in: {place}"), self.hint)
    }
}
