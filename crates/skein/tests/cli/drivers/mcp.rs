//! MCP tools: over pipes and over HTTP, with servers that answer and servers that misbehave.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Asked, Reply, Server};
use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// A server that is a script. Its first argument defines its behaviour.
const DESK: &str = r#"#!/usr/bin/env bash
echo $$ >> pids.txt
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
    echo "$line" >> heard.jsonl
    id=0
    [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    answer() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,$1}"; }
    case $line in
        *'"method":"initialize"'*)
            [[ $1 == silent ]] && { echo begun > begun; sleep 600; }
            [[ $1 == dies ]] && { echo "no paper" >&2; exit 3; }
            [[ $1 == leaves ]] && { echo "nothing to do" >&2; exit 0; }
            [[ $1 == garbage ]] && { say "hello"; say "{]"; sleep 600; }
            [[ $1 == floods ]] && exec yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
            [[ $1 == line ]] && exec tr '\0' x < /dev/zero
            answer '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"desk","version":"1"}}' ;;
        *'"method":"tools/list"'*)
            answer '"result":{"tools":[{"name":"stamp","inputSchema":{"type":"object"}}]}' ;;
        *'"method":"tools/call"'*'"name":"stamp"'*)
            case $1 in
                value) answer "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"structuredContent\":{\"key\":\"$DESK_KEY\",\"n\":[{\"id\":4}]}}" ;;
                text) answer '"result":{"content":[{"type":"text","text":"stamped"}]}' ;;
                refuses) answer '"result":{"content":[{"type":"text","text":"no ink"}],"isError":true}' ;;
                later) answer '"result":{"content":[],"structuredContent":{"code":"rate_limited","message":"busy"},"isError":true}' ;;
                wrong) answer '"error":{"code":-32602,"message":"what ink?"}' ;;
                broken) answer '"error":{"code":-32603,"message":"out of order"}' ;;
                stays) trap '' TERM; answer '"result":{"content":[{"type":"text","text":"stamped"}]}'; exec sleep 600 < /dev/null > /dev/null ;;
                hangs) [ -e ready ] || { echo begun > begun; sleep 600; }; answer '"result":{"content":[]}'; exit 0 ;;
            esac ;;
        *'"method":"tools/call"'*) answer '"error":{"code":-32602,"message":"no such tool"}' ;;
    esac
done
"#;

/// A project with one tool `note`, whose driver uses that server.
fn project(mode: &str, step: &str) -> Project {
    let project = Project::new();
    project.folder.write("key.txt", "the-key-of-the-desk-19b2");
    project.folder.write("skein.toml", "[secrets]\nDESK = { file = \"key.txt\" }\n");
    project.folder.write(".tools/note/TOOL.md", tool("note", ""));
    let about = format!(
        "kind: mcp\ntransport: stdio\nserver: {{ kind: binary, path: ./desk.sh, args: [{mode}], env: {{ DESK_KEY: \"${{secrets.DESK}}\" }} }}\n\
         implements:\n  - tool: note\n    metadata: {{ mcp: {{ tool_name: stamp, argument_mapping: {{ text: ink }} }} }}\n"
    );
    project.folder.write(".drivers/desk/DRIVER.md", driver("desk", &about)).write(".drivers/desk/desk.sh", DESK);
    let script = project.path(".drivers/desk/desk.sh");
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let step = format!("  - {{ id: only, kind: tool, tool: note, inputs: {{ text: blue }}, {step} }}\n");
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &step));
    project
}

/// Asserts that every started server is gone.
fn all_gone(project: &Project) {
    assert!(!project.read("pids.txt").is_empty(), "none was started");
    assert_eq!(project.processes(), [], "some still live");
}

fn fails(mode: &str, step: &str) -> (String, String) {
    let project = project(mode, step);
    let result = project.json("run one", 4);
    all_gone(&project);
    let text = |key: &str| result["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("message"))
}

#[test]
fn a_tool_of_a_program_is_called() {
    let project = project("value", "timeout_ms: 60000");
    let path = ".drivers/desk/DRIVER.md";
    project
        .folder
        .write(path, project.read(path).replace("tool_name: stamp,", "tool_name: stamp, result_extract: \"$.n[0]\","));
    let result = project.json("run one", 0);
    assert_eq!(result["outputs"], json!({"id": 4}));
    let heard: Vec<Value> =
        project.read("heard.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let methods: Vec<&str> = heard.iter().filter_map(|message| message["method"].as_str()).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call"]);
    assert_eq!(heard[2]["params"]["arguments"], json!({"ink": "blue"}));
    assert_eq!(heard[0]["params"]["clientInfo"]["name"], "skein");
    all_gone(&project);
    project.ended_once(result["run_id"].as_str().unwrap());
}

