//! Workers that attack the user who runs them: the terminal, sockets, files, processes, the engine, the kernel. Hostile
//! repositories are in [`planted`], hostile agents in `agents/attacks.rs`.
//!
//! Most attacks are lines of tables. One worker tries a whole table (`drive.py`) and reports for each attack if it
//! worked; the test also checks from outside. The same attacks are then tried without a sandbox, as a control: an
//! attack that works nowhere proves nothing. [`OPEN`] names the attacks that are known to work; docs/security.md
//! documents them, too.

mod engine;
mod kernel;
mod launcher;
mod left_behind;
mod namespaces;
mod network;
mod paths;
mod planted;
mod processes;
mod root;
mod sockets;
mod swaps;
mod terminal;
mod typing;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::{Value, json};

use crate::{
    kept::GATED,
    proofs::{named, tests},
    session::{repository, run},
};

/// The conditions under which an attack must work without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Always,
    /// For root.
    Root,
    /// Not every machine has its target.
    Unproven,
    /// It would do harm, so it is tried only in a worker.
    Never,
}

#[derive(Debug)]
pub(crate) struct Attack {
    name: &'static str,
    control: Control,
    language: &'static str,
    text: &'static str,
}

/// An attack in Python with the helpers of `drive.py`. It worked if `ok` is true at the end.
pub(crate) const fn python(name: &'static str, control: Control, text: &'static str) -> Attack {
    Attack { name, control, language: "python", text }
}

/// An attack as a shell script. It worked if it exits with status 0.
pub(crate) const fn shell(name: &'static str, control: Control, text: &'static str) -> Attack {
    Attack { name, control, language: "sh", text }
}

/// Attacks on every sandbox.
const TABLES: &[&[Attack]] = &[
    terminal::ATTACKS,
    sockets::ATTACKS,
    paths::ATTACKS,
    processes::ATTACKS,
    kernel::ATTACKS,
    namespaces::ATTACKS,
    root::ATTACKS,
    engine::ATTACKS,
];

/// Attacks that work, with the reason.
const OPEN: &[(&str, &str)] = &[
    ("socket_bound_by_a_relative_path", "the kernel does not say where a socket with a relative name is"),
    ("socket_that_was_renamed", "the kernel names a socket by the path that it had first"),
];

/// Attacks that can work for a user other than root, with the reason.
const OPEN_TO_USERS: &[(&str, &str)] =
    &[("keys_of_the_kernel", "a mask of a file in /proc would keep agents from building sandboxes of their own")];

/// The attacks that are known to work for a worker of this person.
fn open_attacks(person: Person) -> BTreeSet<&'static str> {
    let of_users = if person == Person::Ordinary { OPEN_TO_USERS } else { &[] };
    OPEN.iter().chain(of_users).map(|(name, _)| *name).collect()
}

/// Attacks that also work if only Landlock is available: reading is not confined, and there are no private namespaces.
const OPEN_WITHOUT_NAMESPACES: &[&str] = &[
    "read_keystrokes_without_writing",
    "change_settings_without_writing",
    "change_a_mode",
    "change_attributes",
    "change_the_program",
    "change_times",
    "command_line_of_a_process",
    "container_engine_in_run",
    "container_engine_in_var_run",
    "copy_the_journal",
    "datagram_in_tmp",
    "find_a_process_by_its_name",
    "gpg_agent_in_home",
    "handle_of_a_process",
    "limits_of_a_process",
    "list_runs",
    "list_shared_memory",
    "messages_by_number",
    "nested_change_of_root",
    "packets_in_tmp",
    "priority_of_a_process",
    "processors_of_a_process",
    "read_a_file_in_run",
    "read_a_file_in_shared_memory",
    "read_a_file_in_tmp",
    "read_a_file_in_var_tmp",
    "read_another_run",
    "read_the_journal",
    "semaphores_by_number",
    "session_bus",
    "session_of_a_process",
    "shared_memory_by_number",
    "socket_bound_through_a_link",
    "socket_in_home",
    "socket_in_run",
    "socket_in_shared_memory",
    "socket_in_tmp",
    "socket_in_var_tmp",
    "ssh_agent_in_tmp",
    "terminal_server_runs_a_command",
    "terminal_server_shows_its_sessions",
    "terminal_server_types_a_command",
    "write_a_file_in_shared_memory",
];

