//! An HTTP server on loopback, in the test process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use serde_json::Value;

/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub method: String,
    /// The path with the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// An answer of the server.
pub(crate) enum Reply {
    Bytes(Vec<u8>),
    /// No answer, until the client disconnects.
    Never,
    /// An endless answer, until the client disconnects.
    Endless(String),
}

impl Reply {
    pub(crate) fn new(status: &str, headers: &str, body: &str) -> Reply {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
        Reply::Bytes(format!("{head}{headers}\r\n{body}").into_bytes())
    }

    pub(crate) fn json(value: &Value) -> Reply {
        Reply::new("200 OK", "content-type: application/json\r\n", &value.to_string())
    }
}

pub(crate) struct Server {
    pub port: u16,
    asked: Receiver<Asked>,
    gone: Receiver<()>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is loopback");
        let port = listener.local_addr().expect("it has a port").port();
        let ((to, asked), (leave, gone)) = (channel(), channel());
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (to, leave, answer) = (to.clone(), leave.clone(), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream.expect("it connects"));
                    let Some(asked) = read(&mut stream) else { return };
                    let reply = answer(&asked);
                    let _ = to.send(asked);
                    write(stream, reply);
                    let _ = leave.send(());
                });
            }
        });
        Server { port, asked, gone }
    }

    /// The next request.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("the server is asked")
    }

    /// All requests that were received and not read.
    pub(crate) fn all(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }

    /// Waits until a client disconnects.
    pub(crate) fn until_gone(&self) {
        self.gone.recv_timeout(PATIENCE).expect("whoever asked has gone");
    }
}

fn read(stream: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut asked = Asked { method, path, headers: Vec::new(), body: String::new() };
    line.clear();
    while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((name, value)) = line.trim().split_once(": ") {
            asked.headers.push((name.to_lowercase(), value.to_owned()));
        }
        line.clear();
    }
    let mut body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).expect("it is text");
    Some(asked)
}

fn write(mut stream: BufReader<std::net::TcpStream>, reply: Reply) {
    match reply {
        Reply::Bytes(bytes) => drop(stream.get_mut().write_all(&bytes)),
        Reply::Never => drop(stream.read(&mut [0])),
        Reply::Endless(head) => {
            let piece = [b'x'; 4096];
            let mut open = stream.get_mut().write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes());
            while open.is_ok() {
                open = stream.get_mut().write_all(&piece);
            }
        }
    }
}
