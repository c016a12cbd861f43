//! A hook: a program that is run, or someone who is told, when a run begins or ends. How it goes never changes the run.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use skein_core::{
    engine::{Hooked, InstanceIx, hook},
    ids::RunId,
    limits,
    time::Millis,
};

use super::{
    Live, Shared,
    about::About,
    back::cut,
    command::plain,
    confine::{self, HookGrant},
    environment, told, trusted,
};
use crate::{
    clock::Clock,
    hands::{Published, Running},
    notify::{self, Channel, Message, Url},
    worker::{self, Ended, How, Mark, Task, Work},
    workspace::Root,
};

/// What a note on the desktop is shown by, and what it needs to find the desktop.
const DESKTOP: &str = "notify-send";
const DESKTOP_NEEDS: [&str; 4] =
    ["DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];

/// What a hook needs, taken out of the run when it is wanted.
struct Hook {
    run: RunId,
    number: u32,
    act: Act,
    about: About,
    env: Arc<Value>,
}

enum Act {
    Run { program: String, arguments: Vec<Value> },
    Tell(Channel, Message),
}

/// What an act comes to.
enum Comes {
    /// A program, which is watched like any other.
    Start(Box<Task>),
    /// Nothing that could be stopped: it ends by itself, and soon.
    Say(Box<(Channel, Message)>),
}

/// Does the hook of a number; it is told when it has ended, and why it did not do well.
pub(super) fn run(shared: &Arc<Shared>, running: Running<'_>, number: u32, published: Published) {
    let hook = match Hook::of(running, number) {
        Ok(hook) => hook,
        Err(why) => return published.tell(Some(shared.redactor.redact_str(&why))),
    };
    if hook.about.replay.is_some() {
        // It would be a program; what it did is none of what a step works with.
        return published.tell(None);
    }
    let shared = Arc::clone(shared);
    let key = (hook.run.clone(), Work::Hook(number));
    shared.live().insert(key.clone(), Live::Ahead { stopped: false });
    let body = move || {
        let task = match hook.lay_out(&shared) {
            Ok(Comes::Start(task)) => *task,
            Ok(Comes::Say(said)) => {
                // The host may end meanwhile: whoever goes on with the run says it again.
                shared.gone(&key);
                let said = say(&shared, &said.0, &said.1);
                return published.tell(said.err().map(|why| shared.redactor.redact_str(&cut(why))));
            }
            Err(why) => {
                shared.gone(&key);
                return published.tell(Some(why));
            }
        };
        let ended = worker::run(task, |handle| shared.started(&key, handle));
        shared.gone(&key);
        published.tell(failed(&ended).map(|why| shared.redactor.redact_str(&why)));
    };
    // Without a thread it is dropped, and so told that nobody did it.
    let _ = std::thread::Builder::new().name("hook".into()).spawn(body);
}

/// Tells someone by network or by file.
pub(super) fn say(shared: &Shared, channel: &Channel, message: &Message) -> Result<(), String> {
    let secret = |name: &String| -> Result<String, String> {
        let found = shared.secrets.of(std::slice::from_ref(name)).map_err(|error| error.to_string())?;
        Ok(found.first().map(|(_, secret)| secret.expose().to_owned()).unwrap_or_default())
    };
    let address = |url: &Url| match url {
        Url::Plain(url) => Ok(url.clone()),
        Url::Secret(name) => secret(name),
    };
    let now = || Clock::new().now();
    match channel {
        Channel::Webhook { url, key, private } => {
            let (url, key) = (address(url)?, key.as_ref().map(secret).transpose()?);
            notify::send(&url, *private, key.as_deref(), (&message.id, &message.value()), now)
        }
        Channel::Slack { url, private } => {
            notify::send(&address(url)?, *private, None, (&message.id, &message.for_slack()), now)
        }
        Channel::File(path) => notify::append(path, &message.value())
            .map_err(|error| format!("{} cannot be written: {error}", path.display())),
        Channel::Desktop | Channel::Command(_) => Err("it is told by a program".to_owned()),
    }
}

impl Hook {
    fn of(running: Running<'_>, number: u32) -> Result<Hook, String> {
        let Running { run, plan, state, about, .. } = running;
        let hooked = hook(plan, state, number).ok_or("there is no such hook")?;
        let about = About::read(about)?;
        let act = match hooked.map_err(|error| error.message)? {
            Hooked::Run { program, arguments } => Act::Run { program, arguments },
            Hooked::Notify { channel, message } => {
                let Some(told) = about.surroundings.channels.get(&channel) else {
                    let name = channel.split(':').next().unwrap_or_default();
                    return Err(format!(
                        "nobody was told on `{channel}`; `[channels.{name}]` in skein.toml says how to"
                    ));
                };
                Act::Tell(told.clone(), told::of(running, number, &channel, message.as_ref()))
            }
        };
        let env = state.home(InstanceIx::ROOT).env.clone();
        Ok(Hook { run: run.clone(), number, act, about, env })
    }

    fn lay_out(self, shared: &Shared) -> Result<Comes, String> {
        let words = match &self.act {
            Act::Run { program, arguments } => Words {
                program: found(&self.about, program),
                arguments: arguments.iter().map(plain).collect(),
                stdin: Arc::from([]),
                environment: Vec::new(),
                limit: limits::HOOK,
                grant: HookGrant::Workspace,
            },
            Act::Tell(channel, message) => {
                // What is told leaves the machine, perhaps.
                let message = redacted(shared, message);
                match words(&self.about, channel, &message) {
                    Some(words) => words?,
                    None => return Ok(Comes::Say(Box::new((channel.clone(), message)))),
                }
            }
        };
        self.task(shared, words).map(|task| Comes::Start(Box::new(task)))
    }

    fn task(&self, shared: &Shared, words: Words) -> Result<Task, String> {
        if words.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err("one of its arguments holds a zero byte, which no argument can".to_owned());
        }
        let about = &self.about;
        let grants = about.grants(shared.state.path());
        let folder = grants.and_then(|grants| grants.folder(None)).map_err(|error| error.to_string())?;
        let kept = shared.run_dir(&self.run).and_then(|run| run.hook(self.number));
        let log = kept.map_err(|error| error.to_string())?.path().join("log");
        let mark = Mark { state: shared.mark.clone(), run: self.run.clone(), work: Work::Hook(self.number) };
        let grant = words.grant;
        let mut task = words.task(folder.path(), log, mark);
        let mut environment = environment::base(about, &self.env);
        environment.push(("SKEIN_RUN_ID".into(), self.run.as_str().into()));
        environment.append(&mut task.environment);
        task.environment = environment;
        task.filter = shared.filter();
        confine_hook(shared, about, &self.run, (grant, &folder), &mut task)?;
        Ok(task)
    }
}

