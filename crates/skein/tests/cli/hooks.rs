//! Hooks: channels of every kind, busy servers, secrets, and engines that are killed in between.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    drivers::server::{Asked, Reply, Server},
    kept::Project,
    session::{Folder, folder_for_programs, run},
};

/// A run that succeeds, or fails on request, with hooks on the channel `say` for each moment.
fn project(channel: &str, config: &str) -> Project {
    let project = Project::new();
    let own = format!(
        "{config}\n[agents.worker]\nworker = \"CUSTOM\"\n\
         command = [\"sh\", \"-c\", \"cat > told.txt; test ! -e fail || {{ echo no ink >&2; exit 1; }}\"]\n"
    );
    project.folder.write("skein.toml", own);
    project.folder.write(
        "w.yaml",
        format!(
            "workflow: {{id: ship, name: Ship it}}\nconfig:\n  parameters:\n    who: {{type: string, default: Ada}}\n\
             stages:\n  - id: work\n    name: Work\n    roles: {{primary: \"agent:worker\"}}\n    \
             error_policy: {{retry: {{max_attempts: 1}}}}\n\
             hooks:\n  on_start:\n    notify: \"{channel}\"\n  on_complete:\n    \
             notify: {{channel: \"{channel}\", message: \"for ${{{{ parameters.who }}}}\"}}\n  on_failure:\n    \
             notify: \"{channel}\"\n"
        ),
    );
    project
}

/// The messages of a file, sorted by run and hook, because a hook may take a while as the run continues.
fn lines(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    all.sort_by_key(|message| message["id"].as_str().map(str::to_owned));
    all
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A server on loopback that sends these answers, then successes.
fn server(answers: &'static [&'static str]) -> Server {
    let count = AtomicUsize::new(0);
    Server::new(move |_| {
        let answer = answers.get(count.fetch_add(1, Ordering::SeqCst)).unwrap_or(&"200 OK\r\n");
        let (status, headers) = answer.split_once("\r\n").expect("it is a line");
        Reply::new(status, headers, "")
    })
}

#[test]
fn a_file_gets_a_line_for_each_moment() {
    let project = project("log", "[channels.log]\nkind = \"file\"\npath = \"told.jsonl\"\n");
    let done = project.json("run w.yaml", 0);
    fs::write(project.path("fail"), "").unwrap();
    let failed = project.json("run w.yaml", 4);
    let told = lines(&project.read("told.jsonl"));
    let (told, of_failed): (Vec<Value>, Vec<Value>) =
        told.into_iter().partition(|message| message["run_id"] == done["run_id"]);
    assert_eq!((told.len(), of_failed.len()), (2, 2), "{told:?}");
    let run = done["run_id"].as_str().unwrap();
    assert_eq!(told[0]["id"], format!("{run}.hook.0"));
    assert_eq!((&told[0]["event"], &told[0]["status"]), (&"start".into(), &"running".into()));
    assert_eq!(told[0]["title"], "Ship it started");
    assert_eq!((&told[1]["event"], &told[1]["text"]), (&"complete".into(), &"for Ada".into()));
    assert_eq!(told[1]["native_status"], "success");
    assert_eq!(of_failed[1]["run_id"], failed["run_id"]);
    assert_eq!((&of_failed[1]["event"], &of_failed[1]["status"]), (&"failure".into(), &"failed".into()));
    assert!(of_failed[1]["error"].as_str().unwrap().contains("no ink"), "{}", of_failed[1]);
    assert!(of_failed[1]["text"].as_str().unwrap().contains("no ink"), "{}", of_failed[1]);
}

