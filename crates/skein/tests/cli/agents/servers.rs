//! MCP servers: a step that names one has its tools, in the same sandbox as the agent, and no other step has them.

use std::{
    io::{BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;

use super::{
    alone::{alone, for_each_agent},
    kind::{Kind, OPENCODE},
    model::{Call, Model, call, gone, request, say},
    speak,
    tidings::{self, Flaw, How},
};
use crate::{kept::Project, session::run};

const TOLD: &str = "workflow: {id: told, name: Told, version: \"1.0.0\"}\nstages:\n  - id: tell\n    name: Tell\n    \
    roles:\n      primary: {artifact: \"agent:worker\", instructions: Tell it.}\n      tools: [\"mcp:tidings\"]\n    \
    error_policy: {retry: {max_attempts: 1}, on_failure: halt}\n";
const TOKEN: &str = "tok-hunter2-of-tidings";
/// A shorter start timeout than the default.
const SOON: &str = "start_timeout_ms = 2000\n";

for_each_agent!(
    a_tool_of_a_server_is_used,
    a_server_is_behind_the_wall,
    a_step_that_names_none_has_none,
    a_server_that_does_not_start,
    a_server_at_an_address_is_asked,
    a_server_that_is_late_is_waited_for,
    a_server_that_lists_its_tools_late_is_waited_for,
    a_server_that_never_answers,
    a_server_at_an_address_that_never_answers,
    a_server_that_never_lists_its_tools,
    a_server_that_leaves_when_it_is_to_list_its_tools,
    without_a_network_there_is_no_server,
);

/// The MCP server that is built with the tests.
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
    // No stored file of the run has the secret.
    assert_eq!(having_the_secret(&project.path(&format!(".skein/runs/{run}"))), "");
}

/// The files below a folder that contain the secret, except those that agents keep in their own homes.
fn having_the_secret(folder: &Path) -> String {
    let mut grep = std::process::Command::new("grep");
    run(grep.args(["-rla", TOKEN, "--exclude-dir=homes"]).arg(folder)).out
}

/// A read-only step cannot write through a server either.
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

/// A step without the server that it names fails.
fn a_server_that_does_not_start(kind: Kind) {
    let model = Model::new([say("Nothing to tell.")]);
    let project = project(kind, &model, "\"READ\", \"EDIT\"", TOLD);
    let config = project.read("skein.toml").replace("env = { TIDINGS = ", "env = { ELSE = ");
    project.folder.write("skein.toml", config);
    is_missed(&project);
}

/// An MCP server over HTTP, which answers only requests that have its secret.
fn listen(file: PathBuf, flaw: Flaw) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let server = Arc::new((file, flaw));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            std::thread::spawn(move || drop(respond(stream, &server.0, &server.1)));
        }
    });
    port
}

fn respond(mut stream: TcpStream, file: &Path, flaw: &Flaw) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let posted = request(&mut reader)?;
    match posted.as_ref().and_then(|posted| flaw.of(&posted.body)) {
        Some(How::Late(time)) => std::thread::sleep(time),
        Some(How::Never) => return gone(&mut reader),
        Some(How::Leaves) => return Ok(()),
        None => {}
    }
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

/// A project whose server is at an address and has this flaw. `more` is appended to its configuration.
fn at_an_address(kind: Kind, model: &Model, flaw: &str, more: &str) -> Project {
    let project = project(kind, model, "\"READ\", \"EDIT\"", TOLD);
    let port = listen(project.path("said"), Flaw::new(flaw));
    let config = project.read("skein.toml");
    let (before, _) = config.split_once("[mcp.tidings]").unwrap();
    let own = format!(
        "[mcp.tidings]\nurl = \"http://127.0.0.1:{port}/mcp\"\nbearer = \"TIDINGS_TOKEN\"\n{more}[secrets]\n\
         TIDINGS_TOKEN = {{ file = \"token\" }}\n"
    );
    project.folder.write("skein.toml", format!("{before}{own}"));
    project
}