/// Attacks that mean nothing if the tests have no namespaces: the user is then root of a namespace already.
const ROOT_ALREADY: &[&str] = &["become_root", "become_group_root", "program_with_another_user"];

/// Attacks that work for a tool, which may write wherever its user may.
const OPEN_TO_TOOLS: &[&str] = &[
    "append_to_a_file",
    "change_a_mode",
    "change_attributes",
    "change_the_program",
    "change_times",
    "empty_a_file",
    "exchange_the_workspace",
    "hard_link_by_descriptor",
    "hard_link_into_the_workspace",
    "make_a_file_above",
    "make_a_file_at_home",
    "make_a_file_beside",
    "make_a_file_in_etc",
    "make_a_file_in_root",
    "make_a_file_in_usr",
    "make_a_file_without_a_name",
    "make_a_folder",
    "make_a_link",
    "make_a_pipe",
    "make_a_socket",
    "nested_change_of_owner",
    "nested_links_out_of_a_copy",
    "nested_write_outside",
    "open_a_program_for_writing",
    "open_again_for_writing",
    "open_passwords_for_writing",
    "put_a_file",
    "remove_a_file",
    "rename_a_file",
    "rename_the_folder_around_the_workspace",
    "take_a_file",
    "write_through_a_descriptor",
    "write_through_a_link",
    "write_through_a_link_to_a_folder",
    "write_through_own_folder",
    "write_through_own_root",
    "write_to_mapped_memory",
];

/// Operations that programs need.
const ALLOWED: &[Attack] = &[
    python("pair_of_sockets", Control::Never, "a, b = socket.socketpair()\na.send(b'x')\nok = b.recv(1) == b'x'"),
    python("be_traced", Control::Never, "ok = works('ptrace', 0, 0, 0, 0)"),
    python("route_netlink", Control::Never, "ok = family(16, socket.SOCK_RAW, 0)"),
    python("internet_socket", Control::Never, "ok = family(socket.AF_INET, socket.SOCK_STREAM)"),
    python("new_terminal", Control::Never, "ok = own_terminal() >= 0"),
    python("shared_memory", Control::Never, "ok = makes('/dev/shm/x')"),
    python("temporary_file", Control::Never, "ok = makes('/tmp/x') and makes('/var/tmp/x')"),
    python("file_in_the_workspace", Control::Never, "ok = makes('x')"),
    python("own_processes", Control::Never, "ok = reads('/proc/self/status') and reads('/proc/1/status')"),
    shell("devices", Control::Never, "echo > /dev/null && head -c 1 /dev/zero /dev/urandom /dev/random > /dev/null"),
    shell("own_users", Control::Never, "unshare -Ur true"),
    shell("own_mounts", Control::Never, "mkdir -p m && unshare -Urm mount -t tmpfs none m"),
    shell("own_process_numbers", Control::Never, "unshare -Urpf true"),
    shell("trace_a_child", Control::Never, "strace -o /dev/null true"),
    shell("pipes_and_jobs", Control::Never, "sleep 5 | cat & kill $! && wait; true"),
];

