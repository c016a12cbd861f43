//! The coding agent of an attempt: finds and configures it, reads its stream, and judges its end.
//!
//! Owns the link between an attempt and its agent: the session to resume, permissions and budgets, and the meaning of
//! the agent's end for the attempt. Everything that differs between agents is in [`super`]. Each adapter turns the
//! permissions into its own flags; the agent itself enforces them, and the sandbox of the system is not decided here.
//! Their measured effect:
//!
//! | | Claude Code | Codex | OpenCode |
//! |---|---|---|---|
//! | READ | no tool that writes outside of the permitted places | sandbox: nothing is written, no network, any command | as Claude Code |
//! | EDIT | writes below its folder only | sandbox: writes below its folder; commands are not distinguished | writes below its folder only |
//! | RUN_TESTS | the named commands, exactly | any command, in the sandbox | the named commands, exactly |
//! | RUN_COMMANDS | any command, limited only by the sandbox | any command, in the sandbox | any command, limited only by the sandbox |

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use skein_core::{
    engine::{AttemptEnd, Cost, code},
    ids::format_uuid_v4,
    ir::{ErrorClass, HoldReason, WorkerCapability, WorkerSpec},
    limits,
    time::{Millis, Timestamp},
};

use crate::{
    clock::Clock,
    executor::{
        ExecutorContext,
        agents::{
            self, AgentAdapter, AgentAnswer, AgentFailure, AgentHalt, AgentHome, AgentNote, AgentRequest, AgentSession,
            AgentStream, AgentStreamConfig, CostMeter, LoginLink, RemainingBudget, fallback,
            home::{AgentAccount, SessionCarryover},
            prompt::{self, PromptContext},
        },
        attempt::{
            AttemptContext, StageError,
            collect::truncate_message,
            non_retryable, sandbox_setup,
            spec::{AttemptSpec, takes_default_model},
        },
    },
    process::{self, CommandDeadline, ExceededLimit, MarkedWork, ProcessOutcome, ProcessReport, ProcessSpec},
    run_settings::{AgentProgram, AgentSettings},
    sandbox::SandboxEnforcement,
    secret::SecretValue,
    system,
    workspace::RootFolder,
};

/// A coding agent that works on an attempt.
pub(crate) struct AgentLaunch {
    adapter: &'static dyn AgentAdapter,
    stream: AgentStream,
    home: AgentHome,
    login: LoginLink,
    account: AgentAccount,
    /// The state folder, which is shared with other hosts.
    state: RootFolder,
}

/// The credentials that the host passes to agents. They are redacted from all output.
pub(crate) fn host_credentials() -> Vec<SecretValue> {
    let names = agents::ALL.iter().flat_map(|adapter| adapter.credential_variables());
    let names = names.filter(|name| !name.ends_with("_URL"));
    names.filter_map(|name| SecretValue::new(&std::env::var(name).ok()?).ok()).collect()
}

/// Finds the coding agent of an attempt and adapts the task to it. Returns `None` if another kind of worker does it.
pub(crate) fn prepare_agent_launch(
    context: PromptContext<'_>,
    task: &mut ProcessSpec,
) -> Result<Option<AgentLaunch>, StageError> {
    let attempt = context.attempt;
    let AttemptContext { shared, job, .. } = attempt;
    let Some(agent) = job.agent() else { return Ok(None) };
    let Some(word) = agent.worker.as_deref() else { return Ok(None) };
    let adapter = agents::find_adapter(word).ok_or_else(|| non_retryable(format!("unknown coding agent `{word}`")))?;
    if let Some(path) = adapter.find_overriding_config(context.workspace.folder.path()) {
        return Err(non_retryable(format!(
            "{word} loads {} from the repository it works on and runs the commands in it; remove that file, or use \
             another agent",
            path.display()
        )));
    }
    let usual = AgentProgram::default();
    let program = job.settings.programs.get(word).unwrap_or(&usual);
    let given = agent_variables(adapter, program);
    let account = AgentAccount::from_variables(word, &given);
    let now = Clock::new().now();
    if let Some(until) = account.limited_until(&shared.state, now).filter(|_| !job.agent_task.quota_released) {
        let end = match job.agent_task.fallback.has_alternatives() {
            true => fallback::handle_account_limit(attempt, until),
            false => job
                .agent_task
                .waits_for_quota
                .then(|| blocked_by_quota(account.reserve_turn(&shared.state, now).unwrap_or(until))),
        };
        if let Some(end) = end {
            return Err(end.into());
        }
    }
    let login = adapter.login_link();
    let home = open_home(attempt, adapter, program, &login)?;
    let sandbox = shared.sandbox_enforcement() != Some(SandboxEnforcement::WritesOnly);
    let builder = AgentTaskBuilder { job, agent, adapter, program, home: &home, context, sandbox };
    let before = SessionCarryover::load(attempt, adapter, &home);
    // A session id that no other session has.
    let fresh = format_uuid_v4(system::random_bytes());
    builder.fit_task(task, &before, &fresh, given)?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox_setup::grant_agent_places(&mut sandbox.spec, &home, adapter, &task.program)?;
        let servers = job.tool_servers();
        let servers = servers.iter().filter_map(|(_, server)| server.command.first());
        for program in servers.map(Path::new).chain([task.program.as_path()]) {
            sandbox_setup::show_programs(&mut sandbox.spec, program, &task.environment)?;
        }
    }
    let stream = builder.open_stream(before, fresh, &task.command)?;
    attach_stream(shared, task, &stream);
    Ok(Some(AgentLaunch { adapter, stream, home, login, account, state: shared.state.clone() }))
}

