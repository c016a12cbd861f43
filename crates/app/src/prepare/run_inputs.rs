//! The values that a run starts with: its parameters, and the `context` that its expressions read.
//!
//! A parameter is parsed by its declared type. Of the context, which has the files of the project and the texts of context
//! modules, only the names that the plan reads are bound, since they are kept in the journal.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};
use skein_core::{ir::Schema, plan::Plan};
use skein_host::json_text::parse_exact;

use crate::{
    app_error::AppError,
    prepare::agent_config,
    project::{
        DiskProject,
        sources::{self, SKIPPED},
    },
};

/// Reads the given parameters; `--param` wins over the file. Returns all reasons if some cannot be read.
pub(crate) fn read_parameters(pairs: &[String], file: Option<&Path>, schema: &Schema) -> Result<Value, AppError> {
    let mut wrong = Vec::new();
    let given = file.map(read_parameter_file).transpose();
    let mut parameters = given.unwrap_or_else(|error| {
        wrong.push(error.message);
        None
    });
    for pair in pairs {
        match pair.split_once('=') {
            Some((name, text)) => {
                parameters.get_or_insert_default().insert(name.to_owned(), parse_parameter(name, text, schema));
            }
            None => wrong.push(format!("`{pair}` is not `name=value`")),
        }
    }
    match wrong.is_empty() {
        true => Ok(Value::Object(parameters.unwrap_or_default())),
        false => Err(AppError::usage(wrong.join("; "))),
    }
}

fn read_parameter_file(path: &Path) -> Result<Map<String, Value>, AppError> {
    let shown = path.display();
    let source =
        sources::read_source(path, &shown.to_string()).map_err(|error| AppError::usage(error.message.clone()))?;
    match parse_exact(&source.text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(AppError::usage(format!("`{shown}` is not a JSON object"))),
        Err(error) => Err(AppError::usage(format!("`{shown}` is not JSON: {error}"))),
    }
}

/// Keeps the text if a string is declared; parses anything else as JSON. Text that is not JSON stays text: the schema
/// check reports it together with all other problems.
fn parse_parameter(name: &str, text: &str, schema: &Schema) -> Value {
    let is_text = match schema.property(name).and_then(|property| property.get("type")) {
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
        _ => false,
    };
    let json = if is_text { None } else { parse_exact(text).ok() };
    json.unwrap_or_else(|| Value::from(text))
}

/// Returns true if a workflow with these inputs takes a parameter of this name: it declares it, or takes any.
pub(crate) fn accepts_parameter(inputs: &Schema, name: &str) -> bool {
    let Some(document) = inputs.document() else { return false };
    let takes_others = match document.get("additionalProperties") {
        Some(additional) => *additional != Value::Bool(false),
        // An object without declared properties is unrestricted, such as the payload of an event.
        None => document.get("properties").is_none() || document.get("patternProperties").is_some(),
    };
    inputs.property(name).is_some() || takes_others
}

/// Returns a hint on passing a list or an object that was passed as plain text.
pub(crate) fn suggest_json(name: &str, given: &Value, inputs: &Schema) -> Option<String> {
    let text = given.get(name)?.as_str()?;
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    let example = match inputs.property(name)?.get("type")?.as_str()? {
        "array" => serde_json::to_string(&items).ok()?,
        "object" => "{\"name\": \"value\"}".to_owned(),
        _ => return None,
    };
    Some(format!("pass JSON: `--param '{name}={example}'`"))
}

/// The name of the list of the project's files.
const REPO_STRUCTURE: &str = "repo_structure";
/// The number of files that are listed, and the maximum total length of their paths in bytes.
const MOST_FILES: usize = 2_000;
const MOST_BYTES: usize = 64 * 1024;
/// The maximum depth of folders.
const DEEPEST: usize = 16;

/// Returns the `context` of a run of this plan, or null if the plan reads none of it.
pub(crate) fn bind_context(plan: &Plan, project: &DiskProject) -> Value {
    let (names, whole) = plan.definition.context_reads();
    if names.is_empty() && !whole {
        return Value::Null;
    }
    let mut values = Map::new();
    if whole || names.contains(REPO_STRUCTURE) {
        values.insert(REPO_STRUCTURE.to_owned(), list_repo_files(&project.root));
    }
    for entry in &plan.definition.workflows {
        for reference in &entry.workflow.context.modules {
            let name = reference.strip_prefix("ctx:").unwrap_or(reference);
            let module =
                agent_config::read_context_module(project, reference).filter(|_| whole || names.contains(name));
            values.extend(module.map(|module| (name.to_owned(), Value::from(module.text))));
        }
    }
    Value::Object(values)
}

/// Returns the sorted paths of the files of a folder, without those of version control and build tools.
fn list_repo_files(root: &Path) -> Value {
    let mut listing = FileList::default();
    listing.walk_folder(root, "", DEEPEST);
    json!({"files": listing.files, "truncated": listing.truncated})
}

#[derive(Debug, Default)]
struct FileList {
    files: Vec<String>,
    bytes: usize,
    truncated: bool,
}

impl FileList {
    fn walk_folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        if depth == 0 {
            self.truncated = true;
            return;
        }
        let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.walk_folder(&entry.path(), &path, depth - 1);
            } else if kind.is_file() {
                self.add_file(path);
            }
            if self.truncated && self.files.len() >= MOST_FILES {
                return;
            }
        }
    }

    fn add_file(&mut self, path: String) {
        if self.files.len() >= MOST_FILES || self.bytes + path.len() > MOST_BYTES {
            self.truncated = true;
            return;
        }
        self.bytes += path.len();
        self.files.push(path);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_parameter_is_read_by_its_declared_type() {
        let schema = Schema::new(json!({"properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "on": {"type": "boolean"},
            "list": {"type": "array"}, "maybe": {"type": ["null", "number"]}, "any": {},
        }}));
        let of = |pair: &str| read_parameters(&[pair.to_owned()], None, &schema).map_err(|error| error.message);
        assert_eq!(of("name=7"), Ok(json!({"name": "7"})));
        assert_eq!(of("name=a=b"), Ok(json!({"name": "a=b"})));
        assert_eq!(of("count=7"), Ok(json!({"count": 7})));
        assert_eq!(of("on=true"), Ok(json!({"on": true})));
        assert_eq!(of("list=[1,2]"), Ok(json!({"list": [1, 2]})));
        assert_eq!(of("maybe=null"), Ok(json!({"maybe": null})));
        assert_eq!(of("any=x"), Ok(json!({"any": "x"})));
        assert_eq!(of("other=3"), Ok(json!({"other": 3})));
        assert_eq!(of("count=seven"), Ok(json!({"count": "seven"})));
        assert_eq!(of("count").unwrap_err(), "`count` is not `name=value`");
    }

    #[test]
    fn other_parameters_are_taken_only_where_the_workflow_says_so() {
        let takes = |inputs: Value| accepts_parameter(&Schema::new(inputs), "x");
        assert!(takes(json!({"properties": {"x": {}}})));
        assert!(takes(json!({"type": "object"})));
        assert!(takes(json!({"properties": {"y": {}}, "additionalProperties": {"type": "string"}})));
        assert!(takes(json!({"properties": {"y": {}}, "patternProperties": {"^x": {}}})));
        assert!(!takes(json!({"properties": {"y": {}}})));
        assert!(!takes(json!({"properties": {"y": {}}, "additionalProperties": false})));
        assert!(!accepts_parameter(&Schema::default(), "x"));
    }
}
