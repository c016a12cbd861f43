//! The example with every kind of step and every kind of driver, from start to end, with both outcomes.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Asked, Reply, Server};
use crate::{kept::Project, run::copy_of};

const KEY: &str = "a-key-that-opens-nothing-but-this-example";

/// The state of the hall: the bookings, by idempotency key and by name, and the announcements.
#[derive(Default)]
struct Hall {
    keys: BTreeMap<String, String>,
    bookings: BTreeMap<String, Value>,
    announced: Vec<String>,
    /// The number of bookings that were ever made.
    made: usize,
    left: Vec<String>,
}

impl Hall {
    fn answer(&mut self, asked: &Asked) -> Reply {
        if asked.header("authorization") != format!("Bearer {KEY}") {
            return Reply::new("401 Unauthorized", "", "");
        }
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["bookings"]) => self.book(asked),
            ("DELETE", ["bookings", name]) => {
                self.left.push((*name).to_owned());
                self.bookings.remove(*name);
                Reply::new("204 Gone", "", "")
            }
            ("PUT", ["bookings", name, "announcement"]) if self.bookings.contains_key(*name) => {
                let title = asked.json()["title"].as_str().unwrap_or_default().to_owned();
                if title == "Storm" {
                    return Reply::new("409 Conflict", "", "{\"error\": {\"message\": \"not in this season\"}}");
                }
                self.announced.push(format!("{title} ({query})"));
                Reply::json(&json!({"place": self.announced.len()}))
            }
            _ => Reply::new("404 Not Found", "", ""),
        }
    }

    /// The first answer is lost: a repeated request means the same booking.
    fn book(&mut self, asked: &Asked) -> Reply {
        let key = asked.header("idempotency-key").to_owned();
        let seats = asked.json()["seats"].as_u64().unwrap_or(0);
        if let Some(name) = self.keys.get(&key) {
            return Reply::json(&json!({"booking": self.bookings[name]}));
        }
        self.made += 1;
        let name = format!("b-{}", self.made);
        self.bookings.insert(name.clone(), json!({"booking": name, "price": seats * 10}));
        self.keys.insert(key, name);
        Reply::new("503 Lost", "", "")
    }
}

/// The example with its own hall.
fn festival() -> (Project, Arc<Mutex<Hall>>, Server) {
    let hall = Arc::new(Mutex::new(Hall::default()));
    let keeper = Arc::clone(&hall);
    let server = Server::new(move |asked| keeper.lock().expect("it is there").answer(asked));
    let project = Project { folder: copy_of("aip15/festival") };
    for file in ["skein.toml", ".drivers/hall/DRIVER.md"] {
        let text = project.read(file);
        assert!(text.contains("127.0.0.1:8437"), "{text}");
        project.folder.write(file, text.replace("8437", &server.port.to_string()));
    }
    (project, hall, server)
}

/// Starts an evening, which then waits for the band.
fn begin(project: &Project, title: &str, seats: u32) -> String {
    let line = format!(
        "run put-on-evening --no-wait --param title={title} --param evening=2031-05-02 --param band=Gulls \
         --param seats={seats} --param tables=[\"north\",\"south\",\"east\"]"
    );
    let result = project.json(&line, 6);
    result["run_id"].as_str().expect("it has an id").to_owned()
}