/// The account that a coding agent uses here. `None` for an agent that is a program of the project.
pub(crate) fn find_account(job: &AttemptSpec, agent: &AgentSettings) -> Option<AgentAccount> {
    let (adapter, usual) = (agents::find_adapter(agent.worker.as_deref()?)?, AgentProgram::default());
    let program = job.settings.programs.get(adapter.agent_name()).unwrap_or(&usual);
    Some(AgentAccount::from_variables(adapter.agent_name(), &agent_variables(adapter, program)))
}

/// Opens the agent's own home folder, or the user's home if the agent inherits the user's configuration.
fn open_home(
    AttemptContext { job, run, .. }: &AttemptContext,
    adapter: &dyn AgentAdapter,
    program: &AgentProgram,
    login: &LoginLink,
) -> Result<AgentHome, StageError> {
    if program.inherit_config {
        return Ok(AgentHome::user_home());
    }
    let place = run.agent_home(job.attempt.at, adapter.agent_name()).map_err(non_retryable)?;
    AgentHome::open(place.path(), login)
        .map_err(|error| non_retryable(format!("cannot create the agent's home folder: {error}")))
}

/// Builds the task of an agent that was found but not started.
struct AgentTaskBuilder<'a> {
    job: &'a AttemptSpec,
    agent: &'a AgentSettings,
    adapter: &'static dyn AgentAdapter,
    program: &'a AgentProgram,
    home: &'a AgentHome,
    context: PromptContext<'a>,
    /// True if the agent can use a sandbox of its own.
    sandbox: bool,
}

