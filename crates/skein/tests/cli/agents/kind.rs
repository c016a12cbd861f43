//! The three agents, by their names in a project, each with the scripted model of a test.

use std::{env, path::PathBuf, sync::OnceLock};

use super::{model::Model, speak::Service};
use crate::{kept::Project, session::Folder};

/// An agent, and the settings that make it use another model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub word: &'static str,
    pub service: Service,
    program: &'static str,
}

pub(crate) const CLAUDE: Kind = Kind { word: "CLAUDE_CODE", service: Service::Messages, program: "claude" };
pub(crate) const CODEX: Kind = Kind { word: "CODEX_CLI", service: Service::Responses, program: "codex" };
pub(crate) const OPENCODE: Kind = Kind { word: "OPENCODE", service: Service::Chat, program: "opencode" };

/// The folder in which the agent programs are installed.
fn installed() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let said = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = said("XDG_CACHE_HOME").or_else(|| Some(said("HOME")?.join(".cache")));
        let cache = cache.expect("whoever runs the tests has a home");
        let place = cache.join("skein/agents/node_modules/.bin");
        assert!(
            place.join("claude").exists(),
            "the tests drive real coding agents, which are not in {}; `tests/agents/install` installs them",
            place.display()
        );
        place
    })
}

impl Kind {
    pub(crate) fn program(&self) -> PathBuf {
        installed().join(self.program)
    }

    /// The configuration of the agent in a project.
    pub(crate) fn config(&self, folder: &Folder, port: u16) -> String {
        self.config_with(folder, port, &self.program().display().to_string())
    }

    pub(crate) fn config_with(&self, folder: &Folder, port: u16, program: &str) -> String {
        let begin = format!("[workers.{}]\nprogram = \"{program}\"\n", self.word);
        let base = format!("http://127.0.0.1:{port}");
        // The home of the user who runs the tests must not matter.
        let home = format!("HOME = \"{}/nobody\"", folder.0.display());
        match self.service {
            Service::Messages => {
                format!(
                    "{begin}env = {{ {home}, ANTHROPIC_BASE_URL = \"{base}\", ANTHROPIC_API_KEY = \"sk-ant-test-key\" }}\n"
                )
            }
            Service::Responses => {
                let provider = format!(
                    "model_providers.test={{name=\"test\",base_url=\"{base}/v1\",env_key=\"TEST_KEY\",\
                     wire_api=\"responses\",request_max_retries=0}}"
                );
                format!(
                    "{begin}env = {{ {home}, TEST_KEY = \"test-key-of-codex\" }}\narguments = [\"-c\", 'model=\"m\"', \"-c\", \
                     \"model_provider=test\", \"-c\", '{provider}']\n"
                )
            }
            Service::Chat => {
                let config = format!(
                    "{{\"model\": \"test/m\", \"small_model\": \"test/m\", \"provider\": {{\"test\": {{\"npm\": \
                     \"@ai-sdk/openai-compatible\", \"name\": \"test\", \"options\": {{\"baseURL\": \"{base}/v1\", \
                     \"apiKey\": \"test-key\"}}, \"models\": {{\"m\": {{\"name\": \"m\", \"limit\": {{\"context\": 200000, \
                     \"output\": 8000}}, \"cost\": {{\"input\": 1, \"output\": 2}}}}}}}}}}}}"
                );
                folder.write("model.json", config);
                format!("{begin}env = {{ {home}, OPENCODE_CONFIG = \"{}/model.json\" }}\n", folder.0.display())
            }
        }
    }

    /// A project with one workflow, in which this agent uses this model. `AGENT` in the workflow stands for this agent.
    pub(crate) fn project(&self, model: &Model, workflow: &str) -> Project {
        let project = Project::new();
        let more = format!(
            "{}[agents.worker]\nworker = \"{}\"\ncapabilities = [\"READ\", \"EDIT\"]\n",
            self.config(&project.folder, model.port),
            self.word
        );
        project.folder.write("skein.toml", more).write("flow.yaml", workflow.replace("AGENT", self.word));
        project
    }
}
