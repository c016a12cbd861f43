//! Work beside the steps of a run: publishes its context folder and output files, and runs its hooks.
//!
//! Owns the message about a run, a text for people and a complete body for programs, and its way to a program or a
//! channel. The result of a hook never changes the run.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use serde_json::{Value, json};
use skein_core::{
    engine::{EvaluatedHook, InstanceIx, Publication, RunState, evaluate_hook, format_utc},
    ids::RunId,
    ir::{HookTiming, RunStatus, Workflow},
    limits,
    plan::Plan,
    time::Millis,
};

use crate::{
    clock::Clock,
    executor::{
        ActiveWork, ExecutorContext, WorkKey,
        attempt::{
            collect::{describe_outcome, truncate_message},
            command::{self, to_plain_text},
            sandbox_setup::{self, HookGrant},
            spec::RunStateSnapshot,
        },
        programs::{self, ProgramError},
    },
    executor_api::{ActiveRun, PublicationReporter},
    notify::{self, ChannelMessage, ChannelUrl, NotifyChannel},
    process::{self, MarkedWork, ProcessMark, ProcessOutcome, ProcessSpec},
    run_settings::RunSettings,
    secret::SecretError,
    workspace::{
        ArtifactError, GivenFile, GivenOutcome, GrantError, PathTokens, RootFolder, RunDir, StagingError, has_files,
        root::FilePathError, with_root_parameter,
    },
};

/// The reason why something was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error(transparent)]
    Workspace(#[from] GrantError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Context(#[from] ArtifactError),
    #[error(transparent)]
    Files(#[from] StagingError),
    /// One reason for each missing file.
    #[error("{}", .0.join("; "))]
    MissingFiles(Vec<String>),
    #[error("the run has not begun")]
    NotBegun,
    #[error("this item is not published here")]
    NotPublished,
}

/// Writes a publication on a thread of its own, and reports its end.
pub(crate) fn publish_item(
    shared: &Arc<ExecutorContext>,
    running: ActiveRun<'_>,
    item: Publication,
    published: PublicationReporter,
) {
    let (shared, settings) = (Arc::clone(shared), Arc::clone(running.settings));
    let (run, snapshot) = (running.run.clone(), RunStateSnapshot::capture(running));
    let body = move || {
        let done = write_publication(&shared, &run, &settings, &snapshot, item);
        published.report(done.err().map(|error| error.to_string()));
    };
    // If no thread can be spawned, the reporter is dropped, which reports that the publication was not done.
    let _ = std::thread::Builder::new().name("publish".into()).spawn(body);
}

/// Returns an error that names the missing files. It is reported, and does not change the end of the run.
fn check_all_given(given: &[GivenFile]) -> Result<(), PublishError> {
    let why = |one: &GivenFile| match &one.end {
        Ok(GivenOutcome::Written(_)) => None,
        Ok(GivenOutcome::NotMade) => Some(format!("the run made no file `{}`", one.key)),
        Err(error) => Some(format!("`{}` cannot be put into the workspace: {error}", one.key)),
    };
    let missing: Vec<String> = given.iter().filter_map(why).collect();
    if missing.is_empty() { Ok(()) } else { Err(PublishError::MissingFiles(missing)) }
}

/// Stages the input files of a run that is started again from another.
pub(crate) fn stage_run_files(
    shared: &ExecutorContext,
    run: &RunId,
    plan: &Plan,
    settings: &RunSettings,
) -> Result<Plan, PublishError> {
    let workflow = &plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(plan.clone());
    }
    let workspace = settings.workspace_grants(shared.state.path())?.open_folder(None)?;
    let tokens = PathTokens { run: run.clone(), workflow: workflow.id.clone(), at: Clock::default().now() };
    let folder = shared.run_dir(run)?;
    folder.stage_files(&workspace, &workflow.files_in, &tokens)?;
    let root = RunDir::files_path(folder.path());
    Ok(plan.definition.plan_with_parameters(with_root_parameter(&plan.parameters, &root)))
}