impl AgentTaskBuilder<'_> {
    /// Adapts the task to this agent. A new session gets the id `fresh`.
    fn fit_task(
        &self,
        task: &mut ProcessSpec,
        before: &SessionCarryover,
        fresh: &str,
        given: Vec<(OsString, OsString)>,
    ) -> Result<(), StageError> {
        let may = self.permissions();
        if !may.network && !self.adapter.blocks_network(&may) {
            let word = self.adapter.agent_name();
            return Err(non_retryable(format!("network access of the commands of {word} cannot be blocked")));
        }
        if let Some((name, _)) = self.job.tool_servers().first().filter(|_| !may.network) {
            return Err(non_retryable(format!("network access of the agent's tool server `{name}` cannot be blocked")));
        }
        let schema = self.job.outputs.document().filter(|schema| schema["type"] == "object");
        let call = self.adapter.build_invocation(&AgentRequest {
            model: self.model(),
            may: &may,
            session: before.session.as_deref().map_or(AgentSession::New(fresh), AgentSession::Resume),
            schema,
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            servers: &self.job.tool_servers(),
            micro_usd: self.job.agent_task.budgets.iter().filter_map(|left| left.micro_usd).min(),
            home: self.home,
            folder: self.context.workspace.folder.path(),
            files: self.context.attempt.files.root().path(),
            arguments: &self.program.arguments,
        });
        for (path, bytes) in &call.files {
            write_config_file(path, bytes)
                .map_err(|error| non_retryable(format!("{} cannot be written: {error}", path.display())))?;
        }
        let (goes_on, answers) = (before.session.is_some(), self.adapter.answer_is_output(&may, schema));
        let prompt = prompt::build_prompt(self.agent, PromptContext { goes_on, answers, ..self.context });
        task.stdin = prompt.into_bytes().into();
        task.arguments = call.arguments;
        // The project's variables come last, so they take precedence.
        task.environment.extend(call.environment.into_iter().chain(given));
        task.program = find_agent_program(self.adapter, self.program, task).into();
        // The agent may print nothing until its tool servers are ready.
        let servers = self.job.tool_servers().iter().map(|(_, server)| server.start_timeout().0).max();
        task.start = task.start.or(Some(Millis(limits::AGENT_START + servers.unwrap_or_default())));
        task.idle = task.idle.or(Some(Millis(limits::AGENT_IDLE)));
        Ok(())
    }

    /// Opens the reader of the agent's stream. The session id is on disk before the agent starts.
    fn open_stream(
        &self,
        before: SessionCarryover,
        fresh: String,
        due: &CommandDeadline,
    ) -> Result<AgentStream, StageError> {
        let files = &self.context.attempt.files;
        let note = AgentNote {
            worker: self.adapter.agent_name().to_owned(),
            session: before.session.or_else(|| self.adapter.accepts_session_id().then_some(fresh)),
            model: self.model().map(str::to_owned),
            cost: before.carried,
            total: before.total,
            goes_on: false,
        };
        note.write(files.root()).map_err(non_retryable)?;
        let price = self.model().and_then(|model| self.job.settings.prices.get(model)).copied();
        Ok(AgentStream::new(AgentStreamConfig {
            reader: self.adapter.new_reader(self.home, &self.job.tool_servers()),
            meter: CostMeter::new(before.carried, before.total, price, self.job.agent_task.budgets.clone()),
            note,
            folder: files.root().clone(),
            events: File::create(files.events_path()).ok(),
            max_turns: max_turns(self.job),
            command_time: command_time(self.job),
            due: due.clone(),
            stop: stop_callback(self.context.attempt),
        }))
    }

    fn permissions(&self) -> AgentPermissions {
        let job = self.job;
        let tests = job.agent_task.tests.as_ref().unwrap_or(&job.settings.test_commands);
        AgentPermissions {
            network: !job.isolation.no_network,
            back: self.context.attempt.files.output_path().parent().map(Into::into).unwrap_or_default(),
            folder: self.context.workspace.folder.path().to_owned(),
            files: job.own_files().filter(|_| !job.writes_in_attempt_folder()).map(str::to_owned).collect(),
            sandbox: self.sandbox,
            ..AgentPermissions::from_capabilities(job.capabilities(), tests)
        }
    }

    fn model(&self) -> Option<&str> {
        let WorkerSpec::Agent { model, .. } = &self.job.worker else { return None };
        // The step's own model applies only to its own agent, not to a substitute.
        let own = model.as_deref().filter(|_| self.job.agent_task.fallback.current_substitute().is_none());
        let usual =
            || self.job.agent_task.default_model.as_deref().filter(|_| takes_default_model(self.adapter.agent_name()));
        own.or(self.agent.model.as_deref()).or_else(usual)
    }
}

fn write_config_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)?;
    // Scripts must be executable.
    let mode = if bytes.starts_with(b"#!") { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The agent's additional variables: credentials that the host passes, and variables that the project sets.
fn agent_variables(adapter: &dyn AgentAdapter, program: &AgentProgram) -> Vec<(OsString, OsString)> {
    let lent = adapter.credential_variables().iter().filter(|name| !program.env.contains_key(**name));
    let lent = lent.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    lent.chain(program.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

fn max_turns(job: &AttemptSpec) -> Option<u32> {
    let WorkerSpec::Agent { max_turns, .. } = &job.worker else { return None };
    *max_turns
}

fn command_time(job: &AttemptSpec) -> Option<Millis> {
    let WorkerSpec::Agent { command_timeout, .. } = &job.worker else { return None };
    *command_timeout
}

/// Resolves the path of the program. An unresolved name is looked up again at start, which reports the error.
fn find_agent_program(adapter: &dyn AgentAdapter, program: &AgentProgram, task: &ProcessSpec) -> OsString {
    let name = OsString::from(program.program.as_deref().unwrap_or(adapter.program()));
    let path = task.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    match process::find_program(&name, &path, std::slice::from_ref(&task.directory)) {
        Ok(found) => adapter.find_native_program(found).into_os_string(),
        Err(_) => name,
    }
}

/// Returns a callback that stops the attempt's program, once it has one.
fn stop_callback(AttemptContext { shared, job, .. }: &AttemptContext) -> Box<dyn Fn() + Send> {
    let (shared, key) = (Arc::downgrade(shared), (job.run.clone(), MarkedWork::Attempt(job.attempt)));
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.stop_work(&key);
        }
    })
}

