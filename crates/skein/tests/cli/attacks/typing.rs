//! A worker that types an answer in place of the person.

use std::io::Write;

use crate::kept::{Project, at_a_terminal, until};

const TYPIST: &str = r#"import ctypes, fcntl, glob, os, sys, termios
sys.stdin.read()
if os.environ["SKEIN_STEP"] == "typist":
    typed = 0
    targets = [0, 1, 2, "/dev/tty", *(f"/dev/pts/{n}" for n in range(64)), *glob.glob("/proc/*/fd/*")]
    for target in targets:
        try:
            terminal = target if isinstance(target, int) else os.open(target, os.O_RDWR | os.O_NONBLOCK)
            for key in b"y\n":
                fcntl.ioctl(terminal, termios.TIOCSTI, bytes([key]))
                typed += 1
        except OSError:
            pass
    with open("typed.txt", "w") as file:
        file.write(f"{typed} keys\n")
with open("done.txt", "a") as file:
    file.write(os.environ["SKEIN_STEP"] + "\n")
"#;

#[test]
fn a_worker_that_types_does_not_open_its_gate() {
    let project = Project::new();
    project.folder.write("typist.py", TYPIST).write(
        "skein.toml",
        "[roles]\nowners = [\"*\"]\n[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"/usr/bin/python3\", \"typist.py\"]\n",
    );
    project.folder.write(
        "typed.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: typed}\nspec:\n  description: Asks.\n  \
         domainsInvolved: [editorial]\n  timeout: 1h\n  failurePolicy: abort\n  steps:\n    \
         - {name: sign-off, agent: writer, action: \"GATE: May this go out?\", timeout: 30m}\n    \
         - {name: typist, agent: writer, action: Type., timeout: 10m}\n    \
         - {name: publish, agent: writer, action: Publish it., dependsOn: [sign-off], timeout: 10m}\n",
    );
    let (going, mut stdin) = at_a_terminal(&project.folder, "run typed.yaml");
    until("the typist is done", || project.read("done.txt") == "typist\n");
    going.until("skein reject");
    assert_eq!(project.read("typed.txt"), "0 keys\n");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(project.status(&run), "waiting");
    writeln!(stdin, "y").unwrap();
    going.until("approved by");
    assert_eq!(going.end().0, Some(0));
    assert_eq!(project.read("done.txt"), "typist\npublish\n");
}
