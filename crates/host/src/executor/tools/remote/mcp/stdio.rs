//! An MCP server that is a program: started like any worker, and called through its stdin and stdout.

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
    time::Millis,
    tool_call::{self, CallTemplateValues},
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
};

use super::{MOST, build_runtime, extract_result, run_session, to_arguments, with_timeout};
use crate::{
    executor::{
        executor_context::{ActiveWork, WorkKey},
        tools::{
            self,
            remote::{RemoteCall, RemoteToolError, timeout_or_default, to_millis, write_result},
        },
    },
    process::{self, DialogPipes, ProcessHandle, ProcessOutcome, ProcessReport, ProcessSpec},
    run_settings::{McpEndpoint, McpTool},
    start_error::StartRefusal,
};

/// The time for a server to exit by itself after the session, and the time to exit after a stop request.
const BY_ITSELF: Duration = Duration::from_secs(2);
const GRACE: Millis = Millis::from_secs(2);

/// The host's ends of the pipes.
struct ServerPipes {
    write: OwnedFd,
    read: OwnedFd,
}

impl RemoteCall<'_> {
    /// Runs an attempt as a session with a program.
    pub(in crate::executor::tools::remote) fn call_over_stdio(
        &self,
        tool: &McpTool,
        mut task: ProcessSpec,
        key: &WorkKey,
    ) -> ProcessReport {
        let began = Instant::now();
        let ours = match self.connect_pipes(tool, &mut task) {
            Ok(ours) => ours,
            Err(why) => {
                let how = StartRefusal::Other(format!("cannot connect to it: {why}")).into();
                return ProcessReport::without_process(how, began);
            }
        };
        let limit = timeout_or_default(task.limit);
        let stdout = task.stdout.clone();
        let (done, ended) = mpsc::channel();
        let handle = process::start_process(task, move |ended| drop(done.send(ended)));
        self.shared.attach_process(key, handle.clone());
        let said = self.run_pipe_session(tool, ours, limit);
        let Some(ended) = await_exit(&handle, &ended) else {
            return ProcessReport::without_process(StartRefusal::Unseen.into(), began);
        };
        let how = self.determine_exit(key, &said, &ended.how);
        if how != ProcessOutcome::Exited(0) {
            return ProcessReport { how, ..ended };
        }
        let said = said.map_err(|trouble| append_tail(trouble, &ended.tail));
        let kept = write_result(&self.shared.redactor, stdout.as_deref(), &said);
        ProcessReport { how: kept.unwrap_or(how), ..ended }
    }

    /// Creates the pipes, and sets the fields of the task that differ from other programs.
    fn connect_pipes(&self, tool: &McpTool, task: &mut ProcessSpec) -> Result<ServerPipes, String> {
        if let McpEndpoint::Program(env) = &tool.server {
            let secret = |name: &str| self.find_secret(name);
            let values = CallTemplateValues { inputs: &Value::Null, secret: &secret };
            for (name, text) in env {
                let value = tool_call::fill_text(text, values, str::to_owned).map_err(|why| why.to_string())?;
                task.environment.push((name.into(), value.into()));
            }
        }
        let (stdin, write) = io::pipe().map_err(|error| error.to_string())?;
        let (read, stdout) = io::pipe().map_err(|error| error.to_string())?;
        task.talk = Some(DialogPipes { stdin: stdin.into(), stdout: stdout.into() });
        task.limit = Some(to_millis(timeout_or_default(task.limit)));
        // A server is silent while it is not called.
        (task.idle, task.start) = (None, None);
        task.grace = GRACE;
        Ok(ServerPipes { write: write.into(), read: read.into() })
    }

    fn run_pipe_session(&self, tool: &McpTool, ours: ServerPipes, limit: Duration) -> Result<Value, RemoteToolError> {
        let inputs = tools::rename_inputs(self.tool, &self.job.given.inputs);
        let heard = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&heard);
        let runtime = build_runtime()?;
        let said = runtime.block_on(with_timeout(limit, async {
            let broken = |error: io::Error| RemoteToolError::new("internal", error.to_string());
            let read = pipe::Receiver::from_owned_fd(ours.read).map_err(broken)?;
            let write = pipe::Sender::from_owned_fd(ours.write).map_err(broken)?;
            let line = usize::try_from(MOST).unwrap_or(usize::MAX);
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(LimitedReader { read, heard: counted }, write);
            run_session(transport.with_max_line_length(line), &tool.tool, to_arguments(&inputs)).await
        }));
        runtime.shutdown_background();
        if said.is_err() && heard.load(Ordering::Relaxed) > MOST {
            let message = format!("its server sent more than {MOST} bytes, and the rest was not read");
            return Err(RemoteToolError::new("output_invalid", message));
        }
        extract_result(tool, said)
    }

    /// Determines the outcome: the result counts, or else the way the program ended before it answered.
    fn determine_exit(
        &self,
        key: &WorkKey,
        said: &Result<Value, RemoteToolError>,
        how: &ProcessOutcome,
    ) -> ProcessOutcome {
        let Err(trouble) = said else { return ProcessOutcome::Exited(0) };
        let silent = matches!(trouble.code.as_str(), "upstream_error" | "timeout" | "internal");
        match how {
            _ if !silent => ProcessOutcome::Exited(0),
            _ if self.is_stop_requested(key) => ProcessOutcome::Stopped,
            // The host stopped it after the session.
            ProcessOutcome::Stopped => ProcessOutcome::Exited(0),
            how => how.clone(),
        }
    }

    fn is_stop_requested(&self, key: &WorkKey) -> bool {
        matches!(self.shared.active_work().get(key), Some(ActiveWork::Working { ending: Some(_), .. }))
    }
}

/// Waits until the program has exited. Stops it if it does not exit by itself.
fn await_exit(handle: &ProcessHandle, ended: &Receiver<ProcessReport>) -> Option<ProcessReport> {
    ended.recv_timeout(BY_ITSELF).ok().or_else(|| {
        handle.stop();
        ended.recv().ok()
    })
}

/// Appends the last line that it printed for people.
fn append_tail(trouble: RemoteToolError, tail: &str) -> RemoteToolError {
    let last = tail.lines().rev().find(|line| !line.trim().is_empty());
    match last.filter(|_| trouble.code == "upstream_error") {
        Some(last) => RemoteToolError { message: format!("{}: {}", trouble.message, last.trim()), ..trouble },
        None => trouble,
    }
}

/// Reads at most [`MOST`] bytes.
struct LimitedReader {
    read: pipe::Receiver,
    heard: Arc<AtomicU64>,
}

impl AsyncRead for LimitedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.read).poll_read(context, buffer);
        let more = u64::try_from(buffer.filled().len() - before).unwrap_or(u64::MAX);
        match self.heard.fetch_add(more, Ordering::Relaxed).saturating_add(more) {
            heard if heard > MOST => Poll::Ready(Err(io::Error::other("it sent too much"))),
            _ => read,
        }
    }
}
