//! The examples of every format: planned, drawn and shown.

use crate::session::Session;

/// An example of each format and its required parameters.
const EXAMPLES: [(&str, &str, &str); 4] = [
    ("agentcore", "examples/agentcore/feature.yaml", ""),
    (
        "aip15",
        "examples/aip15/order-fulfilment",
        "--param orderId=A-7 --param cents=1999 --param items=[{\"sku\":\"mug\",\"count\":2}]",
    ),
    ("ioa", "examples/ioa/publish-with-sign-off.yaml", ""),
    ("swdl", "examples/swdl/feature", "--param 'request=Show_the_tide'"),
];

#[test]
fn plans() {
    for (format, file, parameters) in EXAMPLES {
        Session::here().skein(&format!("plan {file} {parameters}"), 0).is(&format!("plan-{format}"));
    }
}

#[test]
fn plans_as_json() {
    for (format, file, parameters) in EXAMPLES {
        let line = format!("plan {file} {parameters} --format json");
        Session::here().skein(&line, 0).is(&format!("plan-{format}-json"));
    }
}

#[test]
fn plans_of_what_calls_repeats_and_nests() {
    let mut session = Session::here();
    session.skein("plan examples/agentcore/release.yaml", 0);
    session.skein("plan examples/aip15/release-train --param tag=v1.2.0 --param channel=stable", 0);
    session.skein("plan examples/aip15/newsletter --param month=2031-05 --param lists=[\"all\"]", 0);
    session.skein("plan examples/ioa/outage.yaml", 0);
    session.skein("plan examples/swdl/review-each-file.yaml", 0);
    session.is("plan-nested");
}

#[test]
fn graphs() {
    for (format, file, _) in EXAMPLES {
        let mut session = Session::here();
        for language in ["ascii", "mermaid", "dot"] {
            session.skein(&format!("graph {file} --as {language}"), 0);
        }
        session.is(&format!("graph-{format}"));
    }
}

#[test]
fn graphs_of_what_calls_and_nests() {
    let mut session = Session::here();
    session.skein("graph examples/agentcore/release.yaml", 0);
    session.skein("graph examples/aip15/release-train", 0);
    session.skein("graph examples/aip15/release-train --as mermaid", 0);
    session.skein("graph examples/aip15/newsletter", 0);
    session.skein("graph examples/aip15/contract-review", 0);
    session.skein("graph examples/swdl/review-each-file.yaml", 0);
    session.skein("graph examples/agentcore/word-count.yaml --format json", 0);
    session.is("graph-nested");
}

#[test]
fn shown() {
    let mut session = Session::here();
    for (_, file, _) in EXAMPLES {
        session.skein(&format!("show {file}"), 0);
    }
    session.skein("show examples/agentcore/hello.yaml --format json", 0);
    session.is("show");
}

/// All published examples are valid.
#[test]
fn all_are_valid() {
    Session::here().skein("validate examples", 0).is("validate-examples");
}
