//! `skein bench`: measures the speed of Skein, compared with that of the machine.

use std::path::{Path, PathBuf};

use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_app::{app::App, app_error::AppError};

use crate::{
    bench::{self, BenchFolder, BenchFolderError, BenchScale},
    exit::Exit,
    render::output::CliOutput,
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct BenchArguments {
    /// Measure less, to check that it works; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// Exit with status 4 if a goal is missed.
    #[arg(long)]
    check: bool,
    /// Internal: start runs and wait to be killed.
    #[arg(long, hide = true, requires = "runs")]
    leave: Option<String>,
    #[arg(long, hide = true)]
    runs: Option<usize>,
}

pub(super) fn run(arguments: &BenchArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let state = app.state_path();
    if let (Some(what), Some(runs)) = (&arguments.leave, arguments.runs) {
        return match bench::leave_runs(&state, what, runs) {
            Ok(()) => Ok(Exit::Done),
            Err(error) => Err(AppError::store(error.to_string())),
        };
    }
    run_measurements(arguments, &state, output)
}

fn run_measurements(arguments: &BenchArguments, state: &Path, output: CliOutput) -> Result<Exit, AppError> {
    let folder = BenchFolder::new(state).map_err(|error| refuse_folder(&error))?;
    tidy_up_when_stopped(folder.path().to_owned())
        .map_err(|error| AppError::bug(format!("cannot install signal handlers: {error}")))?;
    let sizes = if arguments.quick { BenchScale::QUICK } else { BenchScale::FULL };
    let report = bench::measure_all(folder.path(), &sizes)
        .map_err(|error| AppError::store(format!("the benchmark failed: {error}")))?;
    match output.is_json() {
        true => output.print_json(&report.to_json()),
        false => output.print_text(&report.render_text(output.paint)),
    }
    Ok(if arguments.check && !report.is_met() { Exit::Failed } else { Exit::Done })
}

fn refuse_folder(error: &BenchFolderError) -> AppError {
    match error {
        BenchFolderError::Taken => {
            AppError::refused("another benchmark is running here, and two at once would disturb each other")
                .with_hint("try again when it has ended")
        }
        BenchFolderError::Io(path, error) => {
            let message = format!("`{}` cannot be used: {error}", path.display());
            let hint = "choose another place with `--state DIR` or `SKEIN_STATE`";
            AppError::store(message).with_hint(hint)
        }
    }
}

/// Removes the folder also when the command is stopped by a signal.
fn tidy_up_when_stopped(folder: PathBuf) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let body = move || {
        if signals.forever().next().is_some() {
            // Other threads write to it until the process has ended, so removal is tried twice.
            let _ = std::fs::remove_dir_all(&folder).or_else(|_| std::fs::remove_dir_all(&folder));
            std::process::exit(i32::from(Exit::Stopped as u8));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}
