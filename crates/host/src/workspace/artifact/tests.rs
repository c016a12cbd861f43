//! A kept artifact is a complete copy of the original, and repeating the operation changes nothing.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, mkfifoat};
use skein_core::{engine::AttemptId, ids::RunId, ir::OutputArtifact};

use super::*;
use crate::workspace::{RootFolder, RunDir, root::FileStamp};

struct Place {
    dir: tempfile::TempDir,
    run: RunDir,
    workspace: RootFolder,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["state", "work/src/deep"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("work/src/feature.ts"), "code").unwrap();
        fs::write(dir.path().join("work/src/deep/run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.path().join("work/src/deep/run.sh"), fs::Permissions::from_mode(0o4711)).unwrap();
        let state = RootFolder::open(&dir.path().join("state")).unwrap();
        let run = RunDir::create(&state, &RunId::new("r").unwrap()).unwrap();
        let workspace = RootFolder::open(&dir.path().join("work")).unwrap();
        Place { dir, run, workspace }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    fn remove_kept(&self) {
        fs::remove_dir_all(self.run.path().join("artifacts").join(attempt(1).to_string())).unwrap();
    }

    fn kept_at(&self, name: &str) -> PathBuf {
        self.run.path().join("artifacts").join(attempt(1).to_string()).join("files").join(name)
    }

    fn keep(&self, gives: &[(&str, &str)]) -> Result<ArtifactManifest, String> {
        self.keep_within(gives, ArtifactLimits::default())
    }

    fn keep_within(&self, gives: &[(&str, &str)], limits: ArtifactLimits) -> Result<ArtifactManifest, String> {
        let gives: Vec<OutputArtifact> = gives
            .iter()
            .map(|(name, path)| OutputArtifact {
                name: ArtifactName::new(name).unwrap(),
                path: (*path).to_owned(),
                kind: None,
            })
            .collect();
        let kept = self.run.keep_artifacts(attempt(1), &self.workspace, &gives, &[], limits);
        kept.map_err(|error| error.to_string())
    }
}

fn attempt(n: u32) -> AttemptId {
    format!("0.0.1.1.main.{n}").parse().unwrap()
}

fn paths(artifact: &KeptArtifact) -> Vec<&str> {
    artifact.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn a_file_and_a_folder_keep_their_paths() {
    let place = Place::new();
    let kept = place.keep(&[("one", "src/feature.ts"), ("all", "./src/"), ("none", "not/there")]).unwrap();
    let [one, all, none] = &kept.artifacts[..] else { panic!("{kept:?}") };
    assert_eq!((one.found, one.path.as_str(), one.bytes), (ArtifactForm::File, "src/feature.ts", 4));
    assert_eq!(paths(one), ["src/feature.ts"]);
    assert_eq!(one.files[0].hash, ContentHash::hash_bytes(b"code"));
    assert_eq!((all.found, all.path.as_str()), (ArtifactForm::Folder, "src"));
    assert_eq!(paths(all), ["src/deep/run.sh", "src/feature.ts"]);
    assert!(all.files[0].executable && !all.files[1].executable);
    assert_eq!((none.found, none.files.len()), (ArtifactForm::Missing, 0));
    assert_eq!(kept.artifacts.iter().filter(|artifact| artifact.found == ArtifactForm::Missing).count(), 1);
    assert_eq!(fs::read(place.kept_at("one/src/feature.ts")).unwrap(), b"code");
    let mode = fs::metadata(place.kept_at("all/src/deep/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777 & !0o022, 0o755 & !0o022);
    assert!(fs::read_dir(place.kept_at("none")).unwrap().next().is_none());
    assert_eq!(place.run.kept_bytes(&mut KeptSizes::default()).unwrap(), kept.total_bytes());
    assert!(fs::read_dir(place.run.path().join("pending")).unwrap().next().is_none());
}

#[test]
fn what_was_kept_once_stands() {
    let place = Place::new();
    let first = place.keep(&[("one", "src/feature.ts")]).unwrap();
    fs::write(place.at("src/feature.ts"), "changed").unwrap();
    assert_eq!(place.keep(&[("one", "src/feature.ts")]).unwrap(), first);
    assert_eq!(place.run.find_manifest(attempt(1)).unwrap(), Some(first));
    assert_eq!(place.run.find_manifest(attempt(2)).unwrap(), None);
    assert_eq!(fs::read(place.kept_at("one/src/feature.ts")).unwrap(), b"code");
    place.remove_kept();
    assert_eq!(place.run.find_manifest(attempt(1)).unwrap(), None);
}

#[test]
fn what_is_kept_is_counted_once() {
    let place = Place::new();
    let mut sizes = KeptSizes::default();
    let kept = place.keep(&[("one", "src/feature.ts")]).unwrap();
    assert_eq!(place.run.kept_bytes(&mut sizes).unwrap(), kept.total_bytes());
    let manifest = place.run.path().join("artifacts").join(attempt(1).to_string()).join("manifest.json");
    fs::write(manifest, "no manifest").unwrap();
    assert_eq!(place.run.kept_bytes(&mut sizes).unwrap(), kept.total_bytes());
    assert!(place.run.kept_bytes(&mut KeptSizes::default()).is_err());
    place.remove_kept();
    assert_eq!(place.run.kept_bytes(&mut sizes).unwrap(), 0);
}

/// The process died between the first copy and the last.
#[test]
fn a_half_kept_attempt_is_begun_anew() {
    let place = Place::new();
    let half = place.run.path().join("pending").join(attempt(1).to_string()).join("files/one");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("stale"), "x").unwrap();
    assert_eq!(place.run.find_manifest(attempt(1)).unwrap(), None);
    place.keep(&[("one", "src/feature.ts")]).unwrap();
    assert!(!place.kept_at("one/stale").exists());
}

#[test]
fn what_is_no_file_is_named_and_nothing_is_kept() {
    let place = Place::new();
    symlink("/etc/passwd", place.at("link")).unwrap();
    symlink("/etc", place.at("src/deep/out")).unwrap();
    mkfifoat(CWD, place.at("fifo"), Mode::RWXU).unwrap();
    fs::create_dir(place.at("sock")).unwrap();
    let _socket = UnixListener::bind(place.at("sock/s")).unwrap();
    for (path, name, why) in [
        ("link", "`link`", "`link` is a symbolic link"),
        ("src", "`out`", "leads out of the artifact"),
        ("src/deep/out/passwd", "out", "out"),
        ("fifo", "`fifo`", "it is a named pipe"),
        ("sock", "`s`", "it is a socket"),
        ("../state", "`../state`", "it leads out of that folder"),
        ("/etc/passwd", "`/etc/passwd`", "it is an absolute path, not one in that folder"),
    ] {
        let error = place.keep(&[("good", "src/feature.ts"), ("bad", path)]).unwrap_err();
        assert!(error.starts_with("the artifact `bad`: ") && error.contains(name) && error.contains(why), "{error}");
        assert_eq!(place.run.find_manifest(attempt(1)).unwrap(), None);
        assert!(fs::read_dir(place.run.path().join("pending")).unwrap().next().is_none());
    }
}

#[test]
fn each_limit_holds_at_its_edge() {
    let place = Place::new();
    let whole = ArtifactLimits::default();
    let size = 4 + 10;
    let src = [("all", "src")];
    for (limits, error) in [
        (ArtifactLimits { artifact_bytes: size - 1, ..whole }, "it has 14 bytes, and the limit is 13"),
        (ArtifactLimits { run_bytes: size - 1, ..whole }, "13 bytes are left of 10737418240"),
        (ArtifactLimits { files: 3, ..whole }, "it has more than 3 files and folders"),
        (ArtifactLimits { depth: 0, ..whole }, "more than 0 levels deep"),
    ] {
        let said = place.keep_within(&src, limits).unwrap_err();
        assert!(said.contains(error), "{said}");
    }
    let exact = ArtifactLimits { artifact_bytes: size, run_bytes: size, files: 4, depth: 1 };
    assert_eq!(place.keep_within(&src, exact).unwrap().total_bytes(), size);
    assert_eq!(ArtifactLimits::with_used(limits::ARTIFACTS_BYTES - 5).run_bytes, 5);
}

#[test]
fn the_budget_of_a_run_is_shared_by_its_artifacts() {
    let place = Place::new();
    let limits = ArtifactLimits { run_bytes: 7, ..ArtifactLimits::default() };
    let two = [("a", "src/feature.ts"), ("b", "src/feature.ts")];
    let error = place.keep_within(&two, limits).unwrap_err();
    assert!(error.contains("the artifact `b` exceeds the artifact limit of this run: 3 bytes"), "{error}");
}

/// The kernel reports these files as empty although they are not, like a file that grows while it is read.
#[test]
fn a_file_that_never_stays_the_same_is_an_error() {
    let place = Place::new();
    let workspace = RootFolder::open(Path::new("/proc/self")).unwrap();
    let gives = OutputArtifact { name: ArtifactName::new("busy").unwrap(), path: "status".into(), kind: None };
    let limits = ArtifactLimits::default();
    let error = place.run.keep_artifacts(attempt(1), &workspace, &[gives], &[], limits).unwrap_err().to_string();
    assert!(error.contains("it kept changing while it was being copied"), "{error}");
    assert_eq!(place.run.find_manifest(attempt(1)).unwrap(), None);
}

#[test]
fn a_change_that_keeps_the_size_is_seen() {
    let place = Place::new();
    let (file, before) = place.workspace.open_file("src/feature.ts").unwrap();
    assert_eq!(FileStamp::from_file(&file).unwrap(), before);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    fs::write(place.at("src/feature.ts"), "edoc").unwrap();
    fs::File::options().write(true).open(place.at("src/feature.ts")).unwrap().set_modified(later).unwrap();
    let after = FileStamp::from_file(&file).unwrap();
    assert_eq!(after.size, before.size);
    assert_ne!(after, before);
}

#[test]
fn folders_that_are_not_the_work_are_left_out() {
    let place = Place::new();
    let deep = place.workspace.open_folder("src/deep").unwrap().identity().unwrap();
    let gives = OutputArtifact { name: ArtifactName::new("all").unwrap(), path: ".".into(), kind: None };
    let limits = ArtifactLimits::default();
    let kept = place.run.keep_artifacts(attempt(1), &place.workspace, &[gives], &[deep], limits).unwrap();
    assert_eq!(kept.artifacts[0].path, "");
    assert_eq!(paths(&kept.artifacts[0]), ["src/feature.ts"]);
}

#[test]
fn a_consumer_is_given_a_copy_of_its_own() {
    let place = Place::new();
    let kept = place.keep(&[("all", "src"), ("none", "gone")]).unwrap();
    let name = ArtifactName::new("given").unwrap();
    let put = |artifact: &KeptArtifact| place.run.put_artifact(Some((attempt(1), artifact)), &place.workspace, &name);
    fs::create_dir_all(place.at("given/src")).unwrap();
    fs::write(place.at("given/mine"), "mine").unwrap();
    fs::write(place.at("given/src/feature.ts"), "old").unwrap();
    let paths = put(&kept.artifacts[0]).unwrap();
    assert_eq!(paths, [PathBuf::from("given/src/deep/run.sh"), PathBuf::from("given/src/feature.ts")]);
    assert_eq!(fs::read(place.at("given/src/feature.ts")).unwrap(), b"code");
    assert_eq!(fs::read(place.at("given/mine")).unwrap(), b"mine");
    let written = fs::metadata(place.at("given/src/feature.ts")).unwrap().modified().unwrap();
    put(&kept.artifacts[0]).unwrap();
    assert_eq!(fs::metadata(place.at("given/src/feature.ts")).unwrap().modified().unwrap(), written);
    fs::write(place.at("given/src/feature.ts"), "the consumer's").unwrap();
    assert_eq!(fs::read(place.kept_at("all/src/feature.ts")).unwrap(), b"code");
    let empty = ArtifactName::new("empty").unwrap();
    assert!(
        place.run.put_artifact(Some((attempt(1), &kept.artifacts[1])), &place.workspace, &empty).unwrap().is_empty()
    );
    assert!(fs::read_dir(place.at("empty")).unwrap().next().is_none());
    assert!(place.run.put_artifact(None, &place.workspace, &empty).unwrap().is_empty());
}

#[test]
fn an_artifact_never_lands_where_it_should_not() {
    let place = Place::new();
    let kept = place.keep(&[("all", "src")]).unwrap();
    let put = |name: &str| {
        let name = ArtifactName::new(name).unwrap();
        let put = place.run.put_artifact(Some((attempt(1), &kept.artifacts[0])), &place.workspace, &name);
        put.unwrap_err().to_string()
    };
    assert!(put(".git").contains("it is one of Git's own files"));
    assert!(put(".Claude").contains("Claude Code"));
    symlink("/tmp", place.at("link")).unwrap();
    assert!(put("link").contains("is a symbolic link"));
    fs::create_dir(place.at("there")).unwrap();
    symlink("/tmp", place.at("there/src")).unwrap();
    assert!(put("there").contains("is a symbolic link"));
    fs::write(place.at("file"), "x").unwrap();
    assert!(put("file").contains("not a folder"));
}

#[test]
fn a_kept_file_that_was_damaged_is_not_handed_on() {
    let place = Place::new();
    let kept = place.keep(&[("one", "src/feature.ts")]).unwrap();
    fs::write(place.kept_at("one/src/feature.ts"), "evil").unwrap();
    let name = ArtifactName::new("given").unwrap();
    let error = place.run.put_artifact(Some((attempt(1), &kept.artifacts[0])), &place.workspace, &name).unwrap_err();
    assert!(error.to_string().contains("its hash does not match"), "{error}");
    assert!(!place.at("given/src/feature.ts").exists());
}
