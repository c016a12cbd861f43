//! `--param` and `--params`: types, missing parameters, unknown parameters.

use crate::session::{Folder, Session};

const SOURCE: &str = r#"workflow: {id: typed, name: Typed, version: "1.0.0"}
config:
  timeout: 1h
  parameters:
    title: {type: string, required: true}
    count: {type: integer, default: 3}
    deep: {type: boolean, default: false}
    tags: {type: array<string>, required: false}
stages:
  - id: write
    name: Write
    roles: {primary: "agent:writer"}
    inputs:
      title: {type: string, source: "${{ parameters.title }}"}
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("typed.yaml", SOURCE).write("agents/writer.md", "Writes.\n");
    folder.write("right.json", r#"{"title": "from a file", "count": 5}"#);
    folder.write("list.json", "[1]").write("broken.json", "{\"title\": ");
    folder
}

#[test]
fn are_read_by_their_declared_types() {
    let folder = folder();
    let mut session = Session::within(&folder.0);
    session.skein("plan typed.yaml --param title=7 --param count=7 --param deep=true --param tags=[\"a\"]", 0);
    session.skein("plan typed.yaml --params right.json --param count=6", 0);
    session.is("parameters");
}

#[test]
fn that_are_wrong_are_a_matter_of_usage() {
    let folder = folder();
    let mut session = Session::within(&folder.0);
    session.skein("plan typed.yaml", 2).skein("plan typed.yaml --format json", 2);
    session.skein("plan typed.yaml --param title=a --param count=many", 2);
    session.skein("plan typed.yaml --param title=a --param count=1.5", 2);
    session.skein("plan typed.yaml --param title=a --param deep=7 --param tags={}", 2);
    session.skein("plan typed.yaml --param title=a --param tags=red,green", 2);
    session.skein("plan typed.yaml --param count=many --param deep=7 --param nobody=1 --param tags=[1,\"a\",2]", 2);
    session.skein("plan typed.yaml --param title --param count --params none.json", 2);
    session.skein("plan typed.yaml --param title", 2).skein("plan typed.yaml --param =7", 2);
    for file in ["list.json", "broken.json", "missing.json", "/dev/zero", "agents"] {
        session.skein(&format!("plan typed.yaml --params {file}"), 2);
    }
    session.is("parameters-wrong");
}

#[test]
fn that_are_not_declared() {
    let mut session = Session::here();
    session.skein("plan examples/agentcore/hello.yaml --param nobody=asked", 2);
    session.skein("plan examples/aip15/order-fulfilment --param orderID=7", 2);
    session.is("parameters-unknown");
}

#[test]
fn flags_that_do_not_exist() {
    let mut session = Session::here();
    session.skein("plan", 2).skein("plan x --nonsense", 2).skein("paln x", 2).skein("graph x --as png", 2);
    session.skein("schema xml", 2).skein("validate", 2).skein("plan x --format yaml", 2);
    session.skein("plan --format json", 2).skein("plan x --format=json --nonsense", 2);
    session.skein("paln x --format json", 2).skein("graph x --as png --format json", 2);
    session.skein("plan --format json --help", 0);
    session.is("usage");
}
