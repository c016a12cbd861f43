//! Built-in functions that use the network: fetching a page, and notifying people.

use serde_json::{Value, json};

use super::{
    http::error,
    server::{Reply, Server},
};
use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// A project whose driver is a built-in function that uses the network.
fn own(server: &Server, function: &str, step: &str) -> Project {
    let project = Project::new();
    project.folder.write(
        "skein.toml",
        format!(
            "[drivers]\nprivate = [\"127.0.0.1:{0}\"]\n[channels.log]\nkind = \"file\"\npath = \"told.jsonl\"\n\
             [channels.hook]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{0}/hook\"\nprivate = true\n\
             [channels.program]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"cat >> program.jsonl\"]\n",
            server.port
        ),
    );
    project.folder.write(&format!(".tools/{function}/TOOL.md"), tool(function, ""));
    let about = format!("kind: builtin\nnetwork: {{ egress: [127.0.0.1] }}\nimplements: [{{ tool: {function} }}]\n");
    project.folder.write(".drivers/own/DRIVER.md", driver("own", &about));
    let step = format!("  - {{ id: only, kind: tool, tool: {function}, {step} }}\n");
    project.folder.write(".workflows/one/WORKFLOW.md", workflow("one", &step));
    project
}

#[test]
fn a_page_is_read_by_our_own_function() {
    let server = Server::new(|asked| match asked.path.as_str() {
        "/n" => Reply::json(&json!({"n": 3})),
        _ => Reply::new("404 Gone", "", "no page"),
    });
    let url = |host: &str, path: &str| format!("inputs: {{ url: \"http://{host}:{}{path}\" }}", server.port);
    let result = own(&server, "http.get", &url("127.0.0.1", "/n")).json("run one", 0);
    assert_eq!((&result["outputs"]["status"], &result["outputs"]["value"]), (&json!(200), &json!({"n": 3})));
    for (step, code) in [
        (url("127.0.0.1", "/other"), "not_found"),
        (url("localhost", "/n"), "unauthorised"),
        ("inputs: { url: \"http://127.0.0.1:1/n\" }".to_owned(), "unauthorised"),
        ("inputs: { url: \"file:///etc/passwd\" }".to_owned(), "unauthorised"),
        ("inputs: { }".to_owned(), "input_invalid"),
        (url("127.0.0.1", "/n").replace(" }", ", headers: { Host: example.org } }"), "input_invalid"),
        (url("127.0.0.1", "/n").replace(" }", ", headers: { X-A: \"a\\nb\" } }"), "input_invalid"),
    ] {
        let (found, message) = error(&own(&server, "http.get", &step).json("run one", 4));
        assert_eq!(found, code, "{step}: {message}");
    }
}

#[test]
fn people_are_told_on_the_channels_of_the_project() {
    let server = Server::new(|_| Reply::new("200 OK", "", ""));
    let tell = |channel: &str| {
        let step = format!("inputs: {{ channel: \"{channel}\", title: Depot, text: \"It is done.\" }}");
        own(&server, "notify", &step)
    };
    let project = tell("log");
    let result = project.json("run one", 0);
    let told: Value = serde_json::from_str(&project.read("told.jsonl")).unwrap();
    assert_eq!((&told["title"], &told["text"]), (&json!("Depot"), &json!("It is done.")));
    assert_eq!((&told["run_id"], &told["id"]), (&result["run_id"], &result["outputs"]["id"]));
    let project = tell("program:#room");
    project.json("run one", 0);
    let told: Value = serde_json::from_str(&project.read("program.jsonl")).unwrap();
    assert_eq!(told["target"], "#room");
    tell("hook").json("run one", 0);
    assert_eq!(server.next().json()["text"], "It is done.");
    let (code, message) = error(&tell("nobody").json("run one", 4));
    assert_eq!(code, "not_found", "{message}");
    assert!(message.contains("`[channels.nobody]`"), "{message}");
}