/// The same with a server that is started as a process.
fn started(kind: Kind, model: &Model, flaw: &str, more: &str) -> Project {
    let project = project(kind, model, "\"READ\", \"EDIT\"", TOLD);
    let flawed = format!("{more}env = {{ TIDINGS_FLAW = \"{flaw}\", ");
    project
        .folder
        .write("skein.toml", project.read("skein.toml").replace("env = { TIDINGS", &format!("{flawed}TIDINGS")));
    project
}

fn is_told(project: &Project) {
    project.ends("run flow.yaml", 0);
    assert_eq!(project.read("said"), "The tide is in.\n");
}

/// Asserts that the run fails because of the server.
fn is_missed(project: &Project) {
    let result = project.json("run flow.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!((&error["code"], &error["class"]), (&json!("agent_server"), &json!("transient")), "{result}");
    assert!(error["message"].as_str().unwrap().contains("tidings"), "{result}");
}

/// A model that calls the tool of the server.
fn teller() -> Model {
    Model::new([call("", [tell("The tide is in.")]), say("Told.")])
}

fn a_server_at_an_address_is_asked(kind: Kind) {
    let model = teller();
    is_told(&at_an_address(kind, &model, "", ""));
}

/// The server is later than the agent's own start timeout.
fn a_server_that_is_late_is_waited_for(kind: Kind) {
    let model = teller();
    is_told(&at_an_address(kind, &model, "initialize 6", ""));
}

fn a_server_that_lists_its_tools_late_is_waited_for(kind: Kind) {
    let model = teller();
    is_told(&started(kind, &model, "tools/list 6", ""));
}

fn a_server_that_never_answers(kind: Kind) {
    let model = teller();
    is_missed(&started(kind, &model, "initialize never", SOON));
}

fn a_server_at_an_address_that_never_answers(kind: Kind) {
    let model = teller();
    is_missed(&at_an_address(kind, &model, "initialize never", SOON));
}

/// The server starts, but never lists its tools.
fn a_server_that_never_lists_its_tools(kind: Kind) {
    let model = teller();
    is_missed(&at_an_address(kind, &model, "tools/list never", SOON));
}

fn a_server_that_leaves_when_it_is_to_list_its_tools(kind: Kind) {
    let model = teller();
    is_missed(&started(kind, &model, "tools/list leaves", ""));
}

alone! {
    /// The connection is closed, which also happens to OpenCode on a busy machine. It would silently continue without
    /// the tools.
    fn a_server_that_hangs_up_is_asked_again() {
        let model = teller();
        is_told(&at_an_address(OPENCODE, &model, "tools/list leaves once", ""));
    }
}

alone! {
    /// The connection to the server does not depend on a separate home of the agent.
    fn a_server_is_had_beside_what_a_person_has_set_up() {
        let model = teller();
        let project = at_an_address(OPENCODE, &model, "", "");
        let config = project.read("skein.toml");
        let inherits = config.replace("[workers.OPENCODE]\n", "[workers.OPENCODE]\ninherit_config = true\n");
        project.folder.write("skein.toml", inherits);
        // The files that OpenCode downloads for plugins on its first start.
        let lock = json!({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}});
        let home = "nobody/.config/opencode";
        project.folder.write(&format!("{home}/package-lock.json"), lock.to_string());
        project.folder.write(&format!("{home}/node_modules/none"), "");
        is_told(&project);
    }
}

/// The agent needs a network to reach its model, so nothing would keep the server from that network.
fn without_a_network_there_is_no_server(kind: Kind) {
    let model = Model::new([say("Nothing to tell.")]);
    let workflow = TOLD.to_owned() + "    x-skein: {network: none}\n";
    let project = project(kind, &model, "\"READ\", \"EDIT\"", &workflow);
    let result = project.json("run flow.yaml", 4);
    let message = result["steps"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("network access of the agent's tool server `tidings` cannot be blocked"), "{result}");
    assert_eq!(model.answers(), 0);
}