/// A tool that runs the attacks, its driver, and a workflow that calls it.
const TOOL: &[(&str, &str, &str)] = &[
    (
        ".tools/try-all",
        "TOOL.md",
        "---\nname: T\nid: try-all\ndescription: Attacks.\nversion: 1.0.0\ninputs: { type: object }\noutputs: { type: object }\n---\n",
    ),
    (
        ".drivers/attacker",
        "DRIVER.md",
        "---\nname: D\nid: attacker\ndescription: Attacks.\nversion: 1.0.0\nkind: cli\nbin: ./d.sh\nimplements:\n  - tool: try-all\n    version: ^1.0.0\n---\n",
    ),
    (
        ".drivers/attacker",
        "d.sh",
        "#!/bin/sh\ncd inside && /usr/bin/python3 drive.py attacks.json $TMPDIR/said >&2\nexec /usr/bin/python3 -c \"import json, os; print(json.dumps(dict(l.split('=') for l in open(os.environ['TMPDIR'] + '/said').read().split())))\"\n",
    ),
    (
        ".",
        "attack.md",
        "---\nname: A\nid: attack\ndescription: Attacks.\nversion: 1.0.0\ninputs: { type: object }\noutputs: { type: object }\ntimeout_ms: 200000\nstart: it\nsteps:\n  - { id: it, kind: tool, tool: try-all, next: $end }\n---\n",
    ),
];

const NOBODY: u32 = 65_534;
const PYTHON: &str = "/usr/bin/python3";

/// The user who runs Skein.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    Root,
    Ordinary,
}

impl Person {
    /// A command by this user. Returns `None` if the tests may not act as that user.
    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Option<Command> {
        match (self, getuid().is_root()) {
            (Person::Root, true) | (Person::Ordinary, false) => Some(Command::new(program)),
            (Person::Root, false) => None,
            (Person::Ordinary, true) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
                Some(command)
            }
        }
    }
}

/// Panics with the name of a package if a program is missing.
pub(crate) fn require(programs: &[(&str, &str)]) {
    for (program, package) in programs {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
        assert!(found, "the attacks need `{program}`: install the package `{package}` (Debian)");
    }
    assert!(Path::new(PYTHON).exists(), "the attacks need {PYTHON}: install the package `python3` (Debian)");
}

/// A user's project with programs beside it. It is not below a folder that every sandbox replaces.
pub(crate) struct Range {
    pub person: Person,
    pub top: PathBuf,
    name: String,
    targets: BTreeMap<String, Value>,
    outsider: Option<Child>,
    listeners: Vec<UnixListener>,
}