#[test]
fn what_a_tool_gives_may_be_text_or_a_value() {
    let text = project("text", "timeout_ms: 60000");
    assert_eq!(text.json("run one", 0)["outputs"], json!({"text": "stamped"}));
    let value = project("value", "timeout_ms: 60000");
    let result = value.json("run one", 0);
    assert_eq!(result["outputs"]["n"], json!([{"id": 4}]));
    let said = result.to_string();
    assert!(!said.contains("the-key-of-the-desk") && said.contains("\"key\""), "{said}");
}

#[test]
fn a_server_that_does_not_end_is_ended() {
    let project = project("stays", "timeout_ms: 60000");
    assert_eq!(project.json("run one", 0)["outputs"], json!({"text": "stamped"}));
    all_gone(&project);
}

#[test]
fn what_a_server_refuses_is_an_error_that_workflows_know() {
    for (mode, code, says) in [
        ("refuses", "tool_error", "no ink"),
        ("later", "rate_limited", "busy"),
        ("wrong", "input_invalid", "what ink?"),
        ("broken", "upstream_error", "out of order"),
        ("leaves", "upstream_error", "nothing to do"),
        ("floods", "output_invalid", "sent more than"),
        ("line", "output_invalid", "sent more than"),
    ] {
        let (found, message) = fails(mode, "timeout_ms: 60000");
        assert_eq!(found, code, "{mode}: {message}");
        assert!(message.contains(says), "{mode}: {message}");
    }
    let (_, message) = fails("dies", "timeout_ms: 60000");
    assert!(message.contains("exit status 3") && message.contains("no paper"), "{message}");
}

#[test]
fn a_tool_that_a_server_does_not_have_is_told_with_those_that_it_has() {
    let project = project("value", "timeout_ms: 60000");
    let path = ".drivers/desk/DRIVER.md";
    project.folder.write(path, project.read(path).replace("tool_name: stamp", "tool_name: stmap"));
    let result = project.json("run one", 4);
    assert_eq!(result["error"]["code"], "not_found");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("no tool `stmap`; it has `stamp`"), "{message}");
}

#[test]
fn a_server_that_never_answers_is_ended_in_time() {
    for mode in ["silent", "garbage", "hangs"] {
        let project = project(mode, "timeout_ms: 500");
        let result = project.json("run one", 4);
        assert_eq!(result["steps"][0]["status"], "timed_out", "{mode}: {result}");
        all_gone(&project);
    }
}

#[test]
fn a_conversation_that_is_called_off_ends_with_its_server() {
    for mode in ["silent", "hangs"] {
        let project = project(mode, "timeout_ms: 600000");
        let going = project.begin("run one --format jsonl");
        let run = going.run();
        assert_eq!(project.begun(), "begun");
        project.ends(&format!("cancel {run}"), 0);
        assert_eq!(going.end().0, Some(4), "{mode}");
        assert_eq!(project.status(&run), "cancelled", "{mode}");
        all_gone(&project);
        project.ended_once(&run);
    }
}

/// The host is killed while a server is busy: the resumed run ends the old server and starts another.
#[test]
fn no_server_outlives_a_host_that_was_killed() {
    let project = project("hangs", "timeout_ms: 600000");
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    assert_eq!(project.begun(), "begun");
    going.signal(Signal::KILL);
    going.end();
    project.folder.write("ready", "");
    project.ends(&format!("resume {run}"), 0);
    assert_eq!(project.read("pids.txt").lines().count(), 2);
    all_gone(&project);
    project.ended_once(&run);
}

#[test]
fn a_server_that_cannot_be_started_is_told_before_the_run() {
    for (from, to, says) in [
        ("path: ./desk.sh", "path: ./desc.sh", "desc.sh`"),
        ("server: { kind: binary, path: ./desk.sh,", "server: { kind: npm, package: a,", "of the kind npm"),
        ("${secrets.DESK}", "${secrets.DESC}", "needs the secret `DESC`"),
    ] {
        let project = project("value", "timeout_ms: 60000");
        let path = ".drivers/desk/DRIVER.md";
        project.folder.write(path, project.read(path).replace(from, to));
        let said = project.ends("run one", 5);
        assert!(said.contains(says), "{to}: {said}");
    }
}

