//! `skein bench`: measures the speed of Skein, compared with that of the machine.

use skein_app::{
    app_error::{AppError, AppErrorKind},
    project::DiskProject,
    state,
};

use std::path::{Path, PathBuf};

use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    bench::{self, BenchFolder, BenchFolderError, BenchScale},
    exit::Exit,
    output::CliOutput,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct BenchArguments {
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

pub fn run(arguments: &BenchArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let here = || DiskProject::current_root().join(state::NAME);
    let state = given.map_or_else(here, Path::to_owned);
    if let (Some(what), Some(runs)) = (&arguments.leave, arguments.runs) {
        return match bench::leave_runs(&state, what, runs) {
            Ok(()) => Ok(Exit::Done),
            Err(error) => Err(AppError::new(AppErrorKind::Store, &error.to_string(), None)),
        };
    }
    run_measurements(arguments, &state, output)
}

fn run_measurements(arguments: &BenchArguments, state: &Path, output: CliOutput) -> Result<Exit, AppError> {
    let folder = BenchFolder::new(state).map_err(|error| refuse_folder(&error))?;
    tidy_up_when_stopped(folder.path().to_owned()).map_err(|error| {
        AppError::new(AppErrorKind::Bug, &format!("cannot install signal handlers: {error}"), None)
    })?;
    let sizes = if arguments.quick { BenchScale::QUICK } else { BenchScale::FULL };
    let report = bench::measure_all(folder.path(), &sizes).map_err(|error| {
        AppError::new(AppErrorKind::Store, &format!("the benchmark failed: {error}"), None)
    })?;
    match output.is_json() {
        true => output.print_json(&report.to_json()),
        false => output.print_text(&report.render_text(output.paint)),
    }
    Ok(if arguments.check && !report.is_met() { Exit::Failed } else { Exit::Done })
}

fn refuse_folder(error: &BenchFolderError) -> AppError {
    match error {
        BenchFolderError::Taken => AppError::new(
            AppErrorKind::Refused,
            "another benchmark is running here, and two at once would disturb each other",
            Some("try again when it has ended"),
        ),
        BenchFolderError::Io(path, error) => {
            let message = format!("`{}` cannot be used: {error}", path.display());
            let hint = "choose another place with `--state DIR` or `SKEIN_STATE`";
            AppError::new(AppErrorKind::Store, &message, Some(hint))
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
