//! `skein validate`: reports all errors and warnings of workflows.

use std::path::PathBuf;

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    validate::{self, ValidationReport},
};
use skein_core::plan::Severity;

use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct ValidateArguments {
    /// Files, names of workflows, or folders in which all workflows, tools, drivers, actions and routines are checked.
    #[arg(required = true, value_name = "PATH|NAME")]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
}

pub(super) fn run(arguments: &ValidateArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let report = validate::validate_paths(app, &arguments.paths, arguments.strict);
    if output.is_json() {
        output.print_json(&report.to_json());
    } else {
        output.print_diagnostics(&report.diagnostics);
        output.print_text(&render_summary(&report, output));
    }
    Ok(if report.valid { Exit::Done } else { Exit::Invalid })
}

fn format_count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn render_summary(report: &ValidationReport, output: CliOutput) -> String {
    if report.files == 0 && report.diagnostics.is_empty() {
        let skipped = describe_skipped(report.skipped, ", ");
        return format!("nothing to check: there are no workflows{skipped}\n");
    }
    let verdict = if report.valid { output.paint.title("valid") } else { output.paint.error("not valid") };
    let (errors, warnings) = (report.count_severity(Severity::Error), report.count_severity(Severity::Warning));
    let mut parts = vec![format_count(report.files, "file")];
    parts.extend((errors > 0).then(|| format_count(errors, "error")));
    parts.extend((warnings > 0).then(|| format_count(warnings, "warning")));
    format!("{verdict}: {}{}\n", parts.join(", "), describe_skipped(report.skipped, "; "))
}

/// Returns the part of the summary about skipped files, after a separator; empty if none was skipped.
fn describe_skipped(skipped: usize, separator: &str) -> String {
    match skipped {
        0 => String::new(),
        1 => format!("{separator}1 file that is not a workflow was skipped"),
        n => format!("{separator}{n} files that are not workflows were skipped"),
    }
}