/// Removes the files of a run that is over.
pub(crate) fn remove_run_files(shared: &Arc<ExecutorContext>, run: &RunId) -> Option<JoinHandle<()>> {
    let (shared, run) = (Arc::clone(shared), run.clone());
    let body = move || {
        // Remaining files are removed with the run.
        let _ = RunDir::open(&shared.state, &run).and_then(|folder| folder.remove_files());
    };
    std::thread::Builder::new().name("files".into()).spawn(body).ok()
}

fn write_publication(
    shared: &ExecutorContext,
    run: &RunId,
    settings: &RunSettings,
    snapshot: &RunStateSnapshot,
    item: Publication,
) -> Result<(), PublishError> {
    let run = &shared.run_dir(run)?;
    let workspace = settings.workspace_grants(shared.state.path())?.open_folder(None)?;
    let workflow = &snapshot.plan.definition.root().workflow;
    let Some(start) = &snapshot.state.start else { return Err(PublishError::NotBegun) };
    match item {
        Publication::Context => {
            let directory = settings.context_directory(&snapshot.plan).unwrap_or_default();
            shared.write_context_folder(&workspace, directory, &start.run, &snapshot.story(run))?;
            Ok(())
        }
        Publication::Files => {
            // Uses the start time of the run, so that a repetition after a crash writes to the same paths.
            let at = snapshot.state.instances.first().map_or(snapshot.state.now, |root| root.started);
            let tokens = PathTokens { run: start.run.clone(), workflow: workflow.id.clone(), at };
            check_all_given(&run.give_files(&workspace, &workflow.files_out, &tokens)?)
        }
        Publication::Hook(_) | Publication::Retry => Err(PublishError::NotPublished),
    }
}

/// The program that shows a desktop notification, and the variables that it needs to find the desktop.
const DESKTOP: &str = "notify-send";
const DESKTOP_NEEDS: [&str; 4] = ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// The reason why a hook was not run or a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("there is no such hook")]
    Unknown,
    #[error("{0}")]
    Evaluation(String),
    #[error(
        "no message was sent to `{channel}`: `[channels.{}]` is missing in skein.toml",
        channel.split(':').next().unwrap_or_default()
    )]
    NoChannel { channel: String },
    #[error("one of its arguments contains a NUL byte")]
    NulArgument,
    #[error("its command is empty")]
    EmptyCommand,
    #[error("this channel is notified through a program")]
    NeedsProgram,
    #[error("{0}")]
    Webhook(String),
    /// The program of a channel did not succeed.
    #[error("{0}")]
    Ended(String),
    #[error("{} cannot be written: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Workspace(#[from] GrantError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The data of a hook, copied out of the run when it starts.
struct HookSpec {
    run: RunId,
    number: u32,
    act: HookOperation,
    settings: Arc<RunSettings>,
    env: Arc<Value>,
}

enum HookOperation {
    Run { program: String, arguments: Vec<Value> },
    Notify(NotifyChannel, ChannelMessage),
}

/// A hook that is ready to be executed.
enum HookTask {
    /// A program, supervised like any other.
    Program(Box<ProcessSpec>),
    /// A message that is sent in process. It cannot be stopped, but ends soon by itself.
    Message(Box<(NotifyChannel, ChannelMessage)>),
}

/// Runs the hook with this number, and reports its end and the reason of a failure.
pub(crate) fn run_hook(
    shared: &Arc<ExecutorContext>,
    running: ActiveRun<'_>,
    number: u32,
    published: PublicationReporter,
) {
    let hook = match HookSpec::from_run(running, number) {
        Ok(hook) => hook,
        Err(why) => return published.report(Some(shared.redactor.redact_str(&why.to_string()))),
    };
    if hook.settings.replay.is_some() {
        // A replay starts no programs. The effects of a hook are not inputs of any step.
        return published.report(None);
    }
    let shared = Arc::clone(shared);
    let key = (hook.run.clone(), MarkedWork::Hook(number));
    shared.active_work().insert(key.clone(), ActiveWork::Ahead { stopped: false });
    let body = move || published.report(hook.run(&shared, &key).map(|why| shared.redactor.redact_str(&why)));
    // If no thread can be spawned, the reporter is dropped, which reports that the hook was not run.
    let _ = std::thread::Builder::new().name("hook".into()).spawn(body);
}

