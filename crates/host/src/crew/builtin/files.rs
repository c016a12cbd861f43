//! Functions of files: all of them in the folder that the step works in, and through its confined names.
//!
//! No part of a name may be a link. What Skein keeps is neither read nor written; what is protected is not written.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::{ir::ErrorClass, limits};

use super::{super::protect::ProtectionRules, Wrong, is_below, values};
use crate::workspace::{
    RepositoryScan, Root, control_owner,
    root::{PathError, Thing},
};

/// A folder with more in it is not listed.
const ENTRIES: usize = 10_000;

pub struct Files<'a> {
    pub folder: &'a Root,
    /// What Skein keeps.
    pub state: &'a Path,
    /// The files that the step must leave as they are.
    pub rules: &'a ProtectionRules,
}

impl Files<'_> {
    pub fn read(&self, inputs: &Value) -> Result<Value, Wrong> {
        let (folder, leaf) = self.place(&self.open(values::text(inputs, "path")?)?)?;
        let bytes = folder.read(&leaf, limits::VALUE_BYTES as u64).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|_| Wrong::input("the file is no text in UTF-8"))?;
        if values::optional(inputs, "as")? == Some("json") {
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| Wrong::input(format!("the file is no JSON: {error}")))?;
            return Ok(json!({"value": value}));
        }
        Ok(json!({"text": text}))
    }

    /// Writes `text` as it is, or `value` as JSON. A file is there whole, or as it was before.
    pub fn write(&self, inputs: &Value) -> Result<Value, Wrong> {
        let name = self.own(values::text(inputs, "path")?)?;
        let bytes = match (values::optional(inputs, "text")?, inputs.get("value")) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(value)) => {
                let mut bytes = serde_json::to_vec_pretty(value).expect("a value is JSON");
                bytes.push(b'\n');
                bytes
            }
            _ => return Err(Wrong::input("it needs one of the inputs `text` and `value`")),
        };
        let (Some(parent), Some(leaf)) = (name.parent(), name.file_name()) else {
            return Err(Wrong::input("`path` names the folder itself"));
        };
        let folder = match parent.as_os_str().is_empty() {
            true => self.folder.clone(),
            false => self.folder.make_folders_unsynced(parent, false).map_err(wrong)?,
        };
        folder.replace(leaf, &bytes).map_err(wrong)?;
        Ok(json!({"path": name, "bytes": bytes.len()}))
    }

    pub fn list(&self, inputs: &Value) -> Result<Value, Wrong> {
        let name = self.open(values::optional(inputs, "path")?.unwrap_or("."))?;
        let folder = if name.as_os_str().is_empty() {
            self.folder.clone()
        } else {
            self.folder.folder(&name).map_err(wrong)?
        };
        let entries = folder.entries(ENTRIES).map_err(wrong)?.into_iter();
        let shown = entries.filter(|entry| self.open_path(&name.join(&entry.name)).is_ok());
        let entry = |entry: crate::workspace::root::Entry| json!({"name": entry.name.to_string_lossy(), "kind": kind(entry.thing)});
        Ok(json!({"entries": shown.map(entry).collect::<Vec<_>>()}))
    }

    pub fn exists(&self, inputs: &Value) -> Result<Value, Wrong> {
        let name = self.open(values::text(inputs, "path")?)?;
        let thing = match self.place(&name).and_then(|(folder, leaf)| folder.look(leaf).map_err(wrong)) {
            Ok(thing) => thing,
            Err(Wrong { code: "not_found", .. }) => None,
            Err(wrong) => return Err(wrong),
        };
        Ok(json!({"exists": thing.is_some(), "kind": thing.map(kind)}))
    }

    pub fn remove(&self, inputs: &Value) -> Result<Value, Wrong> {
        let name = self.own(values::text(inputs, "path")?)?;
        if name.as_os_str().is_empty() {
            return Err(Wrong::input("`path` names the folder itself"));
        }
        if self.holds_protected(&name) {
            return Err(refused(&name, "holds files that no step may change"));
        }
        let removed = match self.place(&name) {
            Ok((folder, leaf)) => folder.remove(leaf).map_err(wrong)?,
            Err(Wrong { code: "not_found", .. }) => false,
            Err(wrong) => return Err(wrong),
        };
        Ok(json!({"removed": removed}))
    }

    /// A name that may be looked at.
    fn open(&self, name: &str) -> Result<PathBuf, Wrong> {
        let name = self.folder.normal(name).map_err(wrong)?;
        self.open_path(&name)?;
        Ok(name)
    }

    fn open_path(&self, name: &Path) -> Result<(), Wrong> {
        let ours =
            is_below(&self.folder.path().join(name), self.state) || control_owner(name) == Some("Skein");
        if ours { Err(refused(name, "is what Skein keeps")) } else { Ok(()) }
    }

    /// A name that may be written.
    fn own(&self, name: &str) -> Result<PathBuf, Wrong> {
        let name = self.open(name)?;
        let text = name.to_string_lossy();
        let named = || self.named().iter().any(|place| name.starts_with(place));
        if self.rules.is_unprotected(&text) {
            return Ok(name);
        }
        if self.rules.covers(&text) || named() {
            let why = "is protected: `unprotect` of the step would have to name it";
            return Err(refused(&name, why));
        }
        match control_owner(&name) {
            Some(owner) => Err(refused(&name, &format!("is a file of {owner}, which no tool writes"))),
            None => Ok(name),
        }
    }

    /// Hooks and configuration files that git's configuration names.
    fn named(&self) -> BTreeSet<String> {
        match self.rules.repositories {
            true => RepositoryScan::named_by_configuration(self.folder),
            false => BTreeSet::new(),
        }
    }

    /// Whether a folder holds something that may not be changed, as far as names tell it.
    fn holds_protected(&self, name: &Path) -> bool {
        let below = |path: &str| Path::new(path).starts_with(name);
        self.rules.has_below(name, self.folder)
            || self.named().iter().any(|path| below(path))
            || is_below(self.state, &self.folder.path().join(name))
    }

    /// The folder that a name is in, and its last part. No part of the way is a link.
    fn place(&self, name: &Path) -> Result<(Root, PathBuf), Wrong> {
        let leaf = name.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
        match name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => Ok((self.folder.folder(parent).map_err(wrong)?, leaf)),
            None => Ok((self.folder.clone(), leaf)),
        }
    }
}