/// Attaches the agent's stream to both stdout and stderr.
fn attach_stream(shared: &ExecutorContext, task: &mut ProcessSpec, stream: &AgentStream) {
    let (stream, redactor) = (stream.clone(), shared.redactor.new_stream());
    // The first filter that is created is the one for stdout.
    let first = AtomicBool::new(true);
    task.filter = Some(Arc::new(move || match first.swap(false, Ordering::SeqCst) {
        true => stream.output_filter(redactor.new_stream()),
        false => stream.error_filter(redactor.new_stream()),
    }));
}

/// The end of an attempt whose account is rate-limited until then.
fn blocked_by_quota(until: Timestamp) -> AttemptEnd {
    let message = "the agent's account has reached its limit".to_owned();
    AttemptEnd::Blocked { reason: HoldReason::Quota, until: Some(until), message }
}

impl AgentLaunch {
    pub(crate) fn cost(&self) -> Cost {
        self.stream.cost()
    }

    /// Returns the agent's answer, or the end that it caused. `Err(None)` means that the rules for any program apply.
    pub(crate) fn judge(&self, ended: &ProcessReport, job: &AttemptSpec) -> Result<AgentAnswer, Option<AttemptEnd>> {
        // If the login cannot be restored now, it stays in the home and is restored the next time.
        let _ = self.home.restore_login(&self.login);
        let result = match (self.stream.halt_reason(), &ended.how) {
            (Some(AgentHalt::Budget(left)), _) => return Err(Some(self.end_over_budget(&left))),
            (Some(AgentHalt::Failed(failure)), _) => Err(failure),
            (None, ProcessOutcome::Exited(status)) => self.stream.final_result(*status, &ended.tail),
            (None, how) => {
                // The agent hung. The content of its session is not the cause, so the session can be resumed.
                self.stream.close(
                    matches!(how, ProcessOutcome::TimedOut(ExceededLimit::Silence(_) | ExceededLimit::Command(_))),
                    false,
                );
                return Err(None);
            }
        };
        match result {
            Ok(done) => {
                self.stream.close(false, false);
                if job.agent_task.quota_released {
                    self.account.forget_limit(&self.state);
                }
                Ok(done)
            }
            Err(failure) => {
                let left =
                    job.agent_task.budgets.iter().find(|left| failure.is_budget_exceeded() && left.micro_usd.is_some());
                Err(Some(match left {
                    Some(left) => self.end_over_budget(left),
                    None => self.end_after_failure(failure, job),
                }))
            }
        }
    }

    /// Ends the attempt because a budget is exceeded: holds the step for a person, or fails it.
    fn end_over_budget(&self, left: &RemainingBudget) -> AttemptEnd {
        self.stream.close(left.pause, false);
        let message = format!("{} budget is spent", left.whose);
        match left.pause {
            true => AttemptEnd::Blocked { reason: HoldReason::Budget, until: None, message },
            false => AttemptEnd::Failed {
                class: ErrorClass::NonRetryable,
                code: Some(code::BUDGET.to_owned()),
                message,
                retry_at: None,
            },
        }
    }

    fn end_after_failure(&self, failure: AgentFailure, job: &AttemptSpec) -> AttemptEnd {
        self.stream.close(failure.goes_on, failure.lost);
        if failure.lost {
            // The session is lost, so the attempt counts as interrupted.
            return AttemptEnd::Interrupted;
        }
        let until = match failure.class {
            ErrorClass::RateLimit => self.record_limit(failure.until, job),
            _ => None,
        };
        AttemptEnd::Failed {
            class: failure.class,
            code: failure.code.map(str::to_owned),
            message: truncate_message(format!("{}: {}", self.adapter.agent_name(), failure.message)),
            retry_at: until,
        }
    }

