//! HTTP tools: the requests, the interpretation of answers, refusals, and timeouts.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::server::{Reply, Server};
use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

const SECRET: &str = "the-key-of-the-depot-7f3a";

/// A project with one tool `send`, whose driver is a granted server on loopback.
pub(crate) fn project(server: &Server, call: &str, step: &str) -> Project {
    let project = Project::new();
    project.folder.write("key.txt", SECRET).write(
        "skein.toml",
        format!(
            "[secrets]\nDEPOT_KEY = {{ file = \"key.txt\" }}\n[drivers]\nprivate = [\"127.0.0.1:{}\"]\n",
            server.port
        ),
    );
    project.folder.write(".tools/send/TOOL.md", tool("send", ""));
    let about = format!(
        "kind: http\nbase_url: http://127.0.0.1:{}/v1\nnetwork: {{ egress: [127.0.0.1] }}\n\
         auth: {{ state: {{ env: [DEPOT_KEY] }} }}\ndefault_headers: {{ Authorization: \"Bearer ${{secrets.DEPOT_KEY}}\" }}\n\
         implements:\n  - tool: send\n    metadata: {{ http: {{ {call} }} }}\n",
        server.port
    );
    project.folder.write(".drivers/depot/DRIVER.md", driver("depot", &about));
    let step = format!("  - {{ id: only, kind: tool, tool: send, {step} }}\n");
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &step));
    project
}

/// Replaces a text in the driver's file.
fn change(project: &Project, from: &str, to: &str) {
    let path = ".drivers/depot/DRIVER.md";
    let text = project.read(path);
    assert!(text.contains(from), "{from}: {text}");
    project.folder.write(path, text.replace(from, to));
}

pub(crate) fn error(result: &Value) -> (String, String) {
    let text = |key: &str| result["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("message"))
}

#[test]
fn a_request_is_filled_in_and_its_answer_taken_out() {
    let server = Server::new(|asked| {
        Reply::json(&json!({"data": [{"id": 7, "heard": asked.header("authorization")}], "more": "no"}))
    });
    let call = "endpoint: \"/parcels/${input.id}\", method: PUT, query_template: { note: \"${input.note}\", none: \"${input.none}\" }, \
                body_template: { to: \"${input.to}\", grams: \"${input.grams}\" }, response_extract: \"$.data[0]\", \
                idempotency_key_header: Idempotency-Key";
    let step = "inputs: { id: \"a/b?c=1\", note: \"x&admin=1\", to: { name: \"q\\\"}, \\\"x\\\": 1\" }, grams: 12 }";
    let project = project(&server, call, step);
    let result = project.json("run one", 0);
    let asked = server.next();
    assert_eq!(asked.line(), "PUT /v1/parcels/a%2Fb%3Fc%3D1?note=x%26admin%3D1");
    assert_eq!(asked.json(), json!({"to": {"name": "q\"}, \"x\": 1"}, "grams": 12}));
    assert_eq!(asked.header("authorization"), format!("Bearer {SECRET}"));
    assert_eq!(asked.header("idempotency-key").len(), 32);
    // The secret in the answer is not passed on, and no stored file has it.
    assert_eq!(result["outputs"]["id"], 7);
    assert!(!result.to_string().contains(SECRET), "{result}");
    let run = result["run_id"].as_str().unwrap();
    assert!(project.ends(&format!("logs {run}"), 0).contains("PUT: status 200"));
    let kept = std::process::Command::new("grep")
        .args(["-rlF", SECRET, ".skein"])
        .current_dir(&project.folder.0)
        .output()
        .expect("grep is there");
    assert_eq!(String::from_utf8_lossy(&kept.stdout), "");
    project.ended_once(run);
}

#[test]
fn a_status_is_an_error_that_workflows_know() {
    for (status, headers, code) in [
        ("400 Bad Request", "", "input_invalid"),
        ("401 Unauthorized", "", "auth_required"),
        ("403 Forbidden", "", "unauthorised"),
        ("404 Not Found", "", "not_found"),
        ("409 Conflict", "", "http_409"),
        ("419 Expired", "", "auth_required"),
        ("200 OK", "x-login: gone\r\n", "auth_required"),
    ] {
        let server = Server::new(move |_| Reply::new(status, headers, "{\"error\": {\"message\": \"so it is\"}}"));
        let project = project(&server, "endpoint: /x", "inputs: {}");
        let detect = if status.starts_with("200") { "header:X-Login:gone" } else { "http_status:419" };
        change(&project, "DEPOT_KEY] }", &format!("DEPOT_KEY] }}, expiry: {{ detect: \"{detect}\" }}"));
        let (found, message) = error(&project.json("run one", 4));
        assert_eq!(found, code, "{status}: {message}");
        assert_eq!(server.all().len(), 1, "{status} is not tried again");
    }
}

#[test]
fn what_may_pass_is_tried_again_with_the_same_key() {
    for status in ["408 Late", "425 Early", "429 Busy", "500 Ill", "503 Gone"] {
        let count = AtomicUsize::new(0);
        let server = Server::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::new(status, "retry-after: 0\r\n", "later"),
            _ => Reply::json(&json!({"done": true})),
        });
        let call = "endpoint: /x, idempotency_key_header: Idempotency-Key";
        let retry = "retry: { max_attempts: 3, backoff: fixed, initial_ms: 10 }";
        let project = project(&server, call, retry);
        let result = project.json("run one", 0);
        assert_eq!(result["outputs"], json!({"done": true}), "{status}");
        let (first, second) = (server.next(), server.next());
        assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"), "{status}");
    }
}