fn kind(thing: Thing) -> &'static str {
    match thing {
        Thing::File => "file",
        Thing::Folder => "folder",
        Thing::Link => "link",
        Thing::Fifo | Thing::Socket | Thing::Device => "other",
    }
}

fn refused(name: &Path, why: &str) -> Wrong {
    Wrong::new(ErrorClass::NonRetryable, "unauthorised", format!("`{}` {why}", name.display()))
}

fn wrong(error: PathError) -> Wrong {
    match &error {
        error if error.is_missing() => Wrong::new(ErrorClass::NonRetryable, "not_found", error),
        error if error.is_no_space() => Wrong::new(ErrorClass::Transient, "internal", error),
        error => Wrong::new(ErrorClass::NonRetryable, "input_invalid", error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The code of what was refused, or an empty text.
    fn code(done: Result<Value, Wrong>) -> &'static str {
        done.err().map(|wrong| wrong.code).unwrap_or_default()
    }

    #[test]
    fn files_are_written_read_listed_and_removed_in_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::open(place.path()).unwrap();
        let rules = ProtectionRules::of_texts(&[]);
        let files = Files { folder: &root, state: Path::new("/nowhere"), rules: &rules };
        assert_eq!(files.write(&json!({"path": "a/b.json", "value": {"n": 1}})).ok().unwrap()["bytes"], 13);
        assert_eq!(
            files.read(&json!({"path": "a/b.json", "as": "json"})).ok(),
            Some(json!({"value": {"n": 1}}))
        );
        let listed = files.list(&json!({"path": "a"})).ok();
        assert_eq!(listed, Some(json!({"entries": [{"name": "b.json", "kind": "file"}]})));
        assert_eq!(files.exists(&json!({"path": "a"})).ok().unwrap()["kind"], "folder");
        assert_eq!(files.remove(&json!({"path": "a"})).ok(), Some(json!({"removed": true})));
        assert_eq!(files.exists(&json!({"path": "a/b.json"})).ok().unwrap()["exists"], false);
        assert_eq!(code(files.read(&json!({"path": "a/b.json"}))), "not_found");
    }

    #[test]
    fn nothing_outside_and_nothing_of_ours_is_touched() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("x"), "secret").unwrap();
        let whole = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(whole.join("kept/db")).unwrap();
        fs::create_dir_all(whole.join(".git/hooks")).unwrap();
        fs::write(whole.join(".git/config"), "[core]\nhooksPath = tools/hooks\n").unwrap();
        std::os::unix::fs::symlink(outside.path(), whole.join("link")).unwrap();
        std::os::unix::fs::symlink(whole.join("kept"), whole.join("sneaky")).unwrap();
        let root = Root::open(&whole).unwrap();
        let state = whole.join("kept");
        let rules = ProtectionRules::of_texts(&[]);
        let files = Files { folder: &root, state: &state, rules: &rules };
        let path = |path: &str| json!({"path": path, "text": "x"});
        for bad in ["../x", "/etc/passwd", "link/x", "kept/db", ".skein/x", "sneaky/db"] {
            assert_ne!(code(files.read(&path(bad))), "", "{bad}");
            assert_ne!(code(files.write(&path(bad))), "", "{bad}");
        }
        for bad in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".claude/settings.json",
            ".mcp.json",
            "tools/hooks/pre-commit",
            ".husky/pre-commit",
        ] {
            assert_eq!(code(files.write(&path(bad))), "unauthorised", "{bad}");
        }
        assert_eq!(code(files.remove(&path(".git"))), "unauthorised");
        assert_eq!(code(files.remove(&path("tools"))), "unauthorised");
        assert_eq!(code(files.remove(&path("."))), "input_invalid");
        let rules = ProtectionRules::of_texts(&["src/**"]);
        let guarded = Files { rules: &rules, ..files };
        assert_eq!(code(guarded.write(&path(".git/config"))), "unauthorised");
        assert_eq!(code(guarded.write(&path("src/a.rs"))), "unauthorised");
        assert!(fs::read_dir(outside.path()).unwrap().count() == 1);
    }
}