impl Range {
    /// Returns `None` if the tests may not act as that user.
    pub(crate) fn new(person: Person) -> Option<Range> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        person.command("true")?;
        let name = format!("skein-attacks-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let top = base().join(&name);
        let _ = fs::remove_dir_all(&top);
        let range = Range { person, top, name, targets: BTreeMap::new(), outsider: None, listeners: vec![] };
        for folder in ["home", "witness", "project/inside", "project/control", "project/.git"] {
            fs::create_dir_all(range.top.join(folder)).unwrap();
        }
        for file in ["secret", "kept", "emptied", "removed", "renamed", "taken"] {
            range.write(&format!("home/{file}"), "as it was\n");
        }
        range.write("project/gated.yaml", GATED);
        range.write(
            "project/skein.toml",
            "[roles]\nowners = [\"*\"]\n[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat >/dev/null\"]\n",
        );
        fs::copy(env!("CARGO_BIN_EXE_skein"), range.top.join("skein")).unwrap();
        fs::set_permissions(range.top.join("skein"), fs::Permissions::from_mode(0o755)).unwrap();
        range.own();
        Some(range)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.top.join(name), text).unwrap();
        if self.person == Person::Ordinary && getuid().is_root() {
            chown(self.top.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Changes the owner of everything to the user.
    fn own(&self) {
        if self.person == Person::Ordinary && getuid().is_root() {
            let done = Command::new("chown").args(["-R", "65534:65534"]).arg(&self.top).status().unwrap();
            assert!(done.success());
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    fn settled(&self, mut command: Command) -> Command {
        command.current_dir(self.path("project")).env("HOME", self.path("home")).env("SHELL", "/bin/sh");
        command.env("TERM", "xterm").env_remove("SKEIN_STATE").env_remove("TMPDIR").stdin(Stdio::null());
        command
    }

    /// A command by the user, in the project.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.settled(self.person.command(program).unwrap())
    }

    pub(crate) fn skein(&self, line: &str) -> Command {
        let mut command = self.command(self.path("skein"));
        command.args(line.split_whitespace());
        command
    }

    /// Starts the programs beside the project, and a run that waits for a person.
    fn populate(&mut self) {
        self.write("outsider.py", include_str!("outsider.py"));
        let mut command = self.command(PYTHON);
        command.arg(self.path("outsider.py")).arg(&self.top).arg(&self.name).env("OUTSIDE", "outside-secret");
        let mut outsider = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(outsider.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.outsider = Some(outsider);
        self.targets = serde_json::from_str(&line).expect("the outsider tells what it made");
        for (name, path) in [
            ("home", "home"),
            ("witness", "witness"),
            ("project", "project"),
            ("state", "project/.skein"),
            ("skein", "skein"),
        ] {
            self.targets.insert(name.into(), json!(self.path(path)));
        }
        if getuid().is_root() {
            self.populate_as_root();
        }
        let left = run(&mut self.skein("run gated.yaml --no-wait --format json"));
        let left: Value = serde_json::from_str(&left.out).unwrap_or_else(|_| panic!("{}{}", left.out, left.err));
        self.targets.insert("run".into(), left["run_id"].clone());
    }

    /// Creates the targets that only root can create.
    fn populate_as_root(&mut self) {
        let runtime = Path::new("/run").join(&self.name);
        fs::create_dir(&runtime).unwrap();
        fs::write(runtime.join("secret"), "outside-secret\n").unwrap();
        self.targets.insert("run_file".into(), json!(runtime.join("secret")));
        for (name, file) in [("run_socket", "socket"), ("container_engine", "docker.sock"), ("session_bus", "bus")] {
            self.listeners.push(UnixListener::bind(runtime.join(file)).unwrap());
            fs::set_permissions(runtime.join(file), fs::Permissions::from_mode(0o777)).unwrap();
            self.targets.insert(name.into(), json!(runtime.join(file)));
        }
        let program = self.path("setuid-id");
        fs::copy("/usr/bin/id", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        self.targets.insert("setuid_program".into(), json!(program));
    }

    fn write_attacks(&self, attacks: &[&Attack]) {
        let attacks: Vec<Value> = attacks
            .iter()
            .map(|attack| json!({"name": attack.name, "language": attack.language, "text": attack.text}))
            .collect();
        let calls: BTreeMap<&str, i64> = CALLS.iter().map(|(name, number)| (*name, *number)).collect();
        let asked = json!({"attacks": attacks, "calls": calls, "targets": self.targets}).to_string();
        for folder in ["inside", "control"] {
            self.write(&format!("project/{folder}/attacks.json"), &asked);
            self.write(&format!("project/{folder}/drive.py"), include_str!("drive.py"));
        }
    }

    /// Runs a shell command at a terminal into which a few keys were typed. Returns the terminal output.
    fn at_terminal(&self, line: &str, more: &[(&str, &str)]) -> String {
        let mut command = self.command("script");
        let line = format!("tty > {}; exec {line}", self.path("project/terminal").display());
        command.args(["-qefc", &line, "/dev/null"]).envs(more.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Open until the end, because the end of the input is a key, too.
        let mut keys = child.stdin.take().unwrap();
        keys.write_all("key\n".repeat(40).as_bytes()).unwrap();
        let mut shown = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut shown).unwrap();
        child.wait().unwrap();
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Lets a worker try attacks. Returns the result of each attack and the terminal output.
    fn try_in_worker(&self, attacks: &[&Attack], network: &str, namespaces: bool) -> (Verdicts, String) {
        self.write_attacks(attacks);
        self.write("project/attack.yaml", &format!(
            "name: attack\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    workspace: inside\n    \
             capabilities: [READ, EDIT, RUN_COMMANDS]\n    x-skein: {{ network: {network} }}\n    \
             instructions: |\n      {PYTHON} drive.py attacks.json \"$SKEIN_OUTPUT\"\n"
        ));
        let limit =
            "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
        let skein = format!("{} run attack.yaml --format json > result.json 2> errors", self.path("skein").display());
        let line = match namespaces {
            true => skein,
            false => format!("unshare --user --map-root-user sh -c '{limit} {skein}'"),
        };
        self.run_attacks(attacks, &line)
    }

    /// Lets a tool try attacks, which may write wherever its user may.
    fn try_in_tool(&self, attacks: &[&Attack]) -> (Verdicts, String) {
        self.write_attacks(attacks);
        for (folder, file, text) in TOOL {
            fs::create_dir_all(self.path(&format!("project/{folder}"))).unwrap();
            self.write(&format!("project/{folder}/{file}"), text);
        }
        fs::set_permissions(self.path("project/.drivers/attacker/d.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        self.own();
        self.run_attacks(
            attacks,
            &format!("{} run attack.md --format json > result.json 2> errors", self.path("skein").display()),
        )
    }

    fn run_attacks(&self, attacks: &[&Attack], line: &str) -> (Verdicts, String) {
        let shown = self.at_terminal(line, &[]);
        let said = fs::read_to_string(self.path("project/result.json")).unwrap_or_default();
        let errors = fs::read_to_string(self.path("project/errors")).unwrap_or_default();
        let result: Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{errors}{shown}"));
        let step = &result["steps"][0];
        assert_eq!(step["status"], "succeeded", "{result}");
        let outputs = step["outputs"].as_object().unwrap();
        let verdicts: Verdicts =
            outputs.iter().map(|(name, said)| (name.clone(), said.as_str().unwrap().to_owned())).collect();
        let names: BTreeSet<&str> = attacks.iter().map(|attack| attack.name).collect();
        assert_eq!(verdicts.keys().map(String::as_str).collect::<BTreeSet<_>>(), names, "each attack was tried");
        (verdicts, shown)
    }

    /// Tries the same without a sandbox. Returns the terminal output, too.
    fn try_plainly(&self, attacks: &[&Attack]) -> (Verdicts, String) {
        self.write_attacks(attacks);
        let line = format!("sh -c 'cd control && exec {PYTHON} drive.py attacks.json ../said'");
        let shown = self.at_terminal(&line, &[("ATTACK_CONTROL", "1")]);
        let said = fs::read_to_string(self.path("project/said")).unwrap();
        let verdicts = said.lines().filter_map(|line| line.split_once('='));
        (verdicts.map(|(name, said)| (name.to_owned(), said.to_owned())).collect(), shown)
    }

    /// Asserts that nothing outside the workspace has changed.
    fn assert_untouched(&self, shown: &str) {
        assert!(!shown.contains("FORGED") && !shown.contains('#'), "the terminal showed: {shown:?}");
        let names = |folder: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(self.path(folder)).unwrap().flatten();
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        assert_eq!(names("witness"), BTreeSet::new());
        for file in ["secret", "kept", "emptied", "removed", "renamed", "taken"] {
            assert_eq!(fs::read_to_string(self.path(&format!("home/{file}"))).unwrap(), "as it was\n", "{file}");
        }
        let project = [
            ".git",
            ".skein",
            "attack.yaml",
            "context",
            "control",
            "errors",
            "gated.yaml",
            "inside",
            "result.json",
            "skein.toml",
            "terminal",
        ];
        assert_eq!(names("project"), project.map(str::to_owned).into());
        assert_eq!(self.waiting(), "waiting", "the gate of the other run is still closed");
    }

    fn waiting(&self) -> String {
        let run_id = self.targets["run"].as_str().unwrap();
        let told = run(&mut self.skein(&format!("runs {run_id} --format json")));
        let told: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{}{}", told.out, told.err));
        told["status"].as_str().unwrap().to_owned()
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(mut outsider) = self.outsider.take() {
            let _ = kill_process(Pid::from_child(&outsider), Signal::CONT);
            drop(outsider.stdin.take());
            let _ = outsider.wait();
        }
        let _ = fs::remove_dir_all(Path::new("/run").join(&self.name));
        let _ = fs::remove_dir_all(&self.top);
    }
}

type Verdicts = BTreeMap<String, String>;

/// A folder that everybody can read and no sandbox replaces.
fn base() -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let open = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o1 == 1);
    let replaced = ["/tmp", "/var/tmp", "/run", "/dev"].iter().any(|folder| own.starts_with(folder));
    match own.ancestors().all(open) && !replaced {
        true => own.to_owned(),
        false if getuid().is_root() => PathBuf::from("/opt"),
        false => own.to_owned(),
    }
}

/// System call numbers, which differ between processors.
const CALLS: &[(&str, i64)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("adjtimex", libc::SYS_adjtimex),
    ("bpf", libc::SYS_bpf),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("clock_settime", libc::SYS_clock_settime),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("get_robust_list", libc::SYS_get_robust_list),
    ("init_module", libc::SYS_init_module),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("linkat", libc::SYS_linkat),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pivot_root", libc::SYS_pivot_root),
    ("prlimit64", libc::SYS_prlimit64),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("setdomainname", libc::SYS_setdomainname),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("socket", libc::SYS_socket),
    ("swapoff", libc::SYS_swapoff),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("tgkill", libc::SYS_tgkill),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("vhangup", libc::SYS_vhangup),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt),
];

fn everywhere() -> Vec<&'static Attack> {
    TABLES.iter().copied().flatten().collect()
}

fn worked(verdicts: &Verdicts) -> BTreeSet<&str> {
    verdicts.iter().filter(|(_, said)| *said == "yes").map(|(name, _)| name.as_str()).collect()
}

/// True if a control proves something. In a container that filters system calls or drops capabilities of root, many
/// attacks work nowhere.
fn is_whole_machine() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let held = u64::from_str_radix(field("CapEff:"), 16).unwrap();
    field("Seccomp:") == "0" && held & SYS_ADMIN != 0
}

/// Attacks by one user, with and without a sandbox.
fn attack(person: Person, attacks: &[&Attack], network: &str) {
    require(&[
        ("tmux", "tmux"),
        ("gdb", "gdb"),
        ("strace", "strace"),
        ("script", "bsdutils"),
        ("unshare", "util-linux"),
        ("setpriv", "util-linux"),
        ("mount", "mount"),
    ]);
    let Some(mut range) = Range::new(person) else { return };
    range.populate();
    let (verdicts, shown) = range.try_in_worker(attacks, network, true);
    let open = open_attacks(person);
    let unexpected: Vec<_> = worked(&verdicts).difference(&open).copied().map(str::to_owned).collect();
    assert_eq!(unexpected, Vec::<String>::new(), "attacks that worked");
    range.assert_untouched(&shown);
    let harmless: Vec<&Attack> = attacks.iter().filter(|attack| attack.control != Control::Never).copied().collect();
    let (control, shown) = range.try_plainly(&harmless);
    let works = |attack: &Attack| {
        let due = attack.control == Control::Always || attack.control == Control::Root && person == Person::Root;
        let said = control.get(attack.name).map_or("", String::as_str);
        let excused = said == "absent" || said == "skip" && !getuid().is_root();
        !due || said == "yes" || excused
    };
    let broken: Vec<&str> = attacks.iter().filter(|attack| !works(attack)).map(|attack| attack.name).collect();
    let proven = worked(&control).len();
    println!("{} attacks refused, {proven} of which work without a sandbox", attacks.len() - worked(&verdicts).len());
    if is_whole_machine() {
        assert_eq!(broken, Vec::<&str>::new(), "attacks that do not work without a sandbox either");
        assert!(
            attacks.iter().all(|attack| attack.name != "set_clipboard_of_host_terminal") || shown.contains("FORGED")
        );
    }
}

#[test]
fn no_attack_of_a_worker_works_for_root() {
    attack(Person::Root, &everywhere(), "on");
}

#[test]
fn no_attack_of_a_worker_works_for_an_ordinary_user() {
    attack(Person::Ordinary, &everywhere(), "on");
}

#[test]
fn no_attack_of_a_worker_without_network_works_for_root() {
    attack(Person::Root, &network::ATTACKS.iter().chain(everywhere()).collect::<Vec<_>>(), "none");
}

#[test]
fn no_attack_of_a_worker_without_network_works_for_an_ordinary_user() {
    attack(Person::Ordinary, &network::ATTACKS.iter().chain(everywhere()).collect::<Vec<_>>(), "none");
}

/// Without namespaces less is enforced, but only the documented attacks work.
#[test]
fn without_namespaces_no_other_attack_works_than_is_documented() {
    let Some(mut range) = Range::new(Person::Ordinary) else { return };
    range.populate();
    let (verdicts, _) = range.try_in_worker(&everywhere(), "on", false);
    let mut open = open_attacks(Person::Ordinary);
    open.extend(OPEN_WITHOUT_NAMESPACES.iter().chain(ROOT_ALREADY));
    let unexpected: Vec<_> = worked(&verdicts).difference(&open).copied().map(str::to_owned).collect();
    assert_eq!(unexpected, Vec::<String>::new(), "attacks that worked");
}

/// A tool writes wherever its user may. Nothing else is open to it.
#[test]
fn no_attack_of_a_tool_works_beyond_writing() {
    for person in [Person::Root, Person::Ordinary] {
        let Some(mut range) = Range::new(person) else { continue };
        range.populate();
        let (verdicts, shown) = range.try_in_tool(&everywhere());
        let mut open = open_attacks(person);
        open.extend(OPEN_TO_TOOLS);
        let unexpected: Vec<_> = worked(&verdicts).difference(&open).copied().map(str::to_owned).collect();
        assert_eq!(unexpected, Vec::<String>::new(), "attacks that worked for {person:?}");
        assert!(!shown.contains("FORGED") && !shown.contains('#'), "the terminal showed: {shown:?}");
        assert_eq!(range.waiting(), "waiting", "the gate of the other run is still closed");
    }
}

/// The operations that programs need work in every sandbox, because users would turn off a sandbox that breaks them.
#[test]
fn what_programs_need_works_in_a_sandbox() {
    for (person, network) in
        [(Person::Root, "on"), (Person::Ordinary, "on"), (Person::Root, "none"), (Person::Ordinary, "none")]
    {
        let Some(mut range) = Range::new(person) else { continue };
        range.populate();
        let all: Vec<&Attack> = ALLOWED.iter().collect();
        let (verdicts, _) = range.try_in_worker(&all, network, true);
        let refused: Vec<_> = verdicts.iter().filter(|(_, said)| *said != "yes").collect();
        assert!(refused.is_empty(), "{person:?}, network {network}: {refused:?}");
    }
}

#[test]
fn there_are_many_attacks_and_each_has_a_name_of_its_own() {
    let all: Vec<&str> = network::ATTACKS.iter().chain(everywhere()).map(|attack| attack.name).collect();
    let distinct: BTreeSet<&str> = all.iter().copied().collect();
    println!("{} attacks", all.len());
    assert_eq!(all.len(), distinct.len(), "two attacks have one name");
    assert!(all.len() >= 120, "only {} attacks", all.len());
    for name in OPEN_TO_TOOLS {
        assert!(distinct.contains(name), "there is no attack {name}");
    }
    let page = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let tests = tests();
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains("`crates/")) {
        let proofs = named(row.split('|').nth(3).unwrap());
        assert!(!proofs.is_empty(), "no test proves: {row}");
        for name in proofs {
            assert!(tests.contains(name), "there is no test `{name}`: {row}");
        }
    }
    for name in OPEN.iter().chain(OPEN_TO_USERS).map(|(name, _)| name).chain(OPEN_WITHOUT_NAMESPACES) {
        assert!(distinct.contains(name) && page.contains(&format!("`{name}`")), "{name} is on the page");
    }
}
