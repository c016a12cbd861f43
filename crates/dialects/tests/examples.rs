//! The examples that people are shown are right, and show every field.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use skein_core::expr::Span;
use skein_dialects::{Dialect, NotFound, Project, Reference, Sink, Source, check, render, yaml::parse};

/// The examples of AIP-15, each in a folder of its id; they may call one another.
struct Workflows(PathBuf);

impl Workflows {
    fn source(&self, id: &str) -> Result<Arc<Source>, std::io::Error> {
        let name = format!("{id}/WORKFLOW.md");
        fs::read_to_string(self.0.join(&name)).map(|text| Source::new(name, text))
    }

    fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the examples can be listed");
        let names = entries.map(|entry| entry.expect("a folder can be listed").file_name());
        let mut ids: Vec<String> =
            names.map(|name| name.into_string().expect("names of examples are text")).collect();
        ids.sort();
        ids
    }
}

impl Project for Workflows {
    fn workflow(&self, _: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        let (Reference::Id(name) | Reference::Path(name)) = reference;
        self.source(name).map_err(|error| NotFound { why: error.to_string(), known: self.ids() })
    }
}

/// The names of all fields in a value.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|inner| keys(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| keys(inner, found)),
        _ => {}
    }
}

/// Every field of the format, and every word that changes what a step does.
const AIP15_FIELDS: &str = "name id description version inputs outputs steps start suspendable triggers routines \
    requires approval risk_level timeout_ms max_steps retry cost_class tags metadata inputsFiles outputsFiles result \
    kind next compensation tool action pinned_provider branches when default resume on on_timeout prompt artifacts \
    approvers role userId on_approve on_reject over parallelism while max_iterations workflow max_attempts backoff \
    initial_ms cron timezone path label inline ref file schedule target identity on_failure history mode contentType \
    skein allow_cycles on_error";
const AIP15_WORDS: &str = "tool branch parallel suspend approval map loop subworkflow manual webhook event schedule \
    literal cancel continue escalate fixed exponential auto always on-mutate per-step $end $item $index";

/// The front matter of an example.
fn front_matter(source: Arc<Source>) -> Value {
    let end = source.text[3..].find("\n---").expect("front matter is closed") + 3;
    let tree = parse(Span::new(4, end), &mut Sink::new(source)).expect("an example is YAML");
    tree.root().json()
}

#[test]
fn aip15_examples() {
    let examples = Workflows(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/aip15"));
    let (mut shown, mut text) = (BTreeSet::new(), String::new());
    for id in examples.ids() {
        let source = examples.source(&id).expect("an example can be read");
        text += &source.text;
        let front = front_matter(source.clone());
        assert_eq!(front["id"], id.as_str(), "a workflow is in a folder of its id");
        keys(&front, &mut shown);
        let report = check(source, &examples);
        let errors = report.diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
        let errors: Vec<String> = errors.map(|diagnostic| render::human(diagnostic, false)).collect();
        assert!(errors.is_empty(), "{id}:\n{}", errors.join("\n"));
        assert_eq!(report.dialect, Some(Dialect::Aip15), "{id}");
        assert!(report.definition.is_some(), "{id} has no plan");
        // Without a project around it, all there is to warn of is that the tools cannot be looked up.
        let others = report.diagnostics.iter().filter(|diagnostic| diagnostic.code.as_str() != "SK0702");
        let others: Vec<String> = others.map(|diagnostic| render::human(diagnostic, false)).collect();
        assert!(others.is_empty(), "{id}:\n{}", others.join("\n"));
    }
    assert!(examples.ids().len() >= 5);
    let missing: Vec<&str> =
        AIP15_FIELDS.split_whitespace().filter(|field| !shown.contains(*field)).collect();
    assert!(missing.is_empty(), "no example has {missing:?}");
    let missing: Vec<&str> = AIP15_WORDS.split_whitespace().filter(|word| !text.contains(word)).collect();
    assert!(missing.is_empty(), "no example has {missing:?}");
}
