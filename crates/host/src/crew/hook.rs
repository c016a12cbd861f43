//! A hook: a program that is run beside the steps when a run begins or ends. How it ends never changes the run.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use skein_core::{
    engine::{Hooked, InstanceIx, hook},
    ids::RunId,
    limits,
    time::Millis,
};

use super::{Live, Shared, about::About, back::cut, command::plain, environment};
use crate::{
    hands::{Published, Running},
    worker::{self, Ended, How, Mark, Task, Work},
    workspace::Grants,
};

/// What a hook needs, taken out of the run when it is wanted.
struct Hook {
    run: RunId,
    number: u32,
    program: String,
    arguments: Vec<Value>,
    about: About,
    env: Arc<Value>,
}

/// Runs the hook of a number; it is told when it has ended, and why it did not do well.
pub(super) fn run(shared: &Arc<Shared>, running: Running<'_>, number: u32, published: Published) {
    let hook = match Hook::of(running, number) {
        Ok(hook) => hook,
        Err(why) => return published.tell(Some(shared.redactor.redact_str(&why))),
    };
    let shared = Arc::clone(shared);
    let key = (hook.run.clone(), Work::Hook(number));
    shared.live().insert(key.clone(), Live::Ahead { stopped: false });
    let body = move || {
        let task = match hook.lay_out(&shared) {
            Ok(task) => task,
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

impl Hook {
    fn of(running: Running<'_>, number: u32) -> Result<Hook, String> {
        let Running { run, plan, state, about, .. } = running;
        let hooked = hook(plan, state, number).ok_or("there is no such hook")?;
        match hooked.map_err(|error| error.message)? {
            Hooked::Run { program, arguments } => Ok(Hook {
                run: run.clone(),
                number,
                program,
                arguments,
                about: About::read(about)?,
                env: state.home(InstanceIx::ROOT).env.clone(),
            }),
            Hooked::Notify { channel, .. } => {
                Err(format!("nobody was told on `{channel}`: this version has no channel to tell people by"))
            }
        }
    }

    fn lay_out(&self, shared: &Shared) -> Result<Task, String> {
        let about = &self.about;
        let grants = Grants::new(&about.project, &about.workspace, &about.roots, Some(shared.state.path()));
        let folder = grants.and_then(|grants| grants.folder(None)).map_err(|error| error.to_string())?;
        let kept = shared.run_dir(&self.run).and_then(|run| run.hook(self.number));
        let log = kept.map_err(|error| error.to_string())?.path().join("log");
        let mark = Mark { state: shared.mark.clone(), run: self.run.clone(), work: Work::Hook(self.number) };
        let mut task = Task::new(self.found(), folder.path(), log, mark);
        let arguments: Vec<String> = self.arguments.iter().map(plain).collect();
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err("one of its arguments holds a zero byte, which no argument can".to_owned());
        }
        task.arguments = arguments.into_iter().map(Into::into).collect();
        task.environment = environment::base(about, &self.env);
        task.environment.push(("SKEIN_RUN_ID".into(), self.run.as_str().into()));
        task.limit = Some(Millis(limits::HOOK));
        task.filter = shared.filter();
        Ok(task)
    }

    /// A path is from the project on; a name is looked up where programs are.
    fn found(&self) -> PathBuf {
        match self.program.contains('/') {
            true => self.about.project.join(&self.program),
            false => PathBuf::from(&self.program),
        }
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
