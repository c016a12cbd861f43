//! `skein audit`: lists the records of permissions, refusals, revealed secrets and changes, verifies them, and exports
//! them.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Map, Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    past_time,
    state::{StateHandle, refuse_store_error},
};
use skein_host::{
    audit::{AuditChain, AuditChainError, LINE_BYTES},
    store::{Store, StoredAuditRecord},
};

use crate::{
    exit::Exit,
    live::one_line,
    output::{CliOutput, is_unread},
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArguments {
    #[command(subcommand)]
    what: Option<AuditCommand>,
    /// Show only records of this run (id or prefix).
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Show only records of this actor.
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Show only these actions, such as `gate.approve`, or `gate` for all of them.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Show only records since then: a date such as 2026-11-16, a time such as 2026-11-16T08:00:00Z, or a duration
    /// before now such as 24h.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Verify that all records are present, unchanged and in order.
    Verify(AuditVerifyArguments),
    /// Print all records, one line of JSON each.
    Export,
}

#[derive(Debug, Args)]
#[group(skip)]
struct AuditVerifyArguments {
    /// Exported file to verify; default: the records in the state folder.
    file: Option<PathBuf>,
}

pub fn run(arguments: &AuditArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    match &arguments.what {
        None => list_records(arguments, state, output),
        Some(AuditCommand::Verify(AuditVerifyArguments { file: Some(file) })) => verify_file(file, output),
        Some(AuditCommand::Verify(AuditVerifyArguments { file: None })) => verify_store(state, output),
        Some(AuditCommand::Export) => export_records(state, output),
    }
}

/// Selects records.
struct AuditFilter<'a> {
    run: Option<&'a str>,
    actor: Option<&'a str>,
    action: Option<&'a str>,
    /// Times in UTC of one format, which can be compared as text.
    since: Option<String>,
}

impl<'a> AuditFilter<'a> {
    fn from_arguments(arguments: &'a AuditArguments) -> Result<AuditFilter<'a>, AppError> {
        let since = arguments.since.as_deref().map(past_time::parse_past_time).transpose()?;
        let (run, actor) = (arguments.run.as_deref(), arguments.actor.as_deref());
        Ok(AuditFilter { run, actor, action: arguments.action.as_deref(), since })
    }

    fn matches_record(&self, record: &Value) -> bool {
        let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
        let (path, action) = (text(&record["subject"]["path"]), text(&record["action"]));
        let of_action = |wanted: &str| {
            action.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.run.is_none_or(|run| path.starts_with(run))
            && self.actor.is_none_or(|actor| record["actor"]["id"] == actor)
            && self.action.is_none_or(of_action)
            && self.since.as_ref().is_none_or(|since| text(&record["ts"]) >= *since)
    }
}

/// Reads the stored records one by one, until `each` returns false.
fn for_each_record(
    state: &StateHandle,
    each: &mut dyn FnMut(StoredAuditRecord) -> bool,
) -> Result<(), AppError> {
    state.store.read_audit(0, each).map_err(|error| refuse_store_error(&error))
}

fn list_records(
    arguments: &AuditArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let filter = AuditFilter::from_arguments(arguments)?;
    let mut count = 0_u64;
    if output.is_json() {
        output.print_json_text("{\n  \"records\": [");
    }
    if let Some(state) = StateHandle::open_existing(given)? {
        for_each_record(&state, &mut |noted| {
            // An unreadable record is left to `verify` to report.
            let record: Value = serde_json::from_slice(&noted.line).unwrap_or_default();
            if filter.matches_record(&record) {
                let comma = if count > 0 { "," } else { "" };
                match output.is_json() {
                    true => output.print_json_text(&format!("{comma}\n    {record}")),
                    false => output.print_text(&render_record(&record, output)),
                }
                count += 1;
            }
            !is_unread()
        })?;
    }
    match (output.is_json(), count) {
        (true, 0) => output.print_json_text("]\n}\n"),
        (true, _) => output.print_json_text("\n  ]\n}\n"),
        (false, 0) => output.print_text("No records.\n"),
        (false, _) => {}
    }
    Ok(Exit::Done)
}

/// Renders a record for people: time, actor, action, subject, and reason.
fn render_record(record: &Value, output: CliOutput) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or("?"));
    let (actor, subject) = (&record["actor"], &record["subject"]);
    let path = subject["path"].as_str().map(|path| format!(" in {}", one_line(path))).unwrap_or_default();
    let why = &record["input"]["reason"];
    let why = why.as_str().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
    let end = record["output"]["end"].as_str().map(|end| format!(" {}", one_line(end))).unwrap_or_default();
    format!(
        "{} {:>5}  {} {} {} {}{path}{end}{why}\n",
        output.paint.faint(&text(&record["ts"])),
        record["seq"].to_string(),
        output.paint.name(&text(&actor["id"])),
        text(&record["action"]),
        text(&subject["kind"]),
        text(&subject["ref"]),
    )
}

