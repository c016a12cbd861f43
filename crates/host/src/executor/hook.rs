//! Hooks: run a program or send a message when a run begins or ends. Their result never changes the run.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use skein_core::{
    engine::{EvaluatedHook, InstanceIx, evaluate_hook},
    ids::RunId,
    limits,
    time::Millis,
};

use super::{
    ActiveWork, ExecutorContext, environment, hook_message,
    run_settings::RunSettings,
    sandbox_setup::{self, HookGrant},
    trusted_programs,
    worker_command::to_plain_text,
    worker_output::truncate_message,
};
use crate::{
    clock::Clock,
    executor_api::{ActiveRun, PublicationReporter},
    notify::{self, ChannelMessage, ChannelUrl, NotifyChannel},
    process::{self, MarkedWork, ProcessMark, ProcessOutcome, ProcessReport, ProcessSpec},
    workspace::RootFolder,
};

/// The program that shows a desktop notification, and the variables that it needs to find the desktop.
const DESKTOP: &str = "notify-send";
const DESKTOP_NEEDS: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// The data of a hook, copied out of the run when it starts.
struct HookSpec {
    run: RunId,
    number: u32,
    act: HookOperation,
    about: RunSettings,
    env: Arc<Value>,
}

enum HookOperation {
    Run { program: String, arguments: Vec<Value> },
    Tell(NotifyChannel, ChannelMessage),
}

/// A hook that is ready to be executed.
enum PreparedHook {
    /// A program, supervised like any other.
    Start(Box<ProcessSpec>),
    /// A message that is sent in process. It cannot be stopped, but ends soon by itself.
    Say(Box<(NotifyChannel, ChannelMessage)>),
}

/// Runs the hook with this number, and reports its end and the reason of a failure.
pub(super) fn run_hook(
    shared: &Arc<ExecutorContext>,
    running: ActiveRun<'_>,
    number: u32,
    published: PublicationReporter,
) {
    let hook = match HookSpec::from_run(running, number) {
        Ok(hook) => hook,
        Err(why) => return published.report(Some(shared.redactor.redact_str(&why))),
    };
    if hook.about.replay.is_some() {
        // A replay starts no programs. The effects of a hook are not inputs of any step.
        return published.report(None);
    }
    let shared = Arc::clone(shared);
    let key = (hook.run.clone(), MarkedWork::Hook(number));
    shared.active_work().insert(key.clone(), ActiveWork::Ahead { stopped: false });
    let body = move || {
        let task = match hook.prepare(&shared) {
            Ok(PreparedHook::Start(task)) => *task,
            Ok(PreparedHook::Say(said)) => {
                // The host may end meanwhile: the host that resumes the run sends the message again.
                shared.remove_work(&key);
                let said = send_message(&shared, &said.0, &said.1);
                return published
                    .report(said.err().map(|why| shared.redactor.redact_str(&truncate_message(why))));
            }
            Err(why) => {
                shared.remove_work(&key);
                return published.report(Some(why));
            }
        };
        let ended = process::run_process(task, |handle| shared.attach_process(&key, handle));
        shared.remove_work(&key);
        published.report(failure_message(&ended).map(|why| shared.redactor.redact_str(&why)));
    };
    // If no thread can be spawned, the reporter is dropped, which reports that the hook was not run.
    let _ = std::thread::Builder::new().name("hook".into()).spawn(body);
}

/// Sends a message over the network or to a file.
pub(super) fn send_message(
    shared: &ExecutorContext,
    channel: &NotifyChannel,
    message: &ChannelMessage,
) -> Result<(), String> {
    let secret = |name: &String| -> Result<String, String> {
        let found =
            shared.secrets.select_named(std::slice::from_ref(name)).map_err(|error| error.to_string())?;
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
        }
        NotifyChannel::Slack { url, private } => notify::send_webhook(
            &address(url)?,
            *private,
            None,
            (&message.id, &message.to_slack_value()),
            now,
        ),
        NotifyChannel::File(path) => notify::append_line(path, &message.to_value())
            .map_err(|error| format!("{} cannot be written: {error}", path.display())),
        NotifyChannel::Desktop | NotifyChannel::Command(_) => {
            Err("this channel is notified through a program".to_owned())
        }
    }
}

impl HookSpec {
    fn from_run(running: ActiveRun<'_>, number: u32) -> Result<HookSpec, String> {
        let ActiveRun { run, plan, state, about, .. } = running;
        let hooked = evaluate_hook(plan, state, number).ok_or("there is no such hook")?;
        let about = RunSettings::from_json(about)?;
        let act = match hooked.map_err(|error| error.message)? {
            EvaluatedHook::Run { program, arguments } => HookOperation::Run { program, arguments },
            EvaluatedHook::Notify { channel, message } => {
                let Some(told) = about.surroundings.channels.get(&channel) else {
                    let name = channel.split(':').next().unwrap_or_default();
                    return Err(format!(
                        "no message was sent to `{channel}`: `[channels.{name}]` is missing in skein.toml"
                    ));
                };
                HookOperation::Tell(
                    told.clone(),
                    hook_message::build_hook_message(running, number, &channel, message.as_ref()),
                )
            }
        };
        let env = state.home_instance(InstanceIx::ROOT).env.clone();
        Ok(HookSpec { run: run.clone(), number, act, about, env })
    }

