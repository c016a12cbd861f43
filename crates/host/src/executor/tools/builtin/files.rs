//! File functions: all of them work in the step's folder, through its confined names.
//!
//! No part of a name may be a link. Skein's state is neither read nor written; protected files are not written.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skein_core::{ir::ErrorClass, limits};

use super::{BuiltinError, is_below, values};
use crate::{
    executor::evidence::protect::ProtectionRules,
    workspace::{
        RepositoryScan, RootFolder, control_owner,
        root::{EntryKind, FilePathError},
    },
};

/// The maximum number of entries of a folder that is listed.
const ENTRIES: usize = 10_000;

pub struct FileFunctions<'a> {
    pub folder: &'a RootFolder,
    /// Skein's state folder.
    pub state: &'a Path,
    /// The files that the step must not change.
    pub rules: &'a ProtectionRules,
}

impl FileFunctions<'_> {
    pub fn read_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let (folder, leaf) = self.open_parent(&self.readable_path(values::required_text(inputs, "path")?)?)?;
        let bytes = folder.read_file(&leaf, limits::VALUE_BYTES as u64).map_err(path_failure)?;
        let text = String::from_utf8(bytes).map_err(|_| BuiltinError::invalid_input("the file is not valid UTF-8"))?;
        if values::optional_text(inputs, "as")? == Some("json") {
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| BuiltinError::invalid_input(format!("the file is not valid JSON: {error}")))?;
            return Ok(json!({"value": value}));
        }
        Ok(json!({"text": text}))
    }

    /// Writes `text` as it is, or `value` as JSON. The file is replaced atomically.
    pub fn write_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.writable_path(values::required_text(inputs, "path")?)?;
        let bytes = match (values::optional_text(inputs, "text")?, inputs.get("value")) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(value)) => {
                let mut bytes = serde_json::to_vec_pretty(value).expect("a value is JSON");
                bytes.push(b'\n');
                bytes
            }
            _ => {
                return Err(BuiltinError::invalid_input("exactly one of the inputs `text` and `value` is required"));
            }
        };
        let (Some(parent), Some(leaf)) = (name.parent(), name.file_name()) else {
            return Err(BuiltinError::invalid_input("`path` names the folder itself"));
        };
        let folder = match parent.as_os_str().is_empty() {
            true => self.folder.clone(),
            false => self.folder.make_folders_unsynced(parent, false).map_err(path_failure)?,
        };
        folder.replace_file(leaf, &bytes).map_err(path_failure)?;
        Ok(json!({"path": name, "bytes": bytes.len()}))
    }

    pub fn list_folder(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.readable_path(values::optional_text(inputs, "path")?.unwrap_or("."))?;
        let folder = if name.as_os_str().is_empty() {
            self.folder.clone()
        } else {
            self.folder.open_folder(&name).map_err(path_failure)?
        };
        let entries = folder.list_entries(ENTRIES).map_err(path_failure)?.into_iter();
        let shown = entries.filter(|entry| self.check_readable(&name.join(&entry.name)).is_ok());
        let entry = |entry: crate::workspace::root::FolderEntry| json!({"name": entry.name.to_string_lossy(), "kind": kind_word(entry.thing)});
        Ok(json!({"entries": shown.map(entry).collect::<Vec<_>>()}))
    }

    pub fn check_exists(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.readable_path(values::required_text(inputs, "path")?)?;
        let thing =
            match self.open_parent(&name).and_then(|(folder, leaf)| folder.entry_kind(leaf).map_err(path_failure)) {
                Ok(thing) => thing,
                Err(BuiltinError { code: "not_found", .. }) => None,
                Err(wrong) => return Err(wrong),
            };
        Ok(json!({"exists": thing.is_some(), "kind": thing.map(kind_word)}))
    }

    pub fn remove_file(&self, inputs: &Value) -> Result<Value, BuiltinError> {
        let name = self.writable_path(values::required_text(inputs, "path")?)?;
        if name.as_os_str().is_empty() {
            return Err(BuiltinError::invalid_input("`path` names the folder itself"));
        }
        if self.holds_protected(&name) {
            return Err(unauthorised_path(&name, "holds files that no step may change"));
        }
        let removed = match self.open_parent(&name) {
            Ok((folder, leaf)) => folder.remove(leaf).map_err(path_failure)?,
            Err(BuiltinError { code: "not_found", .. }) => false,
            Err(wrong) => return Err(wrong),
        };
        Ok(json!({"removed": removed}))
    }

    /// Normalizes a name and checks that it may be read.
    fn readable_path(&self, name: &str) -> Result<PathBuf, BuiltinError> {
        let name = self.folder.normalize_name(name).map_err(path_failure)?;
        self.check_readable(&name)?;
        Ok(name)
    }

    fn check_readable(&self, name: &Path) -> Result<(), BuiltinError> {
        let ours = is_below(&self.folder.path().join(name), self.state) || control_owner(name) == Some("Skein");
        if ours { Err(unauthorised_path(name, "belongs to Skein's own state")) } else { Ok(()) }
    }

    /// Normalizes a name and checks that it may be written.
    fn writable_path(&self, name: &str) -> Result<PathBuf, BuiltinError> {
        let name = self.readable_path(name)?;
        let text = name.to_string_lossy();
        let named = || self.git_configured_files().iter().any(|place| name.starts_with(place));
        if self.rules.is_unprotected(&text) {
            return Ok(name);
        }
        if self.rules.covers(&text) || named() {
            let why = "is protected; list it in the step's `unprotect` to allow the change";
            return Err(unauthorised_path(&name, why));
        }
        match control_owner(&name) {
            Some(owner) => {
                Err(unauthorised_path(&name, &format!("is a control file of {owner}, which tools may not write")))
            }
            None => Ok(name),
        }
    }

    /// The hooks and configuration files that git's configuration names.
    fn git_configured_files(&self) -> BTreeSet<String> {
        match self.rules.repositories {
            true => RepositoryScan::named_by_configuration(self.folder),
            false => BTreeSet::new(),
        }
    }

    /// True if a folder holds something that may not be changed, judged by names alone.
    fn holds_protected(&self, name: &Path) -> bool {
        let below = |path: &str| Path::new(path).starts_with(name);
        self.rules.has_protected_below(name, self.folder)
            || self.git_configured_files().iter().any(|path| below(path))
            || is_below(self.state, &self.folder.path().join(name))
    }

    /// Opens the parent folder of a name, and returns it with the last part. No part of the path is a link.
    fn open_parent(&self, name: &Path) -> Result<(RootFolder, PathBuf), BuiltinError> {
        let leaf = name.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
        match name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => Ok((self.folder.open_folder(parent).map_err(path_failure)?, leaf)),
            None => Ok((self.folder.clone(), leaf)),
        }
    }
}