/// The request is not retried before the requested time, and not at all if the run does not wait that long.
#[test]
fn a_server_that_asks_to_be_left_alone_is_so() {
    let server = Server::new(|_| Reply::new("429 Busy", "retry-after: 1800\r\n", "later"));
    let retry = "retry: { max_attempts: 2, backoff: fixed, initial_ms: 1 }";
    let project = project(&server, "endpoint: /x", retry);
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    let line: Value = serde_json::from_str(&going.until("retry_scheduled")).expect("it is JSON");
    let due = line["event"]["retry_scheduled"]["due"].as_u64().expect("it is due");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
    let wait = due.saturating_sub(u64::try_from(now.as_millis()).expect("it is not so late"));
    assert!((1_000_000..=1_800_000).contains(&wait), "{wait}");
    project.ends(&format!("cancel {run}"), 0);
    going.end();
    assert_eq!(server.all().len(), 1);
}

#[test]
fn what_may_not_be_reached_is_refused() {
    let far = Server::new(|_| Reply::json(&json!({})));
    let elsewhere = format!("location: http://127.0.0.1:{}/x\r\n", far.port);
    let metadata = "location: http://169.254.169.254/latest\r\n";
    let other = "location: https://example.org/x\r\n";
    for to in [elsewhere.clone(), metadata.to_owned(), other.to_owned()] {
        for (status, method) in [("302 Found", "GET"), ("307 On", "POST")] {
            let to = to.clone();
            let server = Server::new(move |_| Reply::new(status, &to, ""));
            let project = project(&server, &format!("endpoint: /x, method: {method}"), "inputs: {}");
            let (code, message) = error(&project.json("run one", 4));
            assert_eq!(code, "unauthorised", "{message}");
            assert!(message.contains("redirects to another origin"), "{message}");
        }
    }
    assert!(far.all().is_empty(), "nobody was sent on");
    // A grant names a host with its port; the driver names only the host.
    let server = Server::new(|_| Reply::json(&json!({})));
    let project = project(&server, "endpoint: /x", "inputs: {}");
    let granted = project.read("skein.toml");
    project.folder.write("skein.toml", granted.replace(&server.port.to_string(), "1"));
    let said = project.ends("run one", 5);
    assert!(said.contains("not encrypted") && said.contains("`private` of `[drivers]`"), "{said}");
    project.folder.write("skein.toml", granted);
    change(&project, "egress: [127.0.0.1]", "egress: [\"*.example.org\"]");
    let said = project.ends("run one", 5);
    assert!(said.contains("`network.egress` does not name it") && said.contains("no_route"), "{said}");
    change(&project, "egress: [\"*.example.org\"]", "egress: []");
    assert!(project.ends("run one", 5).contains("names no host in `network.egress`"));
    // An address that is known only after the lookup: a name of this machine.
    change(&project, "egress: []", "egress: [localhost]");
    change(&project, "http://127.0.0.1", "https://localhost");
    let (code, message) = error(&project.json("run one", 4));
    assert_eq!(code, "unauthorised", "{message}");
    assert!(message.contains("only private addresses"), "{message}");
    assert!(server.all().is_empty(), "nothing was sent");
}

