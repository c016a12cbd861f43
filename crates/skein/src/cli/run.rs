//! `skein run`: runs a workflow durably, and shows its progress.

use std::path::PathBuf;

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::{
        inspect::run_to_json,
        recording::RecordingSummary,
        start::{self, DetachedRun, RunAttachment, RunOutcome, StartRequest},
    },
};

use super::plan;
use crate::{
    exit::Exit,
    render::{
        commands::command_line,
        follow::TerminalFrontEnd,
        output::{CliOutput, OutputFormat},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct RunArguments {
    #[command(flatten)]
    workflow: plan::PlanArguments,
    /// Folder to work in; default: the project.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Folder outside the project in which steps may work.
    #[arg(long = "allow-root", value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Context folder of this run, relative to the workspace; default: the one that the workflow names.
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
    /// Record the work of the workers in this folder, for a replay.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Replay the recording in this folder, without starting anything.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "detach"])]
    replay: Option<PathBuf>,
    #[command(flatten)]
    attachment: AttachOptions,
}

/// Options for following a started run.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub(super) struct AttachOptions {
    /// Exit when the run waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a background process.
    #[arg(long, conflicts_with = "no_wait")]
    detach: bool,
}

impl AttachOptions {
    pub(super) fn to_attachment(&self) -> RunAttachment {
        match self {
            AttachOptions { detach: true, .. } => RunAttachment::Detached,
            AttachOptions { no_wait: true, .. } => RunAttachment::UntilWaiting,
            AttachOptions { .. } => RunAttachment::UntilEnd,
        }
    }
}

pub(super) fn run(arguments: RunArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let RunArguments { workflow, workspace, allow_root, context, record, replay, attachment } = arguments;
    let request = StartRequest {
        workflow: workflow.into(),
        workspace,
        allowed_roots: allow_root,
        context,
        record,
        replay,
        attachment: attachment.to_attachment(),
    };
    let outcome = start::start_run(app, &request, &TerminalFrontEnd::new(output))?;
    Ok(report_outcome(&outcome, output))
}

/// Prints what the front end has not shown of a run, and returns the exit status.
pub(super) fn report_outcome(outcome: &RunOutcome, output: CliOutput) -> Exit {
    match outcome {
        RunOutcome::Ended { recording, .. } => {
            recording.iter().for_each(|recording| print_recording(recording, output));
        }
        RunOutcome::Queued(queued) if output.is_json() => {
            output.print_json(&run_to_json(queued.run.plan(), queued.run.state(), &queued.warnings));
        }
        RunOutcome::Queued(_) => {}
        RunOutcome::Detached(detached) => print_detached(detached, output),
    }
    Exit::from(outcome)
}

fn print_recording(recording: &RecordingSummary, output: CliOutput) {
    let RecordingSummary { replayed, folder, attempts, problems, unused } = recording;
    if output.format == OutputFormat::Human {
        let s = if *attempts == 1 { "" } else { "s" };
        output.print_text(&match replayed {
            true => format!(
                "replayed {attempts} attempt{s} from {}: nothing was started or spent, and costs are the recorded ones\n",
                folder.display()
            ),
            false => format!("recorded {attempts} attempt{s} in {}\n", folder.display()),
        });
    }
    if !output.is_json() {
        let word = if *replayed { "differs from the recording" } else { "recorded incompletely" };
        problems.iter().for_each(|problem| output.warn(&format!("{word}: {problem}")));
        if !unused.is_empty() {
            output.warn(&format!("recorded but not used: {}", unused.join(", ")));
        }
    }
}

fn print_detached(detached: &DetachedRun, output: CliOutput) {
    if output.is_json() {
        return output.print_json(&detached.to_json());
    }
    let run = detached.run.as_str();
    let next: [&[&str]; 3] = [&["runs", run, "--follow"], &["logs", run, "--follow"], &["cancel", run]];
    let next: String = next.iter().map(|words| format!("  {}\n", command_line(words))).collect();
    output.print_text(&format!("run {run} continues in the background\n{next}"));
}