/// Puts the program of a hook or a channel into its sandbox. It must be as it was when the run began.
pub(super) fn confine_hook(
    shared: &Shared,
    about: &About,
    run: &RunId,
    (grant, folder): (HookGrant, &Root),
    task: &mut Task,
) -> Result<(), String> {
    let run = shared.run_dir(run).map_err(|error| error.to_string())?;
    let words: Vec<OsString> = [task.program.as_os_str()]
        .into_iter()
        .chain(task.arguments.iter().map(OsString::as_os_str))
        .map(OsString::from)
        .collect();
    let covers = about.check_pinned(&run, &words, folder.path())?;
    let sandbox = confine::hook_sandbox(shared, about, grant, task, folder);
    task.sandbox = sandbox.map_err(|error| error.to_string())?;
    if let Some(sandbox) = &mut task.sandbox {
        sandbox.spec.covers = covers;
    }
    Ok(())
}

/// A program that is run for a hook, or that tells someone.
pub(super) struct Words {
    program: PathBuf,
    arguments: Vec<String>,
    stdin: Arc<[u8]>,
    environment: environment::Environment,
    limit: u64,
    pub grant: HookGrant,
}

impl Words {
    /// With its own variables only.
    pub fn task(self, folder: &Path, log: PathBuf, mark: Mark) -> Task {
        let mut task = Task::new(self.program, folder, log, mark);
        task.arguments = self.arguments.into_iter().map(Into::into).collect();
        task.stdin = self.stdin;
        task.environment = self.environment;
        task.limit = Some(Millis(self.limit));
        task
    }
}

/// The program that tells someone on a channel. None: no program does.
pub(super) fn words(about: &About, channel: &Channel, message: &Message) -> Option<Result<Words, String>> {
    let id = ("SKEIN_MESSAGE_ID".into(), message.id.clone().into());
    let words = |program, arguments, stdin, more: environment::Environment| {
        let environment = [id].into_iter().chain(more).collect();
        let grant = match channel {
            Channel::Desktop => HookGrant::Desktop,
            _ => HookGrant::Workspace,
        };
        Words { program, arguments, stdin, environment, limit: limits::NOTIFY, grant }
    };
    match channel {
        Channel::Command(command) => Some(match command.split_first() {
            Some((program, rest)) => {
                let stdin = format!("{}\n", message.value()).into_bytes().into();
                Ok(words(found(about, program), rest.to_vec(), stdin, Vec::new()))
            }
            None => Err("its command is empty".to_owned()),
        }),
        Channel::Desktop => {
            let arguments =
                ["--app-name=Skein", "--", &message.title, &message.text].map(str::to_owned).to_vec();
            let needs = DESKTOP_NEEDS.iter();
            let needs = needs.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
            Some(
                trusted::find_program(DESKTOP)
                    .map(|program| words(program, arguments, Arc::from([]), needs.collect())),
            )
        }
        Channel::Webhook { .. } | Channel::Slack { .. } | Channel::File(_) => None,
    }
}

pub(super) fn redacted(shared: &Shared, message: &Message) -> Message {
    Message {
        id: message.id.clone(),
        title: shared.redactor.redact_str(&message.title),
        text: shared.redactor.redact_str(&message.text),
        target: message.target.clone(),
        body: shared.redactor.redact_value(&message.body),
    }
}

/// A path is from the project on; a name is looked up where programs are.
fn found(about: &About, program: &str) -> PathBuf {
    match program.contains('/') {
        true => about.project.join(program),
        false => PathBuf::from(program),
    }
}

fn failed(ended: &Ended) -> Option<String> {
    if ended.how == How::Exited(0) {
        return None;
    }
    let last = ended.tail.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
    Some(cut(format!("{}{last}", ended.how.message())))
}