#[test]
fn a_server_sends_on_within_itself_a_few_times() {
    let server = Server::new(|asked| match asked.path.as_str() {
        "/v1/x" => Reply::new("302 Found", "location: /v1/y\r\n", ""),
        "/v1/y" => Reply::json(&json!({"at": "y"})),
        _ => Reply::new("307 On", "location: /v1/round\r\n", ""),
    });
    let project = project(&server, "endpoint: \"/${input.to}\", method: GET", "inputs: { to: x }");
    assert_eq!(project.json("run one", 0)["outputs"], json!({"at": "y"}));
    let step = "  - { id: only, kind: tool, tool: send, inputs: { to: round } }\n";
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", step));
    let (_, message) = error(&project.json("run one", 4));
    assert!(message.contains("more than 5 times"), "{message}");
}

#[test]
fn values_do_not_leave_their_place() {
    let server = Server::new(|_| Reply::json(&json!({})));
    for (call, input) in [
        ("endpoint: \"/a/${input.v}/b\"", "\"..\""),
        ("endpoint: \"/a/${input.v}\"", "\"\""),
        ("endpoint: /a, headers: { X-Who: \"${input.v}\" }", "\"a\\r\\nX-Evil: 1\""),
        ("endpoint: /a, headers: { X-Who: \"${input.v}\" }", "\"a\\nb\""),
        ("endpoint: \"/a/${input.other}\"", "x"),
    ] {
        let project = project(&server, call, &format!("inputs: {{ v: {input} }}"));
        let (code, message) = error(&project.json("run one", 4));
        assert_eq!(code, "input_invalid", "{call}: {message}");
    }
    assert!(server.all().is_empty(), "nothing was sent");
}

#[test]
fn schemas_hold_for_servers_too() {
    let server = Server::new(|_| Reply::json(&json!({"n": "text"})));
    let project = project(&server, "endpoint: /x", "inputs: { n: 1 }");
    let strict = |part: &str, schema: &str| {
        let from = format!("{part}: {{ type: object }}");
        project.folder.write(".tools/send/TOOL.md", tool("send", "").replace(&from, &format!("{part}: {schema}")));
    };
    strict("inputs", "{ type: object, properties: { n: { type: string } } }");
    assert_eq!(error(&project.json("run one", 4)).0, "input_invalid");
    assert!(server.all().is_empty(), "nothing was sent");
    strict("outputs", "{ type: object, properties: { n: { type: integer } } }");
    assert_eq!(error(&project.json("run one", 4)).0, "output_invalid");
}

#[test]
fn an_answer_may_be_too_large_or_too_slow() {
    for head in ["", "content-type: application/json\r\n"] {
        let server = Server::new(move |_| Reply::Endless(head.to_owned()));
        let project = project(&server, "endpoint: /x", "inputs: {}");
        let (code, message) = error(&project.json("run one", 4));
        assert_eq!(code, "output_invalid", "{message}");
        assert!(message.contains("longer than"), "{message}");
        server.until_gone();
    }
    let server = Server::new(|_| Reply::Never);
    let project = project(&server, "endpoint: /x", "inputs: {}, timeout_ms: 300");
    let result = project.json("run one", 4);
    assert_eq!(result["steps"][0]["status"], "timed_out", "{result}");
    server.until_gone();
}

#[test]
fn a_request_that_is_called_off_ends_at_once() {
    let server = Server::new(|_| Reply::Never);
    let project = project(&server, "endpoint: /x", "inputs: {}, timeout_ms: 600000");
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    server.next();
    project.ends(&format!("cancel {run}"), 0);
    assert_eq!(going.end().0, Some(4));
    server.until_gone();
    assert_eq!(project.status(&run), "cancelled");
    project.ended_once(&run);
}

/// The host dies while it waits: the request is sent again, with the same idempotency key.
#[test]
fn a_request_that_was_cut_off_is_sent_again() {
    let count = AtomicUsize::new(0);
    let server = Server::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Never,
        _ => Reply::json(&json!({"done": true})),
    });
    let call = "endpoint: /x, idempotency_key_header: Idempotency-Key";
    let project = project(&server, call, "inputs: {}, timeout_ms: 600000");
    let going = project.begin("run one --format jsonl");
    let run = going.run();
    let first = server.next();
    going.signal(Signal::KILL);
    going.end();
    project.ends(&format!("resume {run}"), 0);
    assert_eq!(first.header("idempotency-key"), server.next().header("idempotency-key"));
    project.ended_once(&run);
}