/// A server over HTTP: with an event stream, or with plain answers.
fn over_http(streams: bool) -> Server {
    Server::new(move |asked: &Asked| {
        if asked.method != "POST" {
            return Reply::new("405 No", "", "");
        }
        let message = asked.json();
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "desk", "version": "1"},
            }),
            Some("tools/call") => json!({
                "content": [],
                "structuredContent": {"heard": message["params"], "session": asked.header("mcp-session-id")},
            }),
            _ => return Reply::new("202 Accepted", "", ""),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let session = "mcp-session-id: s-1\r\n";
        match streams {
            true => {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
                let body = format!(": hello\n\nevent: message\ndata: {progress}\n\ndata: {answer}\n\n");
                Reply::new("200 OK", &format!("content-type: text/event-stream\r\n{session}"), &body)
            }
            false => {
                let kind = "content-type: application/json; charset=utf-8\r\n";
                Reply::new("200 OK", &format!("{kind}{session}"), &answer.to_string())
            }
        }
    })
}

fn remote(server: &Server, step: &str) -> Project {
    let project = project("value", step);
    project.folder.write(
        "skein.toml",
        format!("[secrets]\nDESK = {{ file = \"key.txt\" }}\n[drivers]\nprivate = [\"127.0.0.1:{}\"]\n", server.port),
    );
    let about = format!(
        "kind: mcp\ntransport: http\nnetwork: {{ egress: [127.0.0.1] }}\n\
         server: {{ kind: remote, url: \"http://127.0.0.1:{}/mcp\", headers: {{ Authorization: \"Bearer ${{secrets.DESK}}\" }} }}\n\
         implements: [{{ tool: note, metadata: {{ mcp: {{ tool: stamp }} }} }}]\n",
        server.port
    );
    project.folder.write(".drivers/desk/DRIVER.md", driver("desk", &about));
    project
}

#[test]
fn a_tool_is_called_over_http() {
    for streams in [false, true] {
        let server = over_http(streams);
        let result = remote(&server, "timeout_ms: 60000").json("run one", 0);
        let heard = json!({"name": "stamp", "arguments": {"text": "blue"}});
        let mut given = result["outputs"].clone();
        given["heard"].as_object_mut().unwrap().retain(|name, _| name != "_meta");
        assert_eq!(given, json!({"heard": heard, "session": "s-1"}), "{streams}");
        let asked = server.all();
        assert!(asked.iter().all(|one| one.header("authorization") == "Bearer the-key-of-the-desk-19b2"));
        assert!(asked.iter().any(|one| one.method == "DELETE"), "the session is ended: {asked:?}");
    }
}

#[test]
fn what_goes_wrong_over_http_is_told() {
    for (status, code) in [
        ("401 Unauthorized", "auth_required"),
        ("404 Gone", "not_found"),
        ("429 Busy", "rate_limited"),
        ("500 Ill", "upstream_error"),
        ("307 On", "http_307"),
    ] {
        let server = Server::new(move |_| Reply::new(status, "location: https://example.org/\r\n", "{}"));
        let result = remote(&server, "timeout_ms: 60000").json("run one", 4);
        assert_eq!(result["error"]["code"], code, "{status}: {result}");
    }
    let server = Server::new(|_| Reply::Endless("content-type: text/event-stream\r\n".to_owned()));
    let result = remote(&server, "timeout_ms: 60000").json("run one", 4);
    assert_eq!(result["error"]["code"], "output_invalid", "{result}");
    let server = over_http(false);
    let project = remote(&server, "timeout_ms: 60000");
    project.folder.write("skein.toml", "[secrets]\nDESK = { file = \"key.txt\" }\n");
    assert!(project.ends("run one", 5).contains("not encrypted"));
    assert!(server.all().is_empty());
}

#[test]
fn a_conversation_over_http_ends_in_time_and_when_it_is_called_off() {
    let server = Server::new(|_| Reply::Never);
    let result = remote(&server, "timeout_ms: 300").json("run one", 4);
    assert_eq!(result["steps"][0]["status"], "timed_out", "{result}");
    server.until_gone();
    server.next();
    let project = remote(&server, "timeout_ms: 600000");
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    server.next();
    project.ends(&format!("cancel {run}"), 0);
    assert_eq!(going.end().0, Some(4));
    assert_eq!(project.status(&run), "cancelled");
    project.ended_once(&run);
}