fn tables(project: &Project) -> Vec<String> {
    let there = fs::read_dir(project.path("tables")).into_iter().flatten();
    let mut names: Vec<String> = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Asserts that nothing of an evening is left, neither here nor at the hall.
fn taken_back(project: &Project, hall: &Mutex<Hall>) {
    assert_eq!(tables(project), Vec::<String>::new());
    assert!(!project.path("posters/0.txt").exists(), "the poster is down");
    assert!(!project.path("letters/band.txt").exists(), "the letter is thrown away");
    let hall = hall.lock().unwrap();
    assert!(hall.bookings.is_empty() && hall.announced.is_empty(), "the hall is free");
    assert_eq!((hall.made, hall.left.as_slice()), (1, &["b-1".to_owned()][..]));
}

#[test]
fn an_evening_is_put_on() {
    let (project, hall, _server) = festival();
    let run = begin(&project, "Tides", 120);
    assert_eq!(tables(&project), ["east", "north", "south"]);
    assert_eq!(project.read("posters/0.txt"), "Tides\n");
    assert_eq!(project.read("letters/band.txt"), "Dear Gulls, will you play for us on 2031-05-02?\n");
    assert_eq!(project.read("sound"), "3\n", "it was listened to until it was good");
    project.ends(&format!("signal {run} band.arrived"), 0);
    // It is expensive, so the keeper is asked.
    project.ends(&format!("resume {run} --no-wait"), 6);
    assert!(hall.lock().unwrap().announced.is_empty());
    project.ends(&format!("approve {run}"), 0);
    let result = project.json(&format!("resume {run}"), 0);
    assert_eq!(result["outputs"], json!({"booking": "b-1", "place": 1, "letter": "letters/band.txt"}));
    let hall = hall.lock().unwrap();
    assert_eq!(hall.announced, ["Tides (band=Gulls)"]);
    assert_eq!((hall.made, hall.left.len()), (1, 0), "asked twice, it booked once");
    let told: Value = serde_json::from_str(&project.read("board.jsonl")).unwrap();
    assert_eq!((&told["title"], &told["run_id"]), (&json!("Tides"), &json!(run)));
    let done = project.ends(&format!("runs {run}"), 0) + &project.ends(&format!("events {run}"), 0);
    assert!(!done.contains(KEY));
    project.ended_once(&run);
}

/// The hall refuses at the last moment.
#[test]
fn an_evening_that_may_not_be_is_taken_back() {
    let (project, hall, _server) = festival();
    let run = begin(&project, "Storm", 50);
    assert_eq!(hall.lock().unwrap().bookings.len(), 1);
    project.ends(&format!("signal {run} band.arrived"), 0);
    // It is cheap, so nobody is asked.
    let result = project.json(&format!("resume {run}"), 4);
    assert_eq!(result["status"], "undone", "{result}");
    assert_eq!(result["error"]["code"], "http_409");
    assert!(result["error"]["message"].as_str().unwrap().contains("not in this season"), "{result}");
    taken_back(&project, &hall);
    assert_eq!(project.read("board.jsonl"), "");
    project.ended_once(&run);
}

#[test]
fn an_evening_that_the_keeper_does_not_want_is_taken_back() {
    let (project, hall, _server) = festival();
    let run = begin(&project, "Tides", 400);
    project.ends(&format!("signal {run} band.ill"), 0);
    project.ends(&format!("resume {run} --no-wait"), 6);
    project.ends(&format!("reject {run} --reason too_dear"), 0);
    assert_eq!(project.json(&format!("resume {run}"), 4)["status"], "undone");
    taken_back(&project, &hall);
}

/// The host dies during the undo, and the resumed run undoes the rest.
#[test]
fn an_evening_is_taken_back_by_whoever_goes_on() {
    let (project, hall, _server) = festival();
    let script = ".drivers/printer/printer.sh";
    let slow = "rm -f \"$value\"\n      if [ -e slow ]; then echo begun > begun; sleep 600; fi";
    project.folder.write(script, project.read(script).replace("rm -f \"$value\"", slow)).write("slow", "");
    project.pipe("begun");
    let run = begin(&project, "Storm", 50);
    project.ends(&format!("signal {run} band.arrived"), 0);
    let going = project.begin(&format!("resume {run}"));
    assert_eq!(project.begun(), "begun");
    going.signal(Signal::KILL);
    going.end();
    fs::remove_file(project.path("slow")).unwrap();
    assert_eq!(project.json(&format!("resume {run}"), 4)["status"], "undone");
    taken_back(&project, &hall);
    project.ended_once(&run);
}