#[test]
fn a_recording_is_replayed_without_the_server() {
    let server = Server::new(|_| Reply::json(&json!({"n": 5})));
    let project = project(&server, "endpoint: /x", "inputs: {}");
    let result = project.json("run one --record tape", 0);
    assert_eq!(server.all().len(), 1);
    let again = project.json("run one --replay tape", 0);
    assert_eq!(again["outputs"], result["outputs"]);
    assert!(server.all().is_empty(), "nobody was asked");
}

#[test]
fn a_server_that_is_not_well_is_passed_over() {
    let server = Server::new(|asked| match asked.path.as_str() {
        "/up" => Reply::new("204 Well", "", ""),
        _ => Reply::new("500 Ill", "", ""),
    });
    let project = project(&server, "endpoint: /x", "inputs: {}");
    let check = |path: &str, status: u16| {
        format!(
            "health_check: {{ method: http, http: {{ method: GET, url: \"http://127.0.0.1:{}{path}\", expect_status: {status} }} }}\n",
            server.port
        )
    };
    change(&project, "implements:", &format!("{}implements:", check("/up", 204)));
    let plan = project.ends("plan one", 0);
    assert!(plan.contains("done by the driver depot"), "{plan}");
    change(&project, &check("/up", 204), &check("/down", 200));
    let said = project.ends("run one", 5);
    assert!(said.contains("failed its health check: its server answered with status 500"), "{said}");
}

#[test]
fn what_a_driver_lacks_is_told_before_the_run() {
    let server = Server::new(|_| Reply::json(&json!({})));
    for (from, to, says) in [
        ("base_url: http", "tags: [a]\nmetadata: { x: y }\nexamples: []\nrate_limit: {} # http", "has no `base_url`"),
        ("metadata: { http: { endpoint: /x } }", "version: \"*\"", "the request for this tool"),
        ("endpoint: /x", "endpoint: /x, streaming: { transport: sse }", "streams its responses"),
        ("${secrets.DEPOT_KEY}", "${secrets.OTHER_KEY}", "needs the secret `OTHER_KEY`"),
        ("kind: http", "kind: sdk", "this engine does not run third-party code"),
    ] {
        let project = project(&server, "endpoint: /x", "inputs: {}");
        change(&project, from, to);
        let said = project.ends("run one", 5);
        assert!(said.contains(says), "{says}: {said}");
    }
}

/// Kinds of drivers have an order, and a pin is obeyed or refused.
#[test]
fn a_kind_comes_before_another() {
    let server = Server::new(|_| Reply::json(&json!({"by": "server"})));
    let project = project(&server, "endpoint: /x", "inputs: {}");
    let add = |id: &str, more: &str| {
        let about = format!("{more}implements: [{{ tool: send }}]\n");
        project.folder.write(&format!(".drivers/{id}/DRIVER.md"), driver(id, &about));
    };
    add("a-program", "kind: cli\nbin: cat\n");
    add("a-speaker", "kind: mcp\nserver: { kind: binary, path: cat }\n");
    let plan = project.ends("plan one", 0);
    assert!(plan.contains("done by the driver depot: the kind http comes before mcp"), "{plan}");
    assert!(plan.contains("passes over a-program") && plan.contains("the kind http comes before cli"), "{plan}");
    let function = "kind: builtin\nimplements: [{ tool: send, metadata: { builtin: { function: sleep } } }]\n";
    project.folder.write(".drivers/own/DRIVER.md", driver("own", function));
    let plan = project.ends("plan one", 0);
    assert!(plan.contains("done by the driver own: the kind builtin comes before http"), "{plan}");
    let pinned = |to: &str| {
        let step = format!("  - {{ id: only, kind: tool, tool: send, pinned_provider: {to} }}\n");
        project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &step));
    };
    pinned("depot");
    assert_eq!(project.json("run one", 0)["outputs"], json!({"by": "server"}));
    change(&project, "egress: [127.0.0.1]", "egress: [example.org]");
    let said = project.ends("run one", 5);
    assert!(said.contains("pinned to the driver `depot`, which may not reach the host"), "{said}");
    assert!(said.contains("pinned_provider_unavailable"), "{said}");
    let step = "  - { id: only, kind: tool, action: \"parcel:send\" }\n";
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", step));
    let said = project.ends("run one", 5);
    assert!(said.contains("no tool here implements the action `parcel:send`"), "{said}");
}
