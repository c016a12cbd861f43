//! The sandbox enforcement of this machine, tested once by building a sandbox, and the consequences of missing
//! enforcement.

use std::{fmt, sync::OnceLock};

use serde::{Deserialize, Deserializer, de};
use skein_core::{ir::StepKindSpec, plan::Plan};
use skein_host::sandbox::{SandboxEnforcement, SandboxLauncher};

use crate::config::ProjectConfig;

/// Risks of a machine that cannot enforce sandboxes, as accepted by a project: `true` or `["steps", "gates"]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedRisks {
    /// Steps run without a sandbox.
    pub steps: bool,
    /// Gates are opened although a worker could reach the state folder and decide.
    pub gates: bool,
}

impl<'de> Deserialize<'de> for AcceptedRisks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AcceptedRisks, D::Error> {
        deserializer.deserialize_any(RisksVisitor)
    }
}

struct RisksVisitor;

impl<'de> de::Visitor<'de> for RisksVisitor {
    type Value = AcceptedRisks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a list of \"steps\" and \"gates\"")
    }

    fn visit_bool<E: de::Error>(self, steps: bool) -> Result<AcceptedRisks, E> {
        Ok(AcceptedRisks { steps, gates: false })
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<AcceptedRisks, A::Error> {
        let mut risks = AcceptedRisks::default();
        while let Some(name) = names.next_element::<String>()? {
            match name.as_str() {
                "steps" => risks.steps = true,
                "gates" => risks.gates = true,
                _ => return Err(de::Error::invalid_value(de::Unexpected::Str(&name), &self)),
            }
        }
        Ok(risks)
    }
}

/// Returns the program that starts workers in sandboxes: this program.
pub fn launcher() -> &'static Result<SandboxLauncher, String> {
    static LAUNCHER: OnceLock<Result<SandboxLauncher, String>> = OnceLock::new();
    let open = || {
        let opened = SandboxLauncher::this_program();
        opened.map_err(|error| format!("cannot open this program, which starts the workers: {error}"))
    };
    LAUNCHER.get_or_init(open)
}

/// Returns the level of sandbox enforcement of this machine, or the reason why there is none.
pub fn machine_enforcement() -> Result<SandboxEnforcement, String> {
    launcher().as_ref().map_err(String::clone)?.enforcement().clone()
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
        Ok(SandboxEnforcement::WritesOnly) => {
            Some(format!("this machine enforces only write restrictions: {reach}"))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AcceptedRisks, toml::de::Error> {
        #[derive(Deserialize)]
        struct File {
            risks: AcceptedRisks,
        }
        toml::from_str::<File>(&format!("risks = {text}")).map(|file| file.risks)
    }

    #[test]
    fn a_risk_is_accepted_by_its_name() {
        assert_eq!(read("true"), Ok(AcceptedRisks { steps: true, gates: false }));
        assert_eq!(read("[\"gates\"]"), Ok(AcceptedRisks { steps: false, gates: true }));
        assert_eq!(read("[\"steps\", \"gates\"]"), Ok(AcceptedRisks { steps: true, gates: true }));
        for bad in ["1", "[\"gate\"]", "\"steps\""] {
            let error = read(bad).expect_err("it is none");
            assert!(error.to_string().contains("a list of \"steps\" and \"gates\""), "{error}");
        }
    }
}
