//! Preparation of a run: looks up everything that it needs beyond its plan before it starts, and fixes the result.
//!
//! Owns the resolution of the plan's agents and tools, of the folders its steps may work in and of their secrets. All
//! problems are reported at once, and the run is not started.

pub(crate) mod agent_config;
pub mod channels;
pub mod probe;
pub mod resolve;
pub(crate) mod run_folders;
pub(crate) mod run_inputs;
pub(crate) mod secret_access;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::{
    ir::{GateTimeout, HookAction, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow},
    limits,
    plan::{Plan, ScopeIx},
    suggest::did_you_mean,
};
use skein_dialects::{CatalogKind, OverriddenField, Project};
use skein_host::{
    executor::{
        WorkspacePolicy,
        agents::{
            self,
            fallback::{self, AgentReference},
        },
        is_repository,
    },
    process,
    run_settings::{AgentProgram, AgentSettings, BuiltinFunction, RunOverride, RunSettings, ToolServer, ToolSettings},
    secret,
    workspace::FolderGrants,
};

use self::{
    resolve::ToolResolutions,
    secret_access::{SecretAccessRules, SecretQuery, SecretRefusal, find_missing_secrets},
};
use crate::{
    app_error::UnusableReason,
    project::{
        DiskProject,
        config::{self, CUSTOM, ProjectConfig},
        mcp_servers,
    },
};

/// The parameters of a request to run a workflow.
#[derive(Debug)]
pub(crate) struct RunRequest<'a> {
    pub source: &'a str,
    pub workspace: Option<&'a Path>,
    pub allowed: &'a [PathBuf],
    pub state: &'a Path,
    /// Fields of the workflow that the project replaced.
    pub overridden: &'a [OverriddenField],
    pub user: String,
    /// The recording that the run replays. A replay needs nothing that is only used to start programs.
    pub replay: Option<PathBuf>,
}

/// The reasons why a run cannot be started.
#[derive(Debug)]
pub(crate) struct RunPreparationError {
    pub problems: Vec<String>,
    /// The secrets among them that were refused by an access rule.
    pub refused: Vec<SecretRefusal>,
}

/// Returns the settings of a run, or all problems that prevent it.
pub(crate) fn prepare_run(
    plan: &Plan,
    project: &DiskProject,
    request: RunRequest<'_>,
) -> Result<RunSettings, RunPreparationError> {
    let config = &project.config;
    let workspace = request.workspace.map_or_else(|| project.root.clone(), Path::to_owned);
    let roots = resolve_roots(project, config, request.allowed);
    let grants = FolderGrants::new(&project.root, &workspace, &roots, Some(request.state));
    let grants =
        grants.map_err(|error| RunPreparationError { problems: vec![error.to_string()], refused: Vec::new() })?;
    let mut preparation = RunPreparation {
        project,
        config,
        found: &ToolResolutions::resolve_plan(plan, project),
        grants: &grants,
        access: &SecretAccessRules::load(project, &request.user),
        workflow: "",
        settings: initial_settings(plan, project, &grants, roots, request),
        problems: Vec::new(),
        refused: Vec::new(),
    };
    for (scope, entry) in (0..).map(ScopeIx).zip(&plan.definition.scopes) {
        preparation.prepare_scope(&plan.definition.workflow_containing(scope).workflow, &entry.scope);
    }
    preparation.prepare_channels(&plan.definition.root().workflow);
    if preparation.settings.replay.is_none() {
        preparation.problems.extend(refuse_gates(plan, config));
    }
    preparation.pin_programs(plan);
    preparation.finish()
}

/// Returns the settings that do not depend on single steps.
fn initial_settings(
    plan: &Plan,
    project: &DiskProject,
    grants: &FolderGrants,
    roots: Vec<PathBuf>,
    request: RunRequest<'_>,
) -> RunSettings {
    let config = &project.config;
    RunSettings {
        source: request.source.to_owned(),
        project: project.root.clone(),
        workspace: grants.workspace().to_owned(),
        roots,
        user: request.user,
        agents: Default::default(),
        programs: Default::default(),
        test_commands: config.test_commands.clone(),
        prices: config.prices.clone(),
        tools: Default::default(),
        surroundings: Default::default(),
        secrets: Default::default(),
        handing: Default::default(),
        pass_env: config.pass_env.clone(),
        writes: resolve_writes(project),
        allow_unenforced: config.allow_unenforced.steps,
        pinned: Default::default(),
        roles: Some(config.roles.clone()),
        definitions: project.definition_files(),
        overrides: collect_overrides(plan, config, request.allowed, request.overridden),
        state: Some(request.state.to_owned()),
        context: None,
        warnings: Vec::new(),
        record: None,
        replay: request.replay,
    }
}

