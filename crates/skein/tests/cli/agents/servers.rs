//! Servers of tools: a step that names one has its tools, behind the same wall as the agent, and no other step has.

use std::{
    io::{BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    alone::for_each_agent,
    kind::Kind,
    model::{Call, Model, call, request, say},
    speak, tidings,
};
use crate::{kept::Project, session::run};

const TOLD: &str = "workflow: {id: told, name: Told, version: \"1.0.0\"}\nstages:\n  - id: tell\n    name: Tell\n    \
    roles:\n      primary: {artifact: \"agent:worker\", instructions: Tell it.}\n      tools: [\"mcp:tidings\"]\n    \
    error_policy: {retry: {max_attempts: 1}, on_failure: halt}\n";
const TOKEN: &str = "tok-hunter2-of-tidings";

for_each_agent!(
    a_tool_of_a_server_is_used,
    a_server_is_behind_the_wall,
    a_step_that_names_none_has_none,
    a_server_that_does_not_start,
    a_server_at_an_address_is_asked,
    without_a_network_there_is_no_server,
);

/// The server that the tests are built with.
fn tidings() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_skein")).with_file_name("examples/tidings");
    assert!(path.is_file(), "{} is not there; `cargo build -p skein --examples` builds it", path.display());
    path
}

/// A project whose agent may name the server, which writes to `said` below the project.
fn project(kind: Kind, model: &Model, capabilities: &str, workflow: &str) -> Project {
    let project = Project::new();
    let config = format!(
        "{}[agents.worker]\nworker = \"{}\"\ncapabilities = [{capabilities}]\n[mcp.tidings]\ncommand = [\"{}\"]\n\
         env = {{ TIDINGS = \"{}\" }}\nsecrets = [\"TIDINGS_TOKEN\"]\n[secrets]\nTIDINGS_TOKEN = {{ file = \"token\" }}\n",
        kind.config(&project.folder, model.port),
        kind.word,
        tidings().display(),
        project.path("said").display(),
    );
    project.folder.write("skein.toml", config).write("flow.yaml", workflow).write("token", TOKEN);
    project
}

fn tell(text: &str) -> Call {
    Call::Tool("tidings", "tell", json!({"text": text}))
}

fn a_tool_of_a_server_is_used(kind: Kind) {
    let said = format!("It was told with {TOKEN}.");
    let model = Model::new([call("", [tell("The tide is out.")]), say(&said)]);
    let project = project(kind, &model, "\"READ\", \"EDIT\"", TOLD);
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("said"), "The tide is out.\n");
    model.asked();
    assert!(model.asked().body.contains(&format!("told, with {TOKEN}")), "the server has its secret");
    let run = result["run_id"].as_str().unwrap();
    let log = project.ends(&format!("logs {run}"), 0);
    assert!(log.contains("It was told with ***.") && log.contains("tidings"), "{log}");
    // Nothing that is kept of the run has it.
    assert_eq!(having_the_secret(&project.path(&format!(".skein/runs/{run}"))), "");
}

/// The files below a folder that have the secret, but for what agents keep in their own homes.
fn having_the_secret(folder: &Path) -> String {
    let mut grep = std::process::Command::new("grep");
    run(grep.args(["-rla", TOKEN, "--exclude-dir=homes"]).arg(folder)).out
}

/// What only reads cannot write by way of a server either.
fn a_server_is_behind_the_wall(kind: Kind) {
    let model = Model::new([call("", [tell("I got out.")]), say("{\"done\": true}")]);
    let project = project(kind, &model, "\"READ\"", TOLD);
    project.ends("run flow.yaml", 0);
    model.asked();
    let answer = model.asked().body;
    assert!(answer.contains("not told: "), "the tool was called, and failed: {answer}");
    assert!(!project.path("said").exists());
}

fn a_step_that_names_none_has_none(kind: Kind) {
    let model = Model::new([say("Nothing to tell.")]);
    let workflow = TOLD.replace("      tools: [\"mcp:tidings\"]\n", "");
    let project = project(kind, &model, "\"READ\", \"EDIT\"", &workflow);
    project.ends("run flow.yaml", 0);
    assert!(!model.asked().body.contains("tidings"));
}

/// Work without what was asked for is no work.
fn a_server_that_does_not_start(kind: Kind) {
    let model = Model::new([say("Nothing to tell.")]);
    let project = project(kind, &model, "\"READ\", \"EDIT\"", TOLD);
    let config = project.read("skein.toml").replace("env = { TIDINGS = ", "env = { ELSE = ");
    project.folder.write("skein.toml", config);
    let result = project.json("run flow.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!(error["code"], "agent_server", "{result}");
    assert!(error["message"].as_str().unwrap().contains("tidings"), "{result}");
}

/// A server that is asked over HTTP. It tells whoever knows its secret alone.
fn listen(file: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let file = file.clone();
            std::thread::spawn(move || drop(respond(stream, &file)));
        }
    });
    port
}

fn respond(mut stream: TcpStream, file: &Path) -> std::io::Result<()> {
    let posted = request(&mut BufReader::new(stream.try_clone()?))?;
    let (status, body) = match posted {
        None => (405, String::new()),
        Some(posted) if posted.authorization != format!("Bearer {TOKEN}") => (401, String::new()),
        Some(posted) => match tidings::answer(&posted.body, file, "http") {
            Some(answer) => (200, answer.to_string()),
            None => (202, String::new()),
        },
    };
    stream.write_all(&speak::response(status, "application/json", &[], &body))
}

fn a_server_at_an_address_is_asked(kind: Kind) {
    let model = Model::new([call("", [tell("The tide is in.")]), say("Told.")]);
    let project = project(kind, &model, "\"READ\", \"EDIT\"", TOLD);
    let port = listen(project.path("said"));
    let config = project.read("skein.toml");
    let (before, _) = config.split_once("[mcp.tidings]").unwrap();
    let own = format!(
        "[mcp.tidings]\nurl = \"http://127.0.0.1:{port}/mcp\"\nbearer = \"TIDINGS_TOKEN\"\n[secrets]\n\
         TIDINGS_TOKEN = {{ file = \"token\" }}\n"
    );
    project.folder.write("skein.toml", format!("{before}{own}"));
    project.ends("run flow.yaml", 0);
    assert_eq!(project.read("said"), "The tide is in.\n");
}

/// Its agent needs a network to reach its model, so nothing would keep the server from it.
fn without_a_network_there_is_no_server(kind: Kind) {
    let model = Model::new([say("Nothing to tell.")]);
    let workflow = TOLD.to_owned() + "    x-skein: {network: none}\n";
    let project = project(kind, &model, "\"READ\", \"EDIT\"", &workflow);
    let result = project.json("run flow.yaml", 4);
    let message = result["steps"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("nothing keeps the server `tidings` of its agent from the network"), "{result}");
    assert_eq!(model.answers(), 0);
}