    /// Records the limit for everyone who uses the same account. If the step does not wait for quotas, the attempt is
    /// still retried after the limit if that is soon.
    fn record_limit(&self, until: Option<Timestamp>, job: &AttemptSpec) -> Option<Timestamp> {
        let now = Clock::new().now();
        let waits = job.agent_task.waits_for_quota || job.agent_task.fallback.has_alternatives();
        let until = until.or_else(|| waits.then(|| now.saturating_add(Millis(limits::ACCOUNT_WAIT))))?;
        let turn = self.account.record_limit(&self.state, until, now);
        (waits || until.duration_since(now) <= Millis(limits::ACCOUNT_SOON)).then_some(turn)
    }
}
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPermissions {
    pub edit: bool,
    pub run: CommandPermission,
    pub network: bool,
    /// The working directory.
    pub folder: PathBuf,
    /// The paths that are always writable: Skein's folder for the attempt's results, and files by their names.
    pub back: PathBuf,
    pub files: Vec<String>,
    /// True if the agent can build a sandbox of its own around its commands.
    pub sandbox: bool,
}

/// The commands that an agent may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CommandPermission {
    #[default]
    Nothing,
    /// Exactly these.
    These(Vec<Vec<String>>),
    Anything,
}

impl AgentPermissions {
    /// True if neither the agent nor its commands can change anything.
    pub(crate) fn is_read_only(&self) -> bool {
        !self.edit && self.run == CommandPermission::Nothing
    }

    /// Returns the permissions for these capabilities. An agent without capabilities reads and edits. If no test
    /// commands are named, any command may be one.
    pub fn from_capabilities(capabilities: &[WorkerCapability], tests: &[Vec<String>]) -> AgentPermissions {
        let has = |capability| capabilities.contains(&capability);
        let run = match (has(WorkerCapability::RunCommands), has(WorkerCapability::RunTests), tests) {
            (true, _, _) | (_, true, []) => CommandPermission::Anything,
            (_, true, tests) => CommandPermission::These(tests.to_vec()),
            _ => CommandPermission::Nothing,
        };
        AgentPermissions {
            edit: capabilities.is_empty() || has(WorkerCapability::Edit),
            run,
            network: true,
            sandbox: true,
            ..AgentPermissions::default()
        }
    }
}

/// Describes the limits that an agent's own flags set. Returns `None` if the name is not that of an agent.
pub fn describe_limits(word: &str, may: &AgentPermissions) -> Option<String> {
    let sandboxed = crate::executor::agents::find_adapter(word)?.is_sandboxed();
    let writes = match (may.edit, sandboxed) {
        (false, true) if may.is_read_only() => "its sandbox writes nothing",
        (_, true) => "its sandbox writes below its folder",
        (true, false) => "it writes below its folder",
        (false, false) => "it writes only its results",
    };
    let runs = match (&may.run, sandboxed) {
        (CommandPermission::Nothing, false) => "runs nothing".to_owned(),
        (CommandPermission::These(commands), false) => {
            let commands: Vec<String> = commands.iter().map(|words| format!("`{}`", quote_command(words))).collect();
            format!("runs {}", commands.join(", "))
        }
        (CommandPermission::Anything, false) => "runs any command".to_owned(),
        (_, true) => "runs any command in it".to_owned(),
    };
    Some(format!("{writes} and {runs}"))
}

/// Formats a command as one line of a shell.
pub(crate) fn quote_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Builds permissions for the tests of the adapters.
#[cfg(test)]
pub(crate) fn test_permissions(capabilities: &[WorkerCapability], tests: &[&[&str]]) -> AgentPermissions {
    let tests: Vec<Vec<String>> =
        tests.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
    AgentPermissions {
        back: "/s/runs/r/attempts/a/back".into(),
        ..AgentPermissions::from_capabilities(capabilities, &tests)
    }
}

#[cfg(test)]
mod permissions_tests {
    use super::*;

    #[test]
    fn commands_are_named_or_any() {
        let both = [WorkerCapability::Read, WorkerCapability::RunTests];
        assert!(!test_permissions(&both, &[&["cargo", "test"]]).edit && test_permissions(&[], &[]).edit);
        assert_eq!(test_permissions(&both, &[]).run, CommandPermission::Anything);
        assert_eq!(test_permissions(&[WorkerCapability::RunCommands], &[&["x"]]).run, CommandPermission::Anything);
        assert_eq!(quote_command(&["sh".to_owned(), "-c".to_owned(), "a b".to_owned()]), "sh -c 'a b'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_random_uuids() {
        let (one, two) = (format_uuid_v4(system::random_bytes()), format_uuid_v4(system::random_bytes()));
        assert_ne!(one, two);
        assert_eq!((one.len(), one.as_bytes()[14]), (36, b'4'));
        assert!("89ab".contains(char::from(one.as_bytes()[19])), "{one}");
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
