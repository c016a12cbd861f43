//! Golden journals: those of earlier versions produce the same view as in those versions. See `tests/golden/README.md`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use skein_core::engine::{JournalBatch, VERSION};
use skein_host::store::{SqliteStore, Store};

use super::{
    kill::life,
    life::Place,
    stage::{id, replayed, rows},
};

pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub(crate) fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn shown(frozen: &str, rows: &[JournalBatch]) -> String {
    serde_json::to_string_pretty(&replayed(frozen, rows)).unwrap() + "\n"
}

#[test]
fn every_golden_journal_is_read_to_its_view() {
    let mut read = 0;
    for folder in folders(&golden()).iter().flat_map(|version| folders(version)) {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let rows: Vec<JournalBatch> = text("journal.jsonl").lines().map(parse).collect();
        assert_eq!(shown(&text("plan.json"), &rows), text("view.json"), "{folder:?}");
        read += 1;
    }
    assert!(read >= 6, "{read} journals were found");
}

/// Not a test, but a tool that adds a journal: of a reference run, or of any run in a state folder.
#[test]
#[ignore = "adds a golden journal"]
fn add() {
    let name = env::var("SKEIN_GOLDEN").expect("SKEIN_GOLDEN names a reference run, or what SKEIN_RUN is to be");
    if let (Ok(state), Ok(run)) = (env::var("SKEIN_STATE"), env::var("SKEIN_RUN")) {
        return keep(&SqliteStore::open(state).unwrap(), &run, &name);
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(life(dir.path(), &[&name], "after 2"), None, "it was to be killed");
    life(dir.path(), &[&name], "").expect("nobody killed it");
    let store = SqliteStore::open(Place::of(dir.path()).state).unwrap();
    keep(&store, &name, &name);
}

fn keep(store: &SqliteStore, run: &str, name: &str) {
    let rows = rows(store, &id(run));
    let definition = store.find_run(&id(run)).unwrap().unwrap().definition;
    let frozen = String::from_utf8(store.read_definition(definition).unwrap()).unwrap();
    let folder = golden().join(format!("v{VERSION}")).join(name);
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    fs::create_dir(&folder).expect("a golden journal is never changed");
    let lines: String = rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n").collect();
    fs::write(folder.join("view.json"), shown(&frozen, &rows)).unwrap();
    fs::write(folder.join("plan.json"), frozen).unwrap();
    fs::write(folder.join("journal.jsonl"), lines).unwrap();
}
