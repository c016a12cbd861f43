//! Coding agents: which are here, of which version, and whether someone has logged in. None of them is given anything to
//! do, and no key or login is read: a file is there or not, a variable is set or not.

use std::{env, path::PathBuf};

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
    /// A variable that says where its files are, where they are otherwise, and the file that a login leaves there.
    home: (&'static str, &'static str),
    login: &'static str,
    /// Variables that do instead of a login.
    keys: &'static [&'static str],
    /// How to log in.
    hint: &'static str,
}

const AGENTS: [Agent; 4] = [
    Agent {
        program: "claude",
        worker: "CLAUDE_CODE",
        home: ("CLAUDE_CONFIG_DIR", ".claude"),
        login: ".credentials.json",
        keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        hint: "start `claude` and say `/login`, or set ANTHROPIC_API_KEY",
    },
    Agent {
        program: "codex",
        worker: "CODEX_CLI",
        home: ("CODEX_HOME", ".codex"),
        login: "auth.json",
        keys: &["OPENAI_API_KEY", "CODEX_API_KEY"],
        hint: "`codex login`, or set OPENAI_API_KEY",
    },
    Agent {
        program: "opencode",
        worker: "OPENCODE",
        home: ("XDG_DATA_HOME", ".local/share"),
        login: "opencode/auth.json",
        keys: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_CONFIG_CONTENT"],
        hint: "`opencode auth login`, or set the key of a provider",
    },
    Agent {
        program: "gemini",
        worker: "GEMINI_CLI",
        home: ("", ".gemini"),
        login: "oauth_creds.json",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        hint: "start `gemini` and log in, or set GEMINI_API_KEY",
    },
];

pub fn wanted(config: Option<&Config>) -> Vec<Wanted> {
    let program = |agent: &Agent| {
        let said = config.and_then(|config| config.workers.get(agent.worker)?.program.clone());
        said.unwrap_or_else(|| agent.program.to_owned())
    };
    let one =
        |agent: &Agent| Wanted { key: agent.program, program: program(agent), arguments: &["--version"] };
    AGENTS.iter().map(one).collect()
}

pub fn look(answers: &Answers, config: Option<&Config>) -> Vec<Finding> {
    AGENTS
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
        let set = |name: &&&str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(key) = self.keys.iter().find(set) {
            return Finding::ok(self.program, format!("{about}; {key} is set"));
        }
        let place = self.place();
        if place.as_ref().is_some_and(|place| place.is_file()) {
            return Finding::ok(self.program, format!("{about}; logged in"));
        }
        let place =
            place.map_or_else(|| "there is no HOME".to_owned(), |place| format!("no {}", place.display()));
        Finding::warning(self.program, format!("{about}; not logged in: {place}"), self.hint)
    }

    /// The file that a login leaves.
    fn place(&self) -> Option<PathBuf> {
        let (variable, usual) = self.home;
        let said = Some(variable).filter(|name| !name.is_empty()).and_then(env::var_os);
        let home = said.map(PathBuf::from).or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(usual)));
        home.map(|home| home.join(self.login))
    }
}