/// Sends a message over the network or to a file.
pub(crate) fn send_message(
    shared: &ExecutorContext,
    channel: &NotifyChannel,
    message: &ChannelMessage,
) -> Result<(), HookError> {
    let secret = |name: &String| -> Result<String, HookError> {
        let found = shared.secrets.select_named(std::slice::from_ref(name))?;
        Ok(found.first().map(|(_, secret)| secret.expose().to_owned()).unwrap_or_default())
    };
    let address = |url: &ChannelUrl| match url {
        ChannelUrl::Plain(url) => Ok(url.clone()),
        ChannelUrl::Secret(name) => secret(name),
    };
    let now = || Clock::new().now();
    match channel {
        NotifyChannel::Webhook { url, key, private } => {
            let (url, key) = (address(url)?, key.as_ref().map(secret).transpose()?);
            notify::send_webhook(&url, *private, key.as_deref(), (&message.id, &message.to_value()), now)
                .map_err(HookError::Webhook)
        }
        NotifyChannel::Slack { url, private } => {
            notify::send_webhook(&address(url)?, *private, None, (&message.id, &message.to_slack_value()), now)
                .map_err(HookError::Webhook)
        }
        NotifyChannel::File(path) => notify::append_line(path, &message.to_value())
            .map_err(|error| HookError::File { path: path.clone(), error }),
        NotifyChannel::Desktop | NotifyChannel::Command(_) => Err(HookError::NeedsProgram),
    }
}

impl HookSpec {
    fn from_run(running: ActiveRun<'_>, number: u32) -> Result<HookSpec, HookError> {
        let ActiveRun { run, plan, state, settings, .. } = running;
        let hooked = evaluate_hook(plan, state, number).ok_or(HookError::Unknown)?;
        let act = match hooked.map_err(|error| HookError::Evaluation(error.message))? {
            EvaluatedHook::Run { program, arguments } => HookOperation::Run { program, arguments },
            EvaluatedHook::Notify { channel, message } => {
                let Some(settings) = settings.surroundings.channels.get(&channel) else {
                    return Err(HookError::NoChannel { channel });
                };
                HookOperation::Notify(settings.clone(), build_hook_message(running, number, &channel, message.as_ref()))
            }
        };
        let env = state.home_instance(InstanceIx::ROOT).env.clone();
        Ok(HookSpec { run: run.clone(), number, act, settings: Arc::clone(settings), env })
    }

    /// Runs the program of the hook, or sends its message. Returns the reason of a failure.
    fn run(self, shared: &ExecutorContext, key: &WorkKey) -> Option<String> {
        let (channel, message) = match self.prepare(shared) {
            Ok(HookTask::Program(task)) => {
                let ended = process::run_process(*task, |handle| shared.attach_process(key, handle));
                shared.remove_work(key);
                return (ended.how != ProcessOutcome::Exited(0)).then(|| truncate_message(describe_outcome(&ended)));
            }
            Ok(HookTask::Message(message)) => *message,
            Err(why) => {
                shared.remove_work(key);
                return Some(why.to_string());
            }
        };
        // The host may end meanwhile: the host that resumes the run sends the message again.
        shared.remove_work(key);
        send_message(shared, &channel, &message).err().map(|why| truncate_message(why.to_string()))
    }

