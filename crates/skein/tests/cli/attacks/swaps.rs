//! A step that swaps folders for links while other steps start in them.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::{
    kept::Project,
    session::{Folder, as_it_is, run, without_name_spaces},
};

const STARTS: usize = 30;

/// Exchanges the two names in one operation, so that both always exist.
const SWAP: &str = r#"import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
swaps = 0
while not os.path.exists("stop"):
    if libc.renameat2(-100, b"a", -100, b"link", 2) == 0:
        swaps += 1
if os.path.islink("a"):
    libc.renameat2(-100, b"a", -100, b"link", 2)
print(f"swaps={swaps}")
"#;

/// Every path is compared with what the engine found there, so a folder that was swapped in between is never written.
#[test]
fn folders_that_are_swapped_while_steps_start_lead_nowhere() {
    swap_while_steps_start(as_it_is);
}

#[test]
fn without_namespaces_folders_that_are_swapped_lead_nowhere_either() {
    swap_while_steps_start(without_name_spaces);
}

fn swap_while_steps_start(system: fn(&Command) -> Command) {
    let project = Project::new();
    let beside = Folder::new();
    fs::create_dir_all(project.path("a/sub")).unwrap();
    fs::create_dir(beside.0.join("sub")).unwrap();
    project.folder.write("skein.toml", "max_workers = 3\nallow_unenforced = true\n");
    symlink(&beside.0, project.path("link")).unwrap();
    project.folder.write("swap.py", SWAP);
    let swap = "/usr/bin/python3 swap.py >> $SKEIN_OUTPUT";
    let mut flow = format!(
        "name: f\nversion: \"1\"\ntimeout: 2m\nsteps:\n  swapper:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
         x-skein: {{ protect: [] }}\n    instructions: '{swap}'\n"
    );
    let mut names = Vec::new();
    for number in 0..STARTS {
        flow += &format!(
            "  s{number}:\n    worker: CUSTOM\n    workspace: a/sub\n    capabilities: [READ, EDIT]\n    on_failure: continue\n    \
             instructions: '(echo x > {}/sub/by-path-{number}) || true; echo x > written-{number}'\n",
            beside.0.display()
        );
        names.push(format!("s{number}"));
    }
    flow += &format!(
        "  stop:\n    worker: CUSTOM\n    depends_on: [{}]\n    capabilities: [READ, EDIT]\n    instructions: 'touch stop'\n",
        names.join(", ")
    );
    project.folder.write("flow.yaml", flow);
    let done = run(&mut system(&project.command("run flow.yaml --format json")));
    let told: serde_json::Value =
        serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}{}", done.out, done.err));
    let steps = told["steps"].as_array().unwrap();
    let swaps: u64 = steps[0]["outputs"]["swaps"].to_string().trim_matches('"').parse().unwrap_or(0);
    let started = steps.iter().filter(|step| step["status"] == "succeeded").count();
    println!("{swaps} swaps while {STARTS} steps started; {started} steps succeeded");
    assert!(swaps > 20, "there was something to survive: {told}");
    let outside: Vec<_> = fs::read_dir(beside.0.join("sub")).unwrap().flatten().collect();
    assert!(outside.is_empty(), "{outside:?}");
}
