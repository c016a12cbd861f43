//! `skein runs`: lists the runs, or shows one, once or continuously.

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::inspect::{self, RunFilter, row_to_json},
};
use skein_core::{
    time::Millis,
    view::{self, StepView},
};

use super::logs::LogPrinter;
use crate::{
    exit::Exit,
    render::{
        follow::{TerminalFrontEnd, summarize_run},
        live::{format_duration, one_line, paint_step_status},
        output::{CliOutput, OutputFormat, is_unread},
        tables::{STATUS_WIDTH, attempt_title, render_runs},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct RunsArguments {
    /// Run id, a unique prefix of it, or `-` for the newest run; default: list all runs.
    run: Option<String>,
    /// Show events until the run ends; without a run, show each run that changes.
    #[arg(long)]
    pub follow: bool,
    /// Also show the output of the run's workers.
    #[arg(long, requires = "run", conflicts_with = "follow")]
    logs: bool,
    /// Maximum number of runs.
    #[arg(long, value_name = "COUNT", default_value = "50", conflicts_with = "run")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List only runs with this status, such as `failed`, or a status of their format. Can be repeated.
    #[arg(long, value_name = "STATUS", conflicts_with = "run")]
    status: Vec<String>,
    /// List only runs of this workflow, by its id.
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    workflow: Option<String>,
    /// List only runs that were started since then: a date, a time, or a duration before now such as 24h.
    #[arg(long, value_name = "WHEN", conflicts_with = "run")]
    since: Option<String>,
}

pub(super) fn run(arguments: RunsArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let RunsArguments { run, follow, logs, limit, status, workflow, since } = arguments;
    match run {
        Some(run) if follow => {
            inspect::follow_run(app, &run, &TerminalFrontEnd::new(output))?;
            Ok(Exit::Done)
        }
        Some(run) => show_run(app, &run, logs, output),
        None => list_runs(app, &RunFilter { limit, status, workflow, since }, follow, output),
    }
}

fn list_runs(app: &App, filter: &RunFilter, follow: bool, output: CliOutput) -> Result<Exit, AppError> {
    let mut print_changed = |rows: &[inspect::RunRow]| {
        match output.format {
            OutputFormat::Human => output.print_text(&render_runs(rows, output.paint)),
            OutputFormat::Json | OutputFormat::Jsonl => {
                rows.iter().for_each(|row| output.print_json_text(&format!("{}\n", row_to_json(row))));
            }
        }
        !is_unread()
    };
    if follow && inspect::follow_runs(app, filter, &mut print_changed)? {
        return Ok(Exit::Done);
    }
    let listing = inspect::list_runs(app, filter)?;
    let (rows, more) = (&listing.rows, listing.more);
    if output.is_json() {
        output.print_json(&listing.to_json());
    } else if rows.is_empty() && filter.has_conditions() {
        output.print_text("No runs match.\n");
    } else if rows.is_empty() {
        output.print_text("No runs yet; `skein run FILE` starts one.\n");
    } else {
        output.print_text(&render_runs(rows, output.paint));
        if more > 0 {
            let all = rows.len() as u64 + more;
            output.print_text(&output.paint.faint(&format!("{more} more; `--limit {all}` shows them\n")));
        }
    }
    listing.shortened.iter().for_each(|warning| output.warn(warning));
    Ok(if listing.shortened.is_empty() { Exit::Done } else { Exit::Store })
}

fn show_run(app: &App, run: &str, with_logs: bool, output: CliOutput) -> Result<Exit, AppError> {
    let run = inspect::inspect_run(app, run)?;
    if output.is_json() {
        output.print_json(&run.to_json(with_logs)?);
        return Ok(Exit::Done);
    }
    let journal = run.check_journal();
    let (last, summary) = summarize_run(&run.past_feed(), output);
    let view = view::view_run(&run.plan, &last);
    let width = view.steps.iter().map(|step| step.path.chars().count()).max().unwrap_or_default();
    let mut logs = run.read_attempts()?;
    let render_attempts = |step: &StepView| {
        let attempts = logs.all.iter().filter(|log| log.attempt.at == step.at && log.has_agent());
        let line = |log| format!("{:24}{}\n", "", output.paint.faint(&one_line(&attempt_title(log))));
        attempts.map(line).collect::<String>()
    };
    let steps = view.steps.iter().map(|step| render_step(step, width.min(60), output) + &render_attempts(step));
    let steps: String = steps.collect();
    let aside = run.row.quarantined.as_ref();
    let aside = aside.map_or(String::new(), |why| format!("Set aside: {}\n", one_line(why)));
    let queued = run.explain_queued();
    let queued = queued.map_or(String::new(), |why| format!("Queued: {}\n", one_line(&why)));
    output.print_text(&format!("{steps}{summary}{queued}{aside}"));
    if with_logs {
        output.print_text("\n");
        LogPrinter::new(output, false, true).print_logs(&mut logs)?;
    }
    // A damaged journal is shown as far as it can be read, and then reported.
    journal?;
    Ok(Exit::Done)
}

fn render_step(step: &StepView, width: usize, output: CliOutput) -> String {
    let word = paint_step_status(step, STATUS_WIDTH, output.paint);
    let length = step.duration_ms.map_or(String::new(), |ms| format_duration(Millis(ms)));
    let path = output.paint.name(&format!("{:width$}", one_line(&step.path)));
    let tries = if step.reused {
        "reused".to_owned()
    } else if step.total_attempts > 1 {
        format!("{} attempts", step.total_attempts)
    } else {
        String::new()
    };
    let mut text = format!("{}\n", format!("{word}  {length:>9}  {path}  {tries}").trim_end());
    for proof in &step.evidence {
        let word = if proof.holds { "proven that" } else { "not proven that" };
        text += &format!("{:24}{word} {}\n", "", one_line(&proof.what));
    }
    text
}