    fn prepare(self, shared: &ExecutorContext) -> Result<HookTask, HookError> {
        let program = match &self.act {
            HookOperation::Run { program, arguments } => HookProgram {
                program: resolve_program(&self.settings, program),
                arguments: arguments.iter().map(to_plain_text).collect(),
                stdin: Arc::from([]),
                environment: Vec::new(),
                limit: limits::HOOK,
                grant: HookGrant::Workspace,
            },
            HookOperation::Notify(channel, message) => {
                // The message may leave the machine.
                let message = redact_message(shared, message);
                match find_channel_program(&self.settings, channel, &message) {
                    Some(program) => program?,
                    None => return Ok(HookTask::Message(Box::new((channel.clone(), message)))),
                }
            }
        };
        self.build_task(shared, program).map(|task| HookTask::Program(Box::new(task)))
    }

    fn build_task(&self, shared: &ExecutorContext, words: HookProgram) -> Result<ProcessSpec, HookError> {
        if words.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(HookError::NulArgument);
        }
        let settings = &self.settings;
        let folder = settings.workspace_grants(shared.state.path())?.open_folder(None)?;
        let run = shared.run_dir(&self.run)?;
        let log = run.hook_folder(self.number)?.path().join("log");
        let mark = shared.process_mark(&self.run, MarkedWork::Hook(self.number));
        let grant = words.grant;
        let mut task = words.into_task(folder.path(), log, mark);
        let mut environment = command::base_environment(settings, &self.env);
        environment.push(("SKEIN_RUN_ID".into(), self.run.as_str().into()));
        environment.append(&mut task.environment);
        task.environment = environment;
        task.filter = shared.redaction_filter();
        sandbox_hook(shared, settings, &run, (grant, &folder), &mut task)?;
        Ok(task)
    }
}

/// Puts the program of a hook or a channel into its sandbox. The program must be unchanged since the run began.
pub(crate) fn sandbox_hook(
    shared: &ExecutorContext,
    settings: &RunSettings,
    run: &RunDir,
    (grant, folder): (HookGrant, &RootFolder),
    task: &mut ProcessSpec,
) -> Result<(), HookError> {
    let words: Vec<OsString> =
        [task.program.clone().into_os_string()].into_iter().chain(task.arguments.clone()).collect();
    let covers = settings.check_pinned(run, &words, folder.path())?;
    task.sandbox = sandbox_setup::build_hook_sandbox(shared, settings, grant, task, folder)?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox.spec.covers = covers;
    }
    Ok(())
}

/// A program that is run for a hook or a channel.
pub(crate) struct HookProgram {
    program: PathBuf,
    arguments: Vec<String>,
    stdin: Arc<[u8]>,
    environment: command::WorkerEnvironment,
    limit: u64,
    pub grant: HookGrant,
}

impl HookProgram {
    /// Builds the task, with its own variables only.
    pub(super) fn into_task(self, folder: &Path, log: PathBuf, mark: ProcessMark) -> ProcessSpec {
        let mut task = ProcessSpec::new(self.program, folder, log, mark);
        task.arguments = self.arguments.into_iter().map(Into::into).collect();
        task.stdin = self.stdin;
        task.environment = self.environment;
        task.limit = Some(Millis(self.limit));
        task
    }
}

/// The program that sends a message to a channel. `None` if the channel needs no program.
pub(crate) fn find_channel_program(
    settings: &RunSettings,
    channel: &NotifyChannel,
    message: &ChannelMessage,
) -> Option<Result<HookProgram, HookError>> {
    let id = ("SKEIN_MESSAGE_ID".into(), message.id.clone().into());
    let words = |program, arguments, stdin, more: command::WorkerEnvironment| {
        let environment = [id].into_iter().chain(more).collect();
        let grant = match channel {
            NotifyChannel::Desktop => HookGrant::Desktop,
            _ => HookGrant::Workspace,
        };
        HookProgram { program, arguments, stdin, environment, limit: limits::NOTIFY, grant }
    };
    match channel {
        NotifyChannel::Command(command) => Some(match command.split_first() {
            Some((program, rest)) => {
                let stdin = format!("{}\n", message.to_value()).into_bytes().into();
                Ok(words(resolve_program(settings, program), rest.to_vec(), stdin, Vec::new()))
            }
            None => Err(HookError::EmptyCommand),
        }),
        NotifyChannel::Desktop => {
            let arguments = ["--app-name=Skein", "--", &message.title, &message.text].map(str::to_owned).to_vec();
            let needs = DESKTOP_NEEDS.iter();
            let needs = needs.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
            let program = programs::find_program(DESKTOP).map_err(HookError::from);
            Some(program.map(|program| words(program, arguments, Arc::from([]), needs.collect())))
        }
        NotifyChannel::Webhook { .. } | NotifyChannel::Slack { .. } | NotifyChannel::File(_) => None,
    }
}

