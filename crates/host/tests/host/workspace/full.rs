//! A full disk: distinguished from every other failure, and no partial files are left.

use std::{env, fs, path::Path, process::Command};

use skein_core::{
    engine::AttemptId,
    ids::{ArtifactName, RunId},
    ir::OutputArtifact,
};
use skein_host::workspace::{ArtifactLimits, RootFolder, RunDir};

const SMALL: &str = "SKEIN_TEST_SMALL_DISK";

/// Runs the test below in a namespace in which a small file system can be mounted privately.
#[test]
fn a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let spaces: &[&str] = if rustix::process::getuid().is_root() { &["-m"] } else { &["-r", "-m"] };
    let inside = "mount -t tmpfs -o size=256k tmpfs \"$1\" && exec \"$2\" --exact workspace::full::inside --ignored";
    let output = Command::new("unshare")
        .args(spaces)
        .args(["sh", "-c", inside, "sh"])
        .arg(dir.path())
        .arg(env::current_exe().unwrap())
        .env(SMALL, dir.path())
        .output()
        .expect("this test needs `unshare` of util-linux");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "this test needs to mount a tmpfs in a namespace of its own; it said:\n{said}"
    );
}

#[test]
#[ignore = "only inside of the test above"]
fn inside() {
    let small = env::var_os(SMALL).expect("it is started by the test above");
    let small = Path::new(&small);
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("large"), vec![7; 1024 * 1024]).unwrap();
    let workspace = RootFolder::open(work.path()).unwrap();
    let state = RootFolder::open(small).unwrap();
    let run = RunDir::create(&state, &RunId::new("r").unwrap()).unwrap();
    let attempt: AttemptId = "0.0.1.1.main.1".parse().unwrap();
    let gives = [OutputArtifact { name: ArtifactName::new("a").unwrap(), path: "large".into(), kind: None }];
    let error = run.keep_artifacts(attempt, &workspace, &gives, &[], ArtifactLimits::default()).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert!(error.to_string().contains("there is no space left on the disk"), "{error}");
    assert_eq!(run.find_manifest(attempt).unwrap(), None);
    assert!(fs::read_dir(small.join("runs/r/pending")).unwrap().next().is_none());
    // The earlier content is unchanged, and there is room again.
    state.replace_file("file", b"old").unwrap();
    assert!(state.replace_file("file", &vec![7; 1024 * 1024]).unwrap_err().is_no_space());
    assert_eq!(state.read_file("file", 10).unwrap(), b"old");
    fs::write(work.path().join("large"), "small").unwrap();
    assert!(run.keep_artifacts(attempt, &workspace, &gives, &[], ArtifactLimits::default()).is_ok());
}