/// Returns the exceptions that this run is allowed, and the fields that were replaced in its workflow.
fn collect_overrides(
    plan: &Plan,
    config: &ProjectConfig,
    allowed: &[PathBuf],
    overridden: &[OverriddenField],
) -> Vec<RunOverride> {
    let steps = plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let opens =
        |kind: &StepKindSpec| matches!(kind, StepKindSpec::Gate(gate) if gate.on_timeout == GateTimeout::Approve);
    let gates: Vec<&str> = steps.filter(|step| opens(&step.kind)).map(|step| step.id.as_str()).collect();
    let fields: Vec<Value> =
        overridden.iter().map(|one| json!({"field": one.field, "file": one.source.name})).collect();
    let all = [
        ("allow-root", canonicalize_all(allowed).map(|root| json!(root)).collect()),
        ("allow-unenforced", accepted_risks(config)),
        ("allow-auto-approve", json!(gates)),
        ("workflow-overrides", json!(fields)),
    ];
    let used = all.into_iter().filter(|(_, used)| used.as_array().is_some_and(|used| !used.is_empty()));
    used.map(|(name, used)| RunOverride { name: name.to_owned(), used }).collect()
}

/// Returns the risks of a machine without sandboxes that the project accepts.
fn accepted_risks(config: &ProjectConfig) -> Value {
    let risks = config.allow_unenforced;
    let names = [(risks.steps, "steps"), (risks.gates, "gates")];
    names.into_iter().filter(|(accepted, _)| *accepted).map(|(_, name)| json!(name)).collect()
}

/// Returns canonical paths, because a link could point elsewhere when it is used.
fn resolve_writes(project: &DiskProject) -> Vec<PathBuf> {
    let paths = project.config.writes.iter().map(|path| project.resolve_path(path));
    paths.filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// Canonicalises the folders of the command line.
fn canonicalize_all(allowed: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    allowed.iter().map(|root| std::fs::canonicalize(root).unwrap_or_else(|_| root.clone()))
}

/// Folders of the configuration are relative to the project, those of the command line to the working directory.
fn resolve_roots(project: &DiskProject, config: &ProjectConfig, allowed: &[PathBuf]) -> Vec<PathBuf> {
    let configured = config.roots.iter().map(|root| project.root.join(root));
    configured.chain(canonicalize_all(allowed)).collect()
}

fn has_git() -> bool {
    process::find_program(OsStr::new("git"), &std::env::var_os("PATH").unwrap_or_default(), &[]).is_ok()
}

/// Returns the source of a secret of the project.
pub(crate) fn secret_source(from: &config::SecretSourceConfig, project: &Path) -> secret::SecretSource {
    match from {
        config::SecretSourceConfig::Env(variable) => secret::SecretSource::Env(variable.clone()),
        config::SecretSourceConfig::File(path) => secret::SecretSource::File(project.join(path)),
    }
}

/// Returns the reason why a plan with gates is not run on this machine, if there is one: a worker could decide at its
/// own gate.
fn refuse_gates(plan: &Plan, config: &ProjectConfig) -> Option<String> {
    let steps = || plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let asks = |kind: &StepKindSpec| matches!(kind, StepKindSpec::Gate(_));
    let gate = steps().find(|step| asks(&step.kind) || step.policy.approval.is_some())?;
    let has_workers = steps().any(|step| matches!(step.kind, StepKindSpec::Work(_) | StepKindSpec::Call(_)));
    if !has_workers || config.allow_unenforced.gates || probe::is_fully_enforced() {
        return None;
    }
    Some(format!(
        "`{}` asks a person, and on this machine a worker can reach the state folder and answer in their place; \
         let users create namespaces (`skein doctor` says how), or accept the risk with \
         `allow_unenforced = [\"gates\"]` in skein.toml",
        gate.id
    ))
}

/// A run that is being prepared: the settings so far, and the problems found.
struct RunPreparation<'a> {
    project: &'a DiskProject,
    config: &'a ProjectConfig,
    found: &'a ToolResolutions,
    grants: &'a FolderGrants,
    access: &'a SecretAccessRules,
    /// The workflow whose steps are being prepared.
    workflow: &'a str,
    settings: RunSettings,
    problems: Vec<String>,
    refused: Vec<SecretRefusal>,
}