    fn prepare(self, shared: &ExecutorContext) -> Result<PreparedHook, String> {
        let words = match &self.act {
            HookOperation::Run { program, arguments } => HookProgram {
                program: resolve_program(&self.about, program),
                arguments: arguments.iter().map(to_plain_text).collect(),
                stdin: Arc::from([]),
                environment: Vec::new(),
                limit: limits::HOOK,
                grant: HookGrant::Workspace,
            },
            HookOperation::Tell(channel, message) => {
                // The message may leave the machine.
                let message = redact_message(shared, message);
                match find_channel_program(&self.about, channel, &message) {
                    Some(words) => words?,
                    None => return Ok(PreparedHook::Say(Box::new((channel.clone(), message)))),
                }
            }
        };
        self.build_task(shared, words).map(|task| PreparedHook::Start(Box::new(task)))
    }

    fn build_task(&self, shared: &ExecutorContext, words: HookProgram) -> Result<ProcessSpec, String> {
        if words.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err("one of its arguments contains a NUL byte".to_owned());
        }
        let about = &self.about;
        let grants = about.workspace_grants(shared.state.path());
        let folder = grants.and_then(|grants| grants.open_folder(None)).map_err(|error| error.to_string())?;
        let kept = shared.run_dir(&self.run).and_then(|run| run.hook_folder(self.number));
        let log = kept.map_err(|error| error.to_string())?.path().join("log");
        let mark = ProcessMark {
            state: shared.mark.clone(),
            run: self.run.clone(),
            work: MarkedWork::Hook(self.number),
        };
        let grant = words.grant;
        let mut task = words.into_task(folder.path(), log, mark);
        let mut environment = environment::base_environment(about, &self.env);
        environment.push(("SKEIN_RUN_ID".into(), self.run.as_str().into()));
        environment.append(&mut task.environment);
        task.environment = environment;
        task.filter = shared.redaction_filter();
        sandbox_hook(shared, about, &self.run, (grant, &folder), &mut task)?;
        Ok(task)
    }
}

/// Puts the program of a hook or a channel into its sandbox. The program must be unchanged since the run began.
pub(super) fn sandbox_hook(
    shared: &ExecutorContext,
    about: &RunSettings,
    run: &RunId,
    (grant, folder): (HookGrant, &RootFolder),
    task: &mut ProcessSpec,
) -> Result<(), String> {
    let run = shared.run_dir(run).map_err(|error| error.to_string())?;
    let words: Vec<OsString> = [task.program.as_os_str()]
        .into_iter()
        .chain(task.arguments.iter().map(OsString::as_os_str))
        .map(OsString::from)
        .collect();
    let covers = about.check_pinned(&run, &words, folder.path())?;
    let sandbox = sandbox_setup::build_hook_sandbox(shared, about, grant, task, folder);
    task.sandbox = sandbox.map_err(|error| error.to_string())?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox.spec.covers = covers;
    }
    Ok(())
}

/// A program that is run for a hook or a channel.
pub(super) struct HookProgram {
    program: PathBuf,
    arguments: Vec<String>,
    stdin: Arc<[u8]>,
    environment: environment::WorkerEnvironment,
    limit: u64,
    pub grant: HookGrant,
}

impl HookProgram {
    /// Builds the task, with its own variables only.
    pub fn into_task(self, folder: &Path, log: PathBuf, mark: ProcessMark) -> ProcessSpec {
        let mut task = ProcessSpec::new(self.program, folder, log, mark);
        task.arguments = self.arguments.into_iter().map(Into::into).collect();
        task.stdin = self.stdin;
        task.environment = self.environment;
        task.limit = Some(Millis(self.limit));
        task
    }
}

/// The program that sends a message to a channel. `None` if the channel needs no program.
pub(super) fn find_channel_program(
    about: &RunSettings,
    channel: &NotifyChannel,
    message: &ChannelMessage,
) -> Option<Result<HookProgram, String>> {
    let id = ("SKEIN_MESSAGE_ID".into(), message.id.clone().into());
    let words = |program, arguments, stdin, more: environment::WorkerEnvironment| {
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
                Ok(words(resolve_program(about, program), rest.to_vec(), stdin, Vec::new()))
            }
            None => Err("its command is empty".to_owned()),
        }),
        NotifyChannel::Desktop => {
            let arguments =
                ["--app-name=Skein", "--", &message.title, &message.text].map(str::to_owned).to_vec();
            let needs = DESKTOP_NEEDS.iter();
            let needs = needs.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
            Some(
                trusted_programs::find_program(DESKTOP)
                    .map(|program| words(program, arguments, Arc::from([]), needs.collect())),
            )
        }
        NotifyChannel::Webhook { .. } | NotifyChannel::Slack { .. } | NotifyChannel::File(_) => None,
    }
}

pub(super) fn redact_message(shared: &ExecutorContext, message: &ChannelMessage) -> ChannelMessage {
    ChannelMessage {
        id: message.id.clone(),
        title: shared.redactor.redact_str(&message.title),
        text: shared.redactor.redact_str(&message.text),
        target: message.target.clone(),
        body: shared.redactor.redact_value(&message.body),
    }
}

/// Resolves a path relative to the project; a bare name is looked up in `PATH`.
fn resolve_program(about: &RunSettings, program: &str) -> PathBuf {
    match program.contains('/') {
        true => about.project.join(program),
        false => PathBuf::from(program),
    }
}

fn failure_message(ended: &ProcessReport) -> Option<String> {
    if ended.how == ProcessOutcome::Exited(0) {
        return None;
    }
    let last = ended.tail.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
    Some(truncate_message(format!("{}{last}", ended.how.message())))
}
