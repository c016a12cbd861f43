//! A scripted model server on loopback, which receives the requests that agents send to a real model.
//!
//! Owns the server and the script. The protocols of the services are in `speak`. Every request that offers tools takes
//! the next turn; requests without tools are side requests and get a one-word answer.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use serde_json::Value;

use super::speak::{self, Service};

/// Longer than an agent may take for a request on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The reaction of the model to a request.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    Say(String, Vec<Call>),
    /// Calls a tool in each conversation, and then answers with the text. For several agents that ask at the same time.
    Each(Call, String),
    /// Answers with an error.
    Fail(u16, Vec<(&'static str, String)>, Value),
    /// Reports an exhausted account for this many seconds, in words.
    Limit(u64),
    /// Never answers.
    Hold,
    /// Begins to answer, and then stays silent.
    Stall,
    /// Begins to answer, and disconnects.
    Cut,
}

/// A tool that the model calls.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Write(String, String),
    /// Writes to the output file that the prompt names.
    Output(String),
    /// Writes an artifact to the folder that the prompt names.
    Leave(String, String),
    /// Writes to the decision file that the prompt names.
    Decide(String),
    Run(String),
    /// Calls a tool of an MCP server: server, tool, arguments.
    Tool(&'static str, &'static str, Value),
    /// Answers with a value.
    Answer(Value),
}

/// A received request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub body: String,
}

pub(crate) struct Model {
    pub port: u16,
    asked: Receiver<Asked>,
    inner: Arc<Inner>,
}

struct Inner {
    turns: Mutex<VecDeque<Turn>>,
    /// The number of complete answers.
    answers: Mutex<u64>,
    asked: Mutex<Sender<Asked>>,
}

pub(crate) fn say(text: &str) -> Turn {
    Turn::Say(text.to_owned(), Vec::new())
}

pub(crate) fn call(text: &str, calls: impl IntoIterator<Item = Call>) -> Turn {
    Turn::Say(text.to_owned(), calls.into_iter().collect())
}

impl Model {
    /// Takes these turns in order, and repeats the last one.
    pub(crate) fn new(turns: impl IntoIterator<Item = Turn>) -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let (to, asked) = channel();
        let inner = Arc::new(Inner {
            turns: Mutex::new(turns.into_iter().collect()),
            answers: Mutex::new(0),
            asked: Mutex::new(to),
        });
        let served = Arc::clone(&inner);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inner = Arc::clone(&served);
                // An agent that has gone needs no answer.
                std::thread::spawn(move || drop(inner.serve(stream)));
            }
        });
        Model { port, asked, inner }
    }

    /// The next request that offers tools.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("the agent asks its model")
    }

    /// All requests so far that were not read.
    pub(crate) fn all_asked(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }

    /// Replaces the remaining turns.
    pub(crate) fn then(&self, turns: impl IntoIterator<Item = Turn>) {
        *self.inner.turns.lock().unwrap() = turns.into_iter().collect();
    }

    /// The number of complete answers.
    pub(crate) fn answers(&self) -> u64 {
        *self.inner.answers.lock().unwrap()
    }
}

impl Inner {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let Some(Posted { path, body, .. }) = request(&mut reader)? else { return Ok(()) };
        let mut stream = stream;
        let Some(service) = Service::of(&path) else {
            return respond(&mut stream, 404, &[], "{\"error\": {\"message\": \"not found\"}}");
        };
        let asked: Value = serde_json::from_str(&body).unwrap_or_default();
        if !service.offers_tools(&asked) {
            return stream.write_all(&service.answer(&asked, &body, "ok", &[]));
        }
        let turn = {
            let mut turns = self.turns.lock().unwrap();
            if turns.len() > 1 { turns.pop_front().unwrap() } else { turns[0].clone() }
        };
        let _ = self.asked.lock().unwrap().send(Asked { body: body.clone() });
        let turn = match turn {
            Turn::Each(call, _) if !service.has_called(&body) => Turn::Say(String::new(), vec![call]),
            Turn::Each(_, text) => Turn::Say(text, Vec::new()),
            other => other,
        };
        match turn {
            Turn::Say(text, calls) => {
                stream.write_all(&service.answer(&asked, &body, &text, &calls))?;
                *self.answers.lock().unwrap() += 1;
            }
            Turn::Fail(status, headers, error) => {
                respond(&mut stream, status, &headers, &error.to_string())?;
            }
            Turn::Limit(seconds) => stream.write_all(&service.limited(seconds))?,
            Turn::Each(..) => unreachable!("it became something to say"),
            Turn::Hold => gone(&mut reader)?,
            Turn::Stall => {
                stream.write_all(&service.beginning(&asked))?;
                gone(&mut reader)?;
            }
            Turn::Cut => stream.write_all(&service.beginning(&asked))?,
        }
        Ok(())
    }
}

/// Waits until the other side disconnects.
pub(crate) fn gone(reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    reader.read(&mut [0]).map(drop)
}

/// A received HTTP request.
pub(crate) struct Posted {
    pub path: String,
    /// The value of the `Authorization` header.
    pub authorization: String,
    pub body: String,
}

/// Reads a request. Returns `None` if there is none.
pub(crate) fn request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Posted>> {
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let (mut length, mut chunked, mut authorization) = (0, false, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "authorization" => authorization = value.trim().to_owned(),
            "transfer-encoding" => chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    while chunked {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk)?;
        body.extend_from_slice(&chunk[..size]);
        chunked = size > 0;
    }
    let path = first.strip_prefix("POST ").and_then(|rest| rest.split([' ', '?']).next());
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(path.map(|path| Posted { path: path.to_owned(), authorization, body }))
}

fn respond(stream: &mut TcpStream, status: u16, headers: &[(&str, String)], body: &str) -> std::io::Result<()> {
    stream.write_all(&speak::response(status, "application/json", headers, body))
}