impl<'a> RunPreparation<'a> {
    /// Returns the settings, or all problems, each once.
    fn finish(mut self) -> Result<RunSettings, RunPreparationError> {
        self.problems.sort();
        self.problems.dedup();
        match self.problems.is_empty() {
            true => Ok(self.settings),
            false => Err(RunPreparationError { problems: self.problems, refused: self.refused }),
        }
    }

    fn prepare_scope(&mut self, workflow: &'a Workflow, scope: &StepScope) {
        self.workflow = workflow.id.as_str();
        self.problems.extend(find_missing_secrets(workflow, self.config));
        for step in &scope.steps {
            if let StepKindSpec::Work(work) = &step.kind {
                agent_config::collect_agent_context(workflow, step, &work.worker, self.project, &mut self.settings);
            }
            self.prepare_step(step);
        }
    }

    /// Prepares the channels that the hooks of the workflow notify, and those that subscribe to its events.
    fn prepare_channels(&mut self, workflow: &Workflow) {
        for hook in &workflow.hooks {
            if let HookAction::Notify { channel, .. } = &hook.action {
                self.prepare_channel(channel);
            }
        }
        if workflow.extensions.resource.is_some() {
            self.problems.extend(channels::prepare_telemetry(self.config, &mut self.settings));
        }
    }

    fn prepare_channel(&mut self, name: &str) {
        let prepared = channels::prepare_channel(name, self.config, &mut self.settings);
        self.problems.extend(prepared.err().map(|why| why.to_string()));
    }

    /// Pins every program that the run may start and that its steps could write.
    fn pin_programs(&mut self, plan: &Plan) {
        let hooks = plan.definition.root().workflow.hooks.iter();
        let programs = hooks.filter_map(|hook| match &hook.action {
            HookAction::Run { program, .. } => Some(program.clone()),
            HookAction::Notify { .. } => None,
        });
        let steps = plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
        let folders = steps.filter_map(|step| match &step.kind {
            StepKindSpec::Work(work) => Some(self.settings.workspace.join(work.isolation.workspace.as_deref()?)),
            _ => None,
        });
        let folders: Vec<PathBuf> = folders.collect();
        self.problems.extend(self.settings.pin_programs(programs, &folders));
    }

    fn prepare_step(&mut self, step: &Step) {
        if let Some((ruling, missing)) =
            step.policy.ruling.as_ref().and_then(|ruling| Some((ruling, ruling.missing.as_ref()?)))
        {
            self.problems.push(format!(
                "`{}`: there is no policy `{missing}`, which {} requires; create `.policies/{missing}/POLICY.md`",
                step.id, ruling.from
            ));
        }
        match &step.kind {
            StepKindSpec::Work(work) => self.prepare_work(step, work),
            StepKindSpec::Gate(gate) if gate.on_timeout == GateTimeout::Approve && !self.config.allow_auto_approve => {
                self.problems.push(format!(
                    "the gate `{}` is approved automatically on timeout, which this project does not allow; \
                     set `allow_auto_approve = true` in skein.toml to allow it",
                    step.id
                ));
            }
            _ => {}
        }
        if let Some(undo) = &step.undo {
            self.prepare_work(step, &undo.work);
        }
    }