fn kind_word(thing: EntryKind) -> &'static str {
    match thing {
        EntryKind::File => "file",
        EntryKind::Folder => "folder",
        EntryKind::Link => "link",
        EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => "other",
    }
}

fn unauthorised_path(name: &Path, why: &str) -> BuiltinError {
    BuiltinError::new(ErrorClass::NonRetryable, "unauthorised", format!("`{}` {why}", name.display()))
}

fn path_failure(error: FilePathError) -> BuiltinError {
    match &error {
        error if error.is_missing() => BuiltinError::new(ErrorClass::NonRetryable, "not_found", error),
        error if error.is_no_space() => BuiltinError::new(ErrorClass::Transient, "internal", error),
        error => BuiltinError::new(ErrorClass::NonRetryable, "input_invalid", error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The error code of a refused call, or an empty text.
    fn code(done: Result<Value, BuiltinError>) -> &'static str {
        done.err().map(|wrong| wrong.code).unwrap_or_default()
    }

    #[test]
    fn files_are_written_read_listed_and_removed_in_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let root = RootFolder::open(place.path()).unwrap();
        let rules = ProtectionRules::from_patterns(&[]);
        let files = FileFunctions { folder: &root, state: Path::new("/nowhere"), rules: &rules };
        assert_eq!(files.write_file(&json!({"path": "a/b.json", "value": {"n": 1}})).ok().unwrap()["bytes"], 13);
        assert_eq!(files.read_file(&json!({"path": "a/b.json", "as": "json"})).ok(), Some(json!({"value": {"n": 1}})));
        let listed = files.list_folder(&json!({"path": "a"})).ok();
        assert_eq!(listed, Some(json!({"entries": [{"name": "b.json", "kind": "file"}]})));
        assert_eq!(files.check_exists(&json!({"path": "a"})).ok().unwrap()["kind"], "folder");
        assert_eq!(files.remove_file(&json!({"path": "a"})).ok(), Some(json!({"removed": true})));
        assert_eq!(files.check_exists(&json!({"path": "a/b.json"})).ok().unwrap()["exists"], false);
        assert_eq!(code(files.read_file(&json!({"path": "a/b.json"}))), "not_found");
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
        let root = RootFolder::open(&whole).unwrap();
        let state = whole.join("kept");
        let rules = ProtectionRules::from_patterns(&[]);
        let files = FileFunctions { folder: &root, state: &state, rules: &rules };
        let path = |path: &str| json!({"path": path, "text": "x"});
        for bad in ["../x", "/etc/passwd", "link/x", "kept/db", ".skein/x", "sneaky/db"] {
            assert_ne!(code(files.read_file(&path(bad))), "", "{bad}");
            assert_ne!(code(files.write_file(&path(bad))), "", "{bad}");
        }
        for bad in [
            ".git/config",
            ".git/hooks/pre-commit",
            ".claude/settings.json",
            ".mcp.json",
            "tools/hooks/pre-commit",
            ".husky/pre-commit",
        ] {
            assert_eq!(code(files.write_file(&path(bad))), "unauthorised", "{bad}");
        }
        assert_eq!(code(files.remove_file(&path(".git"))), "unauthorised");
        assert_eq!(code(files.remove_file(&path("tools"))), "unauthorised");
        assert_eq!(code(files.remove_file(&path("."))), "input_invalid");
        let rules = ProtectionRules::from_patterns(&["src/**"]);
        let guarded = FileFunctions { rules: &rules, ..files };
        assert_eq!(code(guarded.write_file(&path(".git/config"))), "unauthorised");
        assert_eq!(code(guarded.write_file(&path("src/a.rs"))), "unauthorised");
        assert!(fs::read_dir(outside.path()).unwrap().count() == 1);
    }
}
