//! `skein audit`: lists the records of decisions and changes, verifies them, and exports them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;
use skein_app::{
    app::App,
    app_error::{AppError, AppErrorKind},
    audit::{self, AuditFilter, AuditVerification},
};

use crate::{
    exit::Exit,
    render::{
        live::one_line,
        output::{CliOutput, is_unread},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditArguments {
    #[command(subcommand)]
    command: Option<AuditCommand>,
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

pub(super) fn run(arguments: AuditArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    match arguments.command {
        None => {
            let AuditArguments { run, actor, action, since, .. } = arguments;
            list_records(app, &AuditFilter { run, actor, action, since }, output)
        }
        Some(AuditCommand::Verify(AuditVerifyArguments { file: Some(file) })) => {
            report_verification(&audit::verify_file(&file)?, output)
        }
        Some(AuditCommand::Verify(AuditVerifyArguments { file: None })) => {
            report_verification(&audit::verify_records(app)?, output)
        }
        Some(AuditCommand::Export) => {
            audit::export_records(app, &mut |line| {
                output.print_json_text(&format!("{line}\n"));
                !is_unread()
            })?;
            Ok(Exit::Done)
        }
    }
}

fn list_records(app: &App, filter: &AuditFilter, output: CliOutput) -> Result<Exit, AppError> {
    const HEAD: &str = "{\n  \"records\": [";
    let mut count = 0_u64;
    audit::read_records(app, filter, &mut |record| {
        let before = if count > 0 { "," } else { HEAD };
        match output.is_json() {
            true => output.print_json_text(&format!("{before}\n    {record}")),
            false => output.print_text(&render_record(record, output)),
        }
        count += 1;
        !is_unread()
    })?;
    match (output.is_json(), count) {
        (true, 0) => output.print_json_text(&format!("{HEAD}]\n}}\n")),
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

fn report_verification(verified: &AuditVerification, output: CliOutput) -> Result<Exit, AppError> {
    let AuditVerification { count, head, broken } = verified;
    if output.is_json() {
        output.print_json(&verified.to_json());
        return Ok(if broken.is_none() { Exit::Done } else { Exit::Failed });
    }
    if let Some(broken) = broken {
        let message = format!("{broken}; the {count} before it are intact");
        return Err(AppError::new(AppErrorKind::RunFailed, message));
    }
    output.print_text(&format!("{count} records, intact\nhead {head}\n"));
    Ok(Exit::Done)
}