    fn prepare_work(&mut self, step: &Step, work: &WorkSpec) {
        let check = work.check.as_ref().map(|check| &check.worker);
        let summary = work.summary.as_ref().map(|summary| &summary.worker);
        for worker in [Some(&work.worker), check, summary].into_iter().flatten() {
            self.prepare_worker(step, worker);
        }
        let is_agent = |worker: &&WorkerSpec| matches!(worker, WorkerSpec::Agent { .. });
        if [Some(&work.worker), check].into_iter().flatten().any(|worker| is_agent(&worker)) {
            self.prepare_fallbacks(step);
        }
        self.prepare_servers(step, &work.worker);
        if let Err(error) = self.grants.check_folder(work.isolation.workspace.as_deref()) {
            self.problems.push(format!("`{}`: {error}", step.id));
        }
        self.check_workspace(step, work);
        let tool =
            self.found.find_resolution(&work.worker).and_then(|found| found.bound.as_ref()).map(|tool| tool.id.clone());
        for name in &work.isolation.secrets {
            self.prepare_secret(step, name, tool.as_deref());
        }
    }

    /// Checks the requirements of a worktree, or of a workspace that is restored.
    fn check_workspace(&mut self, step: &Step, work: &WorkSpec) {
        let worktree = work.isolation.worktree;
        if !worktree && !WorkspacePolicy::from_step(step).restores {
            return;
        }
        if !has_git() {
            self.problems.push(format!("`{}`: its workspace needs git, and `git` is not installed", step.id));
        }
        let folder = self.grants.open_folder(work.isolation.workspace.as_deref());
        let folder = folder.map_or_else(|_| self.grants.workspace().to_owned(), |root| root.path().to_owned());
        if worktree && !is_repository(&folder) {
            self.problems.push(format!(
                "`{}`: a worktree needs a git repository, and {} is not in one; `git init` creates one",
                step.id,
                folder.display()
            ));
        }
    }

    /// Prepares the agents that take over from the step's own agent.
    fn prepare_fallbacks(&mut self, step: &Step) {
        let names = fallback::named_agents(step);
        if names.len() > limits::AGENTS {
            self.problems.push(format!("`{}`: `agents` names more than {} agents", step.id, limits::AGENTS));
            return;
        }
        names.iter().for_each(|name| self.prepare_agent(step, fallback::parse_agent_reference(name)));
    }

    fn prepare_agent(&mut self, step: &Step, named: AgentReference<'_>) {
        let found = match (named.name, named.program) {
            (None, Some(program)) => self.resolve_program(program, AgentSettings::default()),
            (name, program) => self.resolve_agent(name.unwrap_or_default(), program),
        };
        match found {
            Ok(found) => drop(self.settings.agents.insert(named.settings_key(), found)),
            Err(why) => self.problems.push(format!("`{}`: {why}", step.id)),
        }
    }