#[test]
fn a_command_reads_the_message() {
    let config = "[channels.chat]\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"cat >> told.jsonl; echo $SKEIN_MESSAGE_ID >> ids.txt; echo $0 >> rooms.txt\", \"x\"]\n";
    let project = project("chat:#ships", config);
    let run = project.json("run w.yaml --param who=$(touch_evil)", 0)["run_id"].as_str().unwrap().to_owned();
    let told = lines(&project.read("told.jsonl"));
    assert_eq!((told[0]["target"].as_str(), told.len()), (Some("#ships"), 2));
    assert_eq!(told[1]["text"], "for $(touch_evil)");
    assert_eq!(sorted(&project.read("ids.txt")), [format!("{run}.hook.0"), format!("{run}.hook.1")]);
}

#[test]
fn the_desktop_is_told_by_its_own_program() {
    let project = project("desktop", "[channels.desktop]\nkind = \"desktop\"\n");
    // Programs are never taken from the workspace, nor from folders that everyone can write.
    let bin = folder_for_programs();
    bin.write("notify-send", "#!/bin/sh\nprintf '%s\\n' \"$@\"; (: > shown.txt) 2>/dev/null && echo wrote\n");
    fs::set_permissions(bin.0.join("notify-send"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.0.display(), std::env::var("PATH").unwrap());
    let done = run(project.command("run w.yaml").env("PATH", path));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let log = |number: u32| project.read(&format!(".skein/runs/{run}/hooks/{number}/log"));
    let shown = log(0) + &log(1);
    assert!(!shown.contains("wrote"), "it may write nothing: {shown}");
    assert!(shown.contains("--app-name=Skein\n--\nShip it started\nRun "), "{shown}");
    assert!(shown.contains("--app-name=Skein\n--\nShip it succeeded\nfor Ada\n"), "{shown}");
}

/// A run whose step executes a script before the hook `scripts/tag.sh` and the command of a channel run.
fn hooked(step: &str, hook: &str) -> Project {
    let project = Project::new();
    project.folder.write(
        "skein.toml",
        format!(
            "[channels.pager]\nkind = \"command\"\ncommand = [\"sh\", \"scripts/page.sh\"]\n[agents.worker]\n\
             worker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat > /dev/null; {step}\"]\n"
        ),
    );
    project.folder.write(
        "w.yaml",
        "workflow: {id: ship, name: Ship it}\nstages:\n  - id: work\n    name: Work\n    \
         roles: {primary: \"agent:worker\"}\n    error_policy: {retry: {max_attempts: 1}}\n\
         hooks:\n  on_complete:\n    run: scripts/tag.sh one\n    notify: pager\n",
    );
    project.folder.write("scripts/tag.sh", format!("#!/bin/sh\n{hook}\n")).write("scripts/page.sh", "cat > paged\n");
    fs::set_permissions(project.path("scripts/tag.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    project
}

/// A step may write the files of the project, including hooks: a hook runs as it was at the start of the run, or not at
/// all.
#[test]
fn a_hook_that_a_step_rewrote_is_not_run() {
    let evil = "for f in tag page; do echo 'touch evil' > scripts/$f.sh; done";
    for (step, says) in [
        (evil, "was changed since the run began"),
        ("echo 'touch evil' > evil.sh; for f in tag page; do ln -sf ../evil.sh scripts/$f.sh; done", "was changed"),
        (
            "mv scripts old; mkdir scripts; cp -p old/* scripts; for f in tag page; do echo 'touch evil' >> scripts/$f.sh; done",
            "was changed",
        ),
    ] {
        let project = hooked(step, "touch tagged");
        let done = project.skein("run w.yaml");
        let told = format!("{}{}", done.out, done.err);
        assert_eq!(done.code, 0, "{told}");
        assert_eq!(told.matches(says).count(), 2, "both are told: {told}");
        for file in ["evil", "tagged", "paged"] {
            assert!(!project.path(file).exists(), "{file}: {told}");
        }
    }
    // A program that did not exist at the start of the run is not part of the run.
    let project = hooked("mv aside scripts", "touch tagged");
    fs::rename(project.path("scripts"), project.path("aside")).unwrap();
    let done = project.skein("run w.yaml");
    assert!(format!("{}{}", done.out, done.err).contains("did not exist when the run began"), "{}", done.out);
    assert!(!project.path("tagged").exists());
}

/// A hook runs in a sandbox: it writes in the workspace, and sees no state folder, no other processes and no terminal.
#[test]
fn a_hook_writes_in_the_workspace_alone() {
    let outside = Folder::new();
    let tries = format!(
        "try() {{ if ( eval \"$2\" ) 2>/dev/null; then echo \"$1\" >> went; fi; }}\n\
         try workspace 'echo x > made'\ntry outside 'echo x > {0}/x'\ntry home 'echo x > ~/skein-was-here'\n\
         try state 'ls .skein/skein.db'\ntry git 'echo x >> .git/config'\ntry terminal ': > /dev/tty'\n\
         try processes 'test $(ls -d /proc/[0-9]* | wc -l) -gt 9'\ntry secret 'test -n \"$OF_THE_PERSON\"'\n\
         try own 'echo x >> scripts/tag.sh'",
        outside.0.display()
    );
    let project = hooked("true", &tries);
    fs::write(project.path(".git/config"), "[core]\n").unwrap();
    let done = run(project.command("run w.yaml").env("OF_THE_PERSON", "secret"));
    assert_eq!((done.code, project.read("went").as_str()), (0, "workspace\n"), "{}{}", done.out, done.err);
    assert!(project.path("made").exists() && !outside.0.join("x").exists());
}

#[test]
fn a_webhook_is_signed_and_sent_again_to_a_server_that_is_busy() {
    let server = server(&["503 Busy\r\n"]);
    let config = format!(
        "[secrets]\nKEY = {{ env = \"TEST_KEY\" }}\n[channels.hook]\nkind = \"webhook\"\n\
         url = \"http://127.0.0.1:{}/in\"\nkey = \"KEY\"\nprivate = true\n",
        server.port
    );
    let project = project("hook", &config);
    let key = "a key that nobody knows";
    let done = run(project.command("run w.yaml --format json").arg(format!("--param=who={key}")).env("TEST_KEY", key));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let asked: Vec<Asked> = (0..3).map(|_| server.next()).collect();
    // The two messages may be sent concurrently; the first request was refused.
    let ids: Vec<&str> = asked.iter().map(|asked| asked.header("webhook-id")).collect();
    assert_eq!(ids.iter().filter(|id| **id == ids[0]).count(), 2, "{ids:?}");
    for one in &asked {
        let signed = format!("{}.{}.{}", one.header("webhook-id"), one.header("webhook-timestamp"), one.body);
        assert_eq!(one.header("webhook-signature"), format!("v1,{}", hmac(key, &signed)));
        assert_eq!(one.header("content-type"), "application/json");
        assert_eq!(one.json()["id"], one.header("webhook-id"));
        // The secret was a parameter, too, and is in no message.
        assert!(!one.body.contains(key), "{}", one.body);
    }
    let ended = asked.iter().find(|one| one.header("webhook-id").ends_with(".hook.1")).expect("it is told");
    assert_eq!(ended.json()["text"], "for ***");
}

/// The signature, computed by another program.
fn hmac(key: &str, text: &str) -> String {
    let script = "import base64, hashlib, hmac, sys\n\
        print(base64.b64encode(hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), hashlib.sha256).digest()).decode())";
    let done = run(Command::new("python3").args(["-c", script, key, text]));
    assert_eq!(done.code, 0, "python3 is needed: {}", done.err);
    done.out.trim().to_owned()
}

#[test]
fn slack_is_told_in_its_own_form_at_an_address_that_is_a_secret() {
    let server = server(&[]);
    let config = "[secrets]\nADDRESS = { env = \"TEST_ADDRESS\" }\n[channels.slack]\nkind = \"slack\"\n\
        url_secret = \"ADDRESS\"\nprivate = true\n";
    let project = project("slack:#ships", config);
    let address = format!("http://127.0.0.1:{}/services/T0/B0/verysecret", server.port);
    let done = run(project.command("run w.yaml").env("TEST_ADDRESS", &address));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let both: Vec<Value> = (0..2).map(|_| server.next().json()).collect();
    let begun = both.iter().filter(|one| one["channel"] == "#ships").filter_map(|one| one["text"].as_str());
    assert!(begun.into_iter().any(|text| text.starts_with("*Ship it started*\nRun ")), "{both:?}");
}

const MOVED: &str = "302 Found\r\nlocation: http://127.0.0.1:1/elsewhere\r\n";

/// No failed delivery changes the end of the run; each is reported once, without addresses or secrets.
#[test]
fn what_cannot_be_told_is_said_once() {
    let server = server(&[MOVED, MOVED]);
    let private = format!("kind = \"webhook\"\nurl = \"https://127.0.0.1:{}/verysecret\"\n", server.port);
    let plain = "kind = \"slack\"\nurl = \"http://example.org/verysecret\"\n".to_owned();
    let moved = format!("kind = \"webhook\"\nurl = \"http://127.0.0.1:{}/verysecret\"\nprivate = true\n", server.port);
    for (config, says) in [
        (private, "private addresses, which are not granted"),
        (plain, "its address is not encrypted"),
        (moved, "it answered with status 302"),
        ("kind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo no line; exit 3\"]\n".into(), "no line"),
        ("kind = \"file\"\npath = \".\"\n".into(), "cannot be written"),
    ] {
        let project = project("c", &format!("[channels.c]\n{config}"));
        let done = project.skein("run w.yaml");
        let shown = format!("{}{}", done.out, done.err);
        assert_eq!(done.code, 0, "{shown}");
        let warned: Vec<&str> = shown.lines().filter(|line| line.contains("hook `on_start.notify`")).collect();
        assert_eq!(warned.len(), 1, "{says}: {shown}");
        assert!(warned[0].contains(says), "{says}: {shown}");
        assert!(!shown.contains("verysecret"), "{shown}");
    }
    let asked = server.all();
    assert_eq!(asked.len(), 2, "a redirect is not followed, and what was refused is not sent again");
}

#[test]
fn a_channel_that_is_not_whole_is_refused_before_anything_begins() {
    for (config, says) in [
        ("kind = \"webhook\"\n", "`[channels.c]` in skein.toml needs a `url`"),
        ("kind = \"command\"\n", "needs a `command`"),
        ("kind = \"file\"\n", "needs a `path`"),
        ("path = \"x\"\n", "needs a `kind`"),
        ("kind = \"webhook\"\nurl = \"https://example.org\"\nkey = \"K\"\n", "there is no secret `K`"),
    ] {
        let project = project("c", &format!("[channels.c]\n{config}"));
        let shown = project.ends("run w.yaml", 5);
        assert!(shown.contains(says), "{shown}");
        assert!(!project.path("told.txt").exists());
    }
}

/// The engine dies after a message was sent and before that was recorded: it is sent again, with the same id.
#[test]
fn after_a_crash_a_message_is_told_again_with_its_id() {
    let config = "[channels.c]\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"echo $SKEIN_MESSAGE_ID >> ids.txt; echo sent > begun; cat go > /dev/null\"]\n";
    let project = project("c", config);
    let going = project.begin("run w.yaml --format jsonl");
    let id = going.run();
    project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    let resumed = project.begin(&format!("resume {id} --format jsonl"));
    for _ in 0..2 {
        project.begun();
        project.go();
    }
    assert_eq!(resumed.end().0, Some(0));
    let mut ids: Vec<String> = project.read("ids.txt").lines().map(str::to_owned).collect();
    ids.sort();
    assert_eq!(ids, ["hook.0", "hook.0", "hook.1"].map(|end| format!("{id}.{end}")));
}
