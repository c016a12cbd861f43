//! Checks of the sandbox: tests whether this machine can enforce the restrictions of workers.

use rustix::process::getuid;
use skein_host::sandbox::{SandboxEnforcement, SandboxProbeError};

use super::DoctorFinding;
use crate::{prepare::enforcement, project::config::ProjectConfig};

const NAME: &str = "confinement";

pub fn check_sandbox(config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    let allowed = config.is_some_and(|config| config.allow_unenforced.steps);
    let mut findings = vec![enforcement_finding(&enforcement::machine_enforcement(), allowed)];
    if getuid().is_root() {
        findings.push(DoctorFinding::warning(
            NAME,
            "Skein runs as root, so workers write files as root",
            "run Skein as an ordinary user; inside of a sandbox root has no capabilities and is called `nobody`",
        ));
    }
    findings
}

fn enforcement_finding(enforced: &Result<SandboxEnforcement, SandboxProbeError>, allowed: bool) -> DoctorFinding {
    match enforced {
        Ok(SandboxEnforcement::Full) => {
            DoctorFinding::ok(NAME, "tested: the kernel enforces what steps write, see and reach")
        }
        Ok(SandboxEnforcement::WritesOnly) => DoctorFinding::warning(
            NAME,
            "tested: Landlock restricts what steps write; a worker can reach the state folder, so gates and `network: none` are refused",
            "let users create namespaces: `user.max_user_namespaces`, `kernel.apparmor_restrict_unprivileged_userns`, or the container",
        ),
        Err(why) if allowed => DoctorFinding::warning(
            NAME,
            format!("steps are not confined, and a worker can reach the state folder: {why}"),
            "`allow_unenforced` in skein.toml lets them run; gates need it to name `gates`",
        ),
        Err(why) => DoctorFinding::problem(
            NAME,
            format!("this machine cannot confine steps, so they are refused: {why}"),
            "let users create namespaces, or set `allow_unenforced = true` in skein.toml",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::DoctorLevel, *};

    #[test]
    fn what_cannot_be_kept_is_a_problem_unless_it_is_allowed() {
        assert_eq!(enforcement_finding(&Ok(SandboxEnforcement::Full), false).level, DoctorLevel::Ok);
        assert_eq!(enforcement_finding(&Ok(SandboxEnforcement::WritesOnly), false).level, DoctorLevel::Warning);
        assert_eq!(enforcement_finding(&Err(SandboxProbeError("no".to_owned())), true).level, DoctorLevel::Warning);
        assert_eq!(enforcement_finding(&Err(SandboxProbeError("no".to_owned())), false).level, DoctorLevel::Problem);
    }
}