    fn prepare_worker(&mut self, step: &Step, worker: &WorkerSpec) {
        match worker {
            WorkerSpec::Script { .. } | WorkerSpec::Command { .. } => {}
            WorkerSpec::Agent { name, program, .. } => {
                self.prepare_agent(step, AgentReference { name: name.as_deref(), program: program.as_deref() });
            }
            WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } => self.prepare_tool(step, worker),
        }
    }

    /// Resolves an agent by the name that the project has for it.
    fn resolve_agent(&mut self, name: &str, program: Option<&str>) -> Result<AgentSettings, UnusableReason> {
        let default = self.config.default_worker.as_deref();
        // A file defines the agent's instructions; only the configuration defines the program that runs it.
        let says_who = default.is_some() || self.config.agents.contains_key(name);
        let Some(agent) = agent_config::find_agent(name, self.project).filter(|_| says_who) else {
            let known = self.project.catalog_names(CatalogKind::Agent);
            let near = did_you_mean(name, known.iter().map(String::as_str));
            let near = near.map(|near| format!(" ({near})")).unwrap_or_default();
            return Err(format!("agent `{name}` is not configured{near}; add `[agents.{name}]` to skein.toml").into());
        };
        let found = AgentSettings {
            worker: None,
            command: agent.command,
            model: agent.model,
            capabilities: agent.capabilities,
            instructions: agent.instructions,
        };
        match program.or(agent.worker.as_deref()).or(default) {
            Some(CUSTOM) | None if !found.command.is_empty() => Ok(found),
            Some(CUSTOM) => Err(format!("`[agents.{name}]` has the worker CUSTOM, and needs a `command`").into()),
            Some(word) => self.resolve_program(word, AgentSettings { command: Vec::new(), ..found }),
            None => Err(format!(
                "`[agents.{name}]` in skein.toml has no worker; give it a `worker`, or give the \
                 project a `default_worker`"
            )
            .into()),
        }
    }

    /// Resolves a coding agent by its keyword. Its program must be installed.
    fn resolve_program(&mut self, word: &str, agent: AgentSettings) -> Result<AgentSettings, UnusableReason> {
        let adapter = agents::find_adapter(word).ok_or_else(|| {
            let known: Vec<&str> = agents::ALL.iter().map(|adapter| adapter.agent_name()).collect();
            format!("there is no coding agent `{word}`; there are {}", known.join(", "))
        })?;
        let own = self.config.workers.get(word).cloned().unwrap_or_default();
        let named = own.program.as_deref().unwrap_or(adapter.program());
        // A path is relative to the project; a name is looked up in PATH.
        let name = match named.contains('/') {
            true => self.settings.project.join(named).display().to_string(),
            false => named.to_owned(),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = process::find_program(OsStr::new(&name), &path, &[]);
        if self.settings.replay.is_none() {
            there.map_err(|error| {
                format!(
                    "{word} cannot be started: {error}; install it, or set its path in `[workers.{word}]` of skein.toml"
                )
            })?;
        }
        let program = AgentProgram {
            program: own.program.map(|_| name),
            arguments: own.arguments,
            env: own.env,
            inherit_config: own.inherit_config,
        };
        self.settings.programs.insert(word.to_owned(), program);
        Ok(AgentSettings { worker: Some(word.to_owned()), ..agent })
    }

    fn prepare_tool(&mut self, step: &Step, worker: &WorkerSpec) {
        let (Some(found), Some(key)) = (self.found.find_resolution(worker), ToolSettings::settings_key(worker)) else {
            return;
        };
        if let Some(tool) = &found.bound {
            tool.secrets.iter().for_each(|name| self.prepare_secret(step, name, Some(&tool.id)));
            if tool.function == Some(BuiltinFunction::Notify) {
                // The channel is a value that is known only at run time, so all of them are prepared.
                self.config.channels.keys().for_each(|name| self.prepare_channel(name));
            }
            self.settings.tools.insert(key, tool.clone());
        }
        if self.settings.replay.is_some() {
            return;
        }
        let refused = found.refused.as_ref();
        self.problems.extend(refused.map(|no| format!("`{}`: {} ({})", step.id, no.message, no.code)));
    }

    /// Prepares the MCP servers that the step uses, so that a missing server is reported before the run starts.
    fn prepare_servers(&mut self, step: &Step, worker: &WorkerSpec) {
        let WorkerSpec::Agent { tools, .. } = worker else { return };
        for name in tools.iter().filter_map(|tool| tool.strip_prefix(ToolServer::SORT)) {
            match mcp_servers::find_server(name, self.project, self.settings.replay.is_some()) {
                Ok(server) => {
                    server.required_secrets().for_each(|secret| self.prepare_secret(step, secret, None));
                    self.settings.surroundings.servers.insert(name.to_owned(), server);
                }
                Err(why) => self.problems.push(format!("`{}`: {why}", step.id)),
            }
        }
    }

    fn prepare_secret(&mut self, step: &Step, name: &str, tool: Option<&str>) {
        if self.settings.replay.is_some() {
            return;
        }
        let query = SecretQuery { secret: name, workflow: self.workflow, step: step.id.as_str(), tool };
        match self.access.authorize_secret(query) {
            Ok(handing) => self.settings.handing.extend(handing.map(|handing| (name.to_owned(), handing))),
            Err(refused) => {
                self.problems.push(refused.message());
                return self.refused.push(refused);
            }
        }
        match self.config.find_secret(name) {
            Some(from) => {
                let from = secret_source(from, &self.settings.project);
                self.settings.secrets.insert(name.to_owned(), from);
            }
            None => self
                .problems
                .push(format!("`{}`: there is no secret `{name}`; add it to `[secrets]` in skein.toml", step.id)),
        }
    }
}
