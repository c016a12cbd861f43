//! The sandbox enforcement of this machine, tested once by building a sandbox, and the consequences of missing
//! enforcement.

use std::{io, sync::OnceLock};

use skein_core::{ir::StepKindSpec, plan::Plan};
use skein_host::sandbox::{SandboxEnforcement, SandboxLauncher, SandboxProbeError};

use crate::project::config::ProjectConfig;

/// Returns the program that starts workers in sandboxes: this program.
pub fn launcher() -> &'static Result<SandboxLauncher, SandboxProbeError> {
    static LAUNCHER: OnceLock<Result<SandboxLauncher, SandboxProbeError>> = OnceLock::new();
    let open = || {
        let opened = SandboxLauncher::this_program();
        let describe = |error| format!("cannot open this program, which starts the workers: {error}");
        opened.map_err(|error: io::Error| SandboxProbeError(describe(error)))
    };
    LAUNCHER.get_or_init(open)
}

/// Returns the level of sandbox enforcement of this machine, or the reason why there is none.
pub fn machine_enforcement() -> Result<SandboxEnforcement, SandboxProbeError> {
    launcher().as_ref().map_err(SandboxProbeError::clone)?.enforcement().clone()
}

/// Returns true if workers can reach nothing that belongs to the user or to Skein.
pub fn is_fully_enforced() -> bool {
    matches!(machine_enforcement(), Ok(SandboxEnforcement::Full))
}

/// Returns a warning about the files that workers can reach on this machine, if it does not enforce whole sandboxes.
pub fn unenforced_warning() -> Option<String> {
    let reach = "a worker can read the state folder and, if it may write to the folder around it, change it; see docs/security.md";
    match machine_enforcement() {
        Ok(SandboxEnforcement::Full) => None,
        Ok(SandboxEnforcement::WritesOnly) => Some(format!("this machine enforces only write restrictions: {reach}")),
        Err(_) => Some(format!("this machine cannot enforce sandboxes: {reach}")),
    }
}

/// Returns the reason why a plan with gates is not run on this machine, if there is one: a worker could decide at its
/// own gate.
pub fn refuse_gates(plan: &Plan, config: &ProjectConfig) -> Option<String> {
    let steps = || plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let asks = |kind: &StepKindSpec| matches!(kind, StepKindSpec::Gate(_));
    let gate = steps().find(|step| asks(&step.kind) || step.policy.approval.is_some())?;
    let has_workers = steps().any(|step| matches!(step.kind, StepKindSpec::Work(_) | StepKindSpec::Call(_)));
    if !has_workers || config.allow_unenforced.gates || is_fully_enforced() {
        return None;
    }
    Some(format!(
        "`{}` asks a person, and on this machine a worker can reach the state folder and answer in their place; \
         let users create namespaces (`skein doctor` says how), or accept the risk with \
         `allow_unenforced = [\"gates\"]` in skein.toml",
        gate.id
    ))
}
