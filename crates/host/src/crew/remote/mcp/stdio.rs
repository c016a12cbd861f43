//! A server that is a program: started like any worker, and spoken to on its standard input and output.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use rmcp::{RoleClient, transport::async_rw::AsyncRwTransport};
use serde_json::Value;
use skein_core::{
    call::{self, Values},
    time::Millis,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
};

use super::{
    super::{Asking, McpTool, Server, Trouble, keep, millis, time},
    MOST, arguments, converse, runtime, taken, within,
};
use crate::{
    crew::{Doing, Live, tool},
    worker::{self, Ended, Handle, How, Refused, Talk, Task},
};

/// How long a server may take to end by itself when nobody speaks with it any more, and to end when it is asked to.
const BY_ITSELF: Duration = Duration::from_secs(2);
const GRACE: Millis = Millis::seconds(2);

/// Our ends of the pipes.
struct Ours {
    write: OwnedFd,
    read: OwnedFd,
}

impl Asking<'_> {
    /// Does an attempt by speaking with a program.
    pub(in super::super) fn converse(&self, tool: &McpTool, mut task: Task, key: &Doing) -> Ended {
        let began = Instant::now();
        let ours = match self.lay_out(tool, &mut task) {
            Ok(ours) => ours,
            Err(why) => {
                let how = How::CannotStart(Refused::Other(format!("nobody can speak with it: {why}")));
                return Ended::without_process(how, began);
            }
        };
        let limit = time(task.limit);
        let stdout = task.stdout.clone();
        let (done, ended) = mpsc::channel();
        let handle = worker::start(task, move |ended| drop(done.send(ended)));
        self.shared.started(key, handle.clone());
        let said = self.speak(tool, ours, limit);
        let Some(ended) = leave(&handle, &ended) else {
            return Ended::without_process(How::CannotStart(Refused::Unseen), began);
        };
        let how = self.how(key, &said, &ended.how);
        if how != How::Exited(0) {
            return Ended { how, ..ended };
        }
        let said = said.map_err(|trouble| with_tail(trouble, &ended.tail));
        let kept = keep(&self.shared.redactor, stdout.as_deref(), &said);
        Ended { how: kept.unwrap_or(how), ..ended }
    }

    /// The pipes between us, and what its task has beyond that of other programs.
    fn lay_out(&self, tool: &McpTool, task: &mut Task) -> Result<Ours, String> {
        if let Server::Program(env) = &tool.server {
            let secret = |name: &str| self.secret(name);
            let values = Values { inputs: &Value::Null, secret: &secret };
            for (name, text) in env {
                let value = call::fill(text, values, str::to_owned).map_err(|why| why.to_string())?;
                task.environment.push((name.into(), value.into()));
            }
        }
        let (stdin, write) = io::pipe().map_err(|error| error.to_string())?;
        let (read, stdout) = io::pipe().map_err(|error| error.to_string())?;
        task.talk = Some(Talk { stdin: stdin.into(), stdout: stdout.into() });
        task.limit = Some(millis(time(task.limit)));
        // It is silent while nobody asks it.
        (task.idle, task.start) = (None, None);
        task.grace = GRACE;
        Ok(Ours { write: write.into(), read: read.into() })
    }

    fn speak(&self, tool: &McpTool, ours: Ours, limit: Duration) -> Result<Value, Trouble> {
        let inputs = tool::renamed(self.tool, &self.job.given.inputs);
        let heard = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&heard);
        let runtime = runtime()?;
        let said = runtime.block_on(within(limit, async {
            let broken = |error: io::Error| Trouble::new("internal", error.to_string());
            let read = pipe::Receiver::from_owned_fd(ours.read).map_err(broken)?;
            let write = pipe::Sender::from_owned_fd(ours.write).map_err(broken)?;
            let line = usize::try_from(MOST).unwrap_or(usize::MAX);
            let transport =
                AsyncRwTransport::<RoleClient, _, _>::new(Counted { read, heard: counted }, write);
            converse(transport.with_max_line_length(line), &tool.tool, arguments(&inputs)).await
        }));
        runtime.shutdown_background();
        if said.is_err() && heard.load(Ordering::Relaxed) > MOST {
            let message = format!("its server said more than {MOST} bytes, and was not heard any further");
            return Err(Trouble::new("output_invalid", message));
        }
        taken(tool, said)
    }

    /// What counts: what was said, or how the program ended before it said anything.
    fn how(&self, key: &Doing, said: &Result<Value, Trouble>, how: &How) -> How {
        let Err(trouble) = said else { return How::Exited(0) };
        let silent = matches!(trouble.code.as_str(), "upstream_error" | "timeout" | "internal");
        match how {
            _ if !silent => How::Exited(0),
            _ if self.is_called_off(key) => How::Stopped,
            // We ended it.
            How::Stopped => How::Exited(0),
            how => how.clone(),
        }
    }

    fn is_called_off(&self, key: &Doing) -> bool {
        matches!(self.shared.live().get(key), Some(Live::Working { ending: Some(_), .. }))
    }
}

/// Waits until nothing of the program is left. One that does not end by itself is made to.
fn leave(handle: &Handle, ended: &Receiver<Ended>) -> Option<Ended> {
    ended.recv_timeout(BY_ITSELF).ok().or_else(|| {
        handle.stop();
        ended.recv().ok()
    })
}

/// With the last that it printed for people.
fn with_tail(trouble: Trouble, tail: &str) -> Trouble {
    let last = tail.lines().rev().find(|line| !line.trim().is_empty());
    match last.filter(|_| trouble.code == "upstream_error") {
        Some(last) => Trouble { message: format!("{}: {}", trouble.message, last.trim()), ..trouble },
        None => trouble,
    }
}

/// Hears only so much.
struct Counted {
    read: pipe::Receiver,
    heard: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.read).poll_read(context, buffer);
        let more = u64::try_from(buffer.filled().len() - before).unwrap_or(u64::MAX);
        match self.heard.fetch_add(more, Ordering::Relaxed).saturating_add(more) {
            heard if heard > MOST => Poll::Ready(Err(io::Error::other("it said too much"))),
            _ => read,
        }
    }
}
