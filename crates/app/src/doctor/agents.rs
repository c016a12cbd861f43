//! Checks of coding agents: whether they are installed, their version, and their login. No agent is given any work, and
//! no key or login is read: only the existence of files and variables is tested.

use std::{env, path::PathBuf};

use skein_host::executor::agents;

use super::{
    DoctorFinding,
    programs::{DEADLINE, ProgramStatus, ProgramStatuses, VersionQuery},
};
use crate::project::config::ProjectConfig;

/// An agent that is an installed program.
struct AgentInstallation {
    program: &'static str,
    /// Its name in workflows and skein.toml.
    worker: &'static str,
    /// The file that a login creates.
    login: Option<PathBuf>,
    /// Environment variables that replace a login.
    keys: &'static [&'static str],
    /// A hint on logging in.
    hint: &'static str,
}

/// Returns the agents that Skein has an adapter for.
fn known_agents() -> Vec<AgentInstallation> {
    let known = agents::ALL.iter().map(|adapter| AgentInstallation {
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
        let configured = config.and_then(|config| config.workers.get(agent.worker)?.program.clone());
        configured.unwrap_or_else(|| agent.program.to_owned())
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
        .filter_map(|agent| Some(agent.check_version(answers.get(agent.program)?, agent.find_setting(config))))
        .collect()
}

impl AgentInstallation {
    /// Returns the setting of skein.toml that uses it, if any.
    fn find_setting(&self, config: Option<&ProjectConfig>) -> Option<String> {
        let config = config?;
        let is = |worker: &Option<String>| worker.as_deref() == Some(self.worker);
        if is(&config.default_worker) {
            return Some("`default_worker`".to_owned());
        }
        let agent = config.agents.iter().find(|(_, agent)| is(&agent.worker));
        agent.map(|(name, _)| format!("`[agents.{name}]`"))
    }

    fn check_version(&self, answer: &ProgramStatus, setting: Option<String>) -> DoctorFinding {
        let name = self.program;
        match (answer, setting) {
            (ProgramStatus::Missing(_), None) => DoctorFinding::ok(name, "not installed, and not used by skein.toml"),
            (ProgramStatus::Missing(why), Some(setting)) => DoctorFinding::problem(
                name,
                format!("{setting} in skein.toml uses it: {why}"),
                "install it, or name another",
            ),
            (ProgramStatus::Failed { path, why }, _) => {
                let message = format!("cannot get the version of {}: {why}", path.display());
                let hint = format!("check `{name} --version`; its time limit is {DEADLINE}");
                DoctorFinding::warning(name, message, hint)
            }
            (ProgramStatus::Said { path, line }, _) => self.check_login(&format!("{line}, {}", path.display())),
        }
    }

    fn check_login(&self, program: &str) -> DoctorFinding {
        // A URL is an address, not a credential.
        let set = |name: &&&str| !name.ends_with("_URL") && env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(key) = self.keys.iter().find(set) {
            return DoctorFinding::ok(self.program, format!("{program}; {key} is set"));
        }
        let place = &self.login;
        if place.as_ref().is_some_and(|place| place.is_file()) {
            return DoctorFinding::ok(self.program, format!("{program}; logged in"));
        }
        let place = match place {
            Some(place) => format!("no {}", place.display()),
            None => "HOME is not set".to_owned(),
        };
        DoctorFinding::warning(self.program, format!("{program}; not logged in: {place}"), self.hint)
    }
}