pub(crate) fn redact_message(shared: &ExecutorContext, message: &ChannelMessage) -> ChannelMessage {
    ChannelMessage {
        id: message.id.clone(),
        title: shared.redactor.redact_str(&message.title),
        text: shared.redactor.redact_str(&message.text),
        target: message.target.clone(),
        body: shared.redactor.redact_value(&message.body),
    }
}

/// Resolves a path relative to the project; a bare name is looked up in `PATH`.
fn resolve_program(settings: &RunSettings, program: &str) -> PathBuf {
    match program.contains('/') {
        true => settings.project.join(program),
        false => PathBuf::from(program),
    }
}

/// Builds the message of a hook. The workflow may define its text.
pub(super) fn build_hook_message(
    running: ActiveRun<'_>,
    number: u32,
    channel: &str,
    text: Option<&Value>,
) -> ChannelMessage {
    let ActiveRun { run, plan, state, .. } = running;
    let workflow = &plan.definition.root().workflow;
    let when = usize::try_from(number).ok().and_then(|number| workflow.hooks.get(number));
    let (status, event) = match when.map(|hook| hook.when) {
        Some(HookTiming::Start) | None => (RunStatus::Running, "start"),
        Some(HookTiming::Success) => (end_status(state), "complete"),
        Some(HookTiming::Failure) => (end_status(state), "failure"),
    };
    let name = workflow.name.as_deref().unwrap_or(workflow.id.as_str());
    let error = state.end.as_ref().and_then(|end| end.error.as_ref()).map(|error| error.message.as_str());
    let usual = || default_text(status, run.as_str(), error);
    ChannelMessage {
        id: format!("{run}.hook.{number}"),
        title: format!("{name} {}", status_phrase(status)),
        text: text.map_or_else(usual, to_plain_text),
        target: channel.split_once(':').map(|(_, target)| target.to_owned()),
        body: build_body(running, workflow, (event, status), error),
    }
}

fn build_body(
    running: ActiveRun<'_>,
    workflow: &Workflow,
    (event, status): (&str, RunStatus),
    error: Option<&str>,
) -> Value {
    let state = running.state;
    let begun = state.instances.first().map(|root| root.started);
    json!({
        "event": event,
        "run_id": running.run.as_str(),
        "workflow": {"id": workflow.id.as_str(), "name": workflow.name, "version": workflow.version},
        "status": status.as_str(),
        "native_status": workflow.words.run_word(status),
        "started_at": begun.map(format_utc),
        "finished_at": state.end.as_ref().map(|end| format_utc(end.at)),
        "error": error,
    })
}

fn end_status(state: &RunState) -> RunStatus {
    state.end.as_ref().map_or(RunStatus::Running, |end| end.status)
}

fn status_phrase(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running | RunStatus::Queued | RunStatus::Waiting => "started",
        RunStatus::Succeeded => "succeeded",
        RunStatus::TimedOut => "timed out",
        RunStatus::Undone => "failed and was undone",
        RunStatus::UndoFailed => "failed and could not be undone",
        RunStatus::Cancelled => "was cancelled",
        RunStatus::Failed | RunStatus::Undoing => "failed",
    }
}

fn default_text(status: RunStatus, run: &str, error: Option<&str>) -> String {
    match error.filter(|_| status != RunStatus::Succeeded) {
        Some(error) => format!("Run {run}: {error}"),
        None => format!("Run {run}"),
    }
}
