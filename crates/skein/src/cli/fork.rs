//! `skein fork`: starts a new run from a step of an ended run, or with the present workflow, and reuses its results.

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::fork::{self, ForkReloadRequest, ForkRequest},
};

use super::run::{AttachOptions, report_outcome};
use crate::{
    exit::Exit,
    render::{follow::TerminalFrontEnd, output::CliOutput, tables},
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct ForkArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// First step to run again, with all steps after it.
    #[arg(long, value_name = "STEP", required_unless_present = "reload")]
    from: Option<String>,
    #[command(flatten)]
    reload: ReloadArguments,
    #[command(flatten)]
    attachment: AttachOptions,
}

/// The arguments of a reload.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct ReloadArguments {
    /// Use the present workflow and skein.toml, and reuse the results of unchanged steps.
    #[arg(long)]
    reload: bool,
    /// Workflow file, if it is not the one of the run.
    #[arg(long, value_name = "FILE", requires = "reload")]
    workflow: Option<String>,
    /// Parameter with another value than in the run.
    #[arg(long = "param", value_name = "NAME=VALUE", requires = "reload")]
    parameters: Vec<String>,
    /// Only show which steps would be reused and which would run.
    #[arg(long, requires = "reload")]
    plan: bool,
}

pub(super) fn run(arguments: ForkArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let ForkArguments { run, from, reload, attachment } = arguments;
    let ReloadArguments { reload, workflow, parameters, plan } = reload;
    let reload = reload.then_some(ForkReloadRequest { workflow, parameters });
    let request = ForkRequest { run, from, reload, attachment: attachment.to_attachment() };
    if plan {
        let preview = fork::preview_fork(app, &request)?;
        output.print_result(|| preview.to_json(), || tables::render_fork(&preview, output.paint));
        return Ok(Exit::Done);
    }
    Ok(report_outcome(&fork::fork_run(app, &request, &TerminalFrontEnd::new(output))?, output))
}
