//! Relocation of runs whose project was moved together with its state folder: rewrites the stored paths.
//!
//! A run stores absolute paths, because a worker may start in another folder than the process that started the run.

use std::path::Path;

use serde_json::Value;

/// The field with the path of the state folder when the run was started.
const STATE: &str = "state";

/// Rewrites the stored paths of a run if its project is gone from the old place and the state folder was moved along.
pub(super) fn relocate_paths(about: &mut Value, state: &Path) {
    let Some(before) = about.get(STATE).and_then(Value::as_str).map(str::to_owned) else { return };
    let Ok(now) = state.canonicalize() else { return };
    let before = Path::new(&before);
    let (Some(old), Some(new)) = (before.parent(), now.parent()) else { return };
    // A copy of the state folder alone belongs to the project that is still at the old place.
    let is_moved = old != new && before.file_name() == now.file_name() && !old.exists();
    if let (true, Some(old), Some(new)) = (is_moved, old.to_str(), new.to_str()) {
        rewrite_paths(about, old, new);
    }
}

fn rewrite_paths(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => {
            if let Some(moved) = moved_path(text, old, new) {
                *text = moved;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite_paths(item, old, new)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| rewrite_paths(field, old, new));
            let paths: Vec<String> = fields.keys().filter(|key| moved_path(key, old, new).is_some()).cloned().collect();
            for path in paths {
                if let (Some(field), Some(moved)) = (fields.remove(&path), moved_path(&path, old, new)) {
                    fields.insert(moved, field);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Maps a path below the old folder to the same path below the new one.
fn moved_path(path: &str, old: &str, new: &str) -> Option<String> {
    let rest = path.strip_prefix(old)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{new}{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn about(root: &str) -> Value {
        json!({
            "state": format!("{root}/.skein"),
            "workspace": format!("{root}/part"),
            "beside": format!("{root}-other"),
            "pinned": {format!("{root}/tool.sh"): {"size": 3}},
        })
    }

    #[test]
    fn paths_lead_to_where_the_project_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().canonicalize().unwrap();
        std::fs::create_dir(new.join(".skein")).unwrap();
        let mut moved = about("/nowhere/before");
        relocate_paths(&mut moved, &new.join(".skein"));
        let new = new.to_str().unwrap();
        let mut expected = about(new);
        expected["beside"] = json!("/nowhere/before-other");
        assert_eq!(moved, expected);
    }

    #[test]
    fn a_project_that_is_still_there_stays() {
        let (before, now) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(now.path().join(".skein")).unwrap();
        let mut kept = about(before.path().to_str().unwrap());
        relocate_paths(&mut kept, &now.path().join(".skein"));
        assert_eq!(kept, about(before.path().to_str().unwrap()));
    }
}