fn export_records(given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    if let Some(state) = StateHandle::open_existing(given)? {
        for_each_record(&state, &mut |noted| {
            output.print_json_text(&format!("{}\n", String::from_utf8_lossy(&noted.line)));
            !is_unread()
        })?;
    }
    Ok(Exit::Done)
}

fn verify_store(given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let (mut chain, mut broken) = (AuditChain::default(), None);
    if let Some(state) = StateHandle::open_existing(given)? {
        for_each_record(&state, &mut |noted| {
            broken = check_record(&mut chain, noted).err();
            broken.is_none()
        })?;
    }
    report_verdict(&chain, broken, output)
}

/// Verifies a record, and that it is stored under its own number.
fn check_record(
    chain: &mut AuditChain,
    noted: StoredAuditRecord,
) -> Result<Map<String, Value>, AuditChainError> {
    let seq = chain.count;
    if noted.seq != seq {
        return Err(AuditChainError::Missing { seq, found: noted.seq });
    }
    chain.verify_next(&noted.line)
}

fn verify_file(file: &Path, output: CliOutput) -> Result<Exit, AppError> {
    let told = |error: std::io::Error| {
        AppError::new(AppErrorKind::Refused, &format!("`{}` cannot be read: {error}", file.display()), None)
    };
    // Opening must not block on a named pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = File::from(open(file, flags, Mode::empty()).map_err(|error| told(error.into()))?);
    if !opened.metadata().map_err(told)?.is_file() {
        return Err(told(std::io::Error::other("it is not a regular file")));
    }
    let mut lines = BufReader::new(opened);
    let mut chain = AuditChain::default();
    loop {
        let mut line = Vec::new();
        lines.by_ref().take(LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(told)?;
        if line.is_empty() {
            return report_verdict(&chain, None, output);
        }
        let followed = match line.strip_suffix(b"\n") {
            _ if line.len() as u64 > LINE_BYTES => {
                let why = format!("its line has more than {LINE_BYTES} bytes");
                Err(AuditChainError::Unreadable { seq: chain.count, why })
            }
            // An export ends every line with a newline, also the last.
            None => Err(AuditChainError::Unreadable {
                seq: chain.count,
                why: "its line has no newline".to_owned(),
            }),
            Some(line) => chain.verify_next(line),
        };
        if let Err(broken) = followed {
            return report_verdict(&chain, Some(broken), output);
        }
    }
}

fn report_verdict(
    chain: &AuditChain,
    broken: Option<AuditChainError>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let AuditChain { count, head } = chain;
    if output.is_json() {
        let broken_at = broken.as_ref().map(|broken| json!({"seq": broken.seq(), "why": broken.to_string()}));
        output.print_json(
            &json!({"whole": broken.is_none(), "records": count, "head": head, "broken": broken_at}),
        );
    }
    match broken {
        None if output.is_json() => Ok(Exit::Done),
        None => {
            output.print_text(&format!("{count} records, intact\nhead {head}\n"));
            Ok(Exit::Done)
        }
        Some(_) if output.is_json() => Ok(Exit::Failed),
        Some(broken) => {
            let before = format!("the {count} before it are intact");
            Err(AppError::new(AppErrorKind::RunFailed, &format!("{broken}; {before}"), None))
        }
    }
}
