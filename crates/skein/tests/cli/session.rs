//! A terminal session that is compared with a file: commands, their output, and their exit status.
//!
//! `INSTA_UPDATE=always` writes missing and changed files. A command that does not end is stopped, and the test fails.

use std::{
    fmt::Write as _,
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub(crate) use skein_testkit::TemporaryProject as Folder;

/// Longer than any command may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// The result of a command.
pub(crate) struct Done {
    pub out: String,
    pub err: String,
    pub code: i32,
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in crates/")
}

/// The folder in which the program lists its state folders, instead of the home of the user who runs the tests.
pub(crate) fn state_home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("state-home")
}

/// The program, in a folder, without the caller's settings.
pub(crate) fn skein(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skein"));
    command.current_dir(folder).stdin(Stdio::null());
    command.env("XDG_STATE_HOME", state_home());
    command.env_remove("NO_COLOR").env_remove("SKEIN_STATE").env_remove("COLUMNS").env("TERM", "xterm");
    command
}

/// A copy of the command.
pub(crate) fn as_it_is(command: &Command) -> Command {
    wrapped(Command::new(command.get_program()), command)
}

/// The command in a system that permits no namespaces, by a user without the capability to do without them.
pub(crate) fn without_name_spaces(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--user", "--map-root-user", "sh", "-c"]);
    let rights = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    outer.arg(format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {rights} \"$@\""));
    outer.arg("sh").arg(command.get_program());
    wrapped(outer, command)
}

pub(crate) fn wrapped(mut outer: Command, command: &Command) -> Command {
    outer.args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Runs a command to its end, or stops it.
pub(crate) fn run(command: &mut Command) -> Done {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("it can be stopped");
            panic!("{command:?} does not end");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let code = status.code().unwrap_or_else(|| panic!("{command:?} was ended by a signal"));
    Done { out: out.join().expect("it is text"), err: err.join().expect("it is text"), code }
}

fn drain(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        from.expect("it is a pipe").read_to_string(&mut text).expect("output is text");
        text
    })
}

/// A folder for programs that the engine runs for itself: no folder above it is writable by everyone.
pub(crate) fn folder_for_programs() -> Folder {
    let open = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0);
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if !built.ancestors().any(open) {
        return Folder::below(built);
    }
    let home = PathBuf::from(std::env::var_os("HOME").expect("there is a home")).join(".cache/skein/tests");
    fs::create_dir_all(&home).expect("a folder can be made");
    Folder::below(&home)
}

/// The typed commands and their output.
pub(crate) struct Session {
    folder: PathBuf,
    text: String,
}

impl Session {
    pub(crate) fn within(folder: &Path) -> Session {
        Session { folder: folder.to_owned(), text: String::new() }
    }

    /// A session at the root of this repository, where the examples are.
    pub(crate) fn here() -> Session {
        Session::within(repository())
    }

    /// Runs one command, as it would be typed. Words are separated by blanks, and `_` in a quoted word is a blank.
    pub(crate) fn skein(&mut self, line: &str, code: i32) -> &mut Session {
        let words = line.split_whitespace().map(|word| match word.strip_prefix('\'') {
            Some(word) => word.trim_end_matches('\'').replace('_', " "),
            None => word.to_owned(),
        });
        let done = run(skein(&self.folder).args(words));
        for text in [&done.out, &done.err] {
            assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text:?}");
            assert!(!text.contains("panicked"), "{text}");
        }
        let part = |name: &str, text: &str| match text {
            "" => String::new(),
            text if text.ends_with('\n') => format!("[{name}]\n{text}"),
            text => format!("[{name}]\n{text}\n[no end of line]\n"),
        };
        let (out, err) = (part("stdout", &done.out), part("stderr", &done.err));
        let shown = format!("{out}{err}").replace(self.folder.to_str().expect("it is text"), "[folder]");
        writeln!(self.text, "$ skein {line}\n{shown}[exit {}]\n", done.code).expect("a string can be written to");
        assert_eq!(done.code, code, "`skein {line}`:\n{shown}");
        self
    }

    /// Compares the session with the file of that name.
    pub(crate) fn is(&self, name: &str) {
        compare(name, &self.text);
    }
}

/// Compares a text with the snapshot of a name.
pub(crate) fn compare(name: &str, text: &str) {
    skein_testkit::assert_snapshot!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/snapshots"), name, text);
}
