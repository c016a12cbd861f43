//! The sandbox: whether this machine can enforce what workers may do. It is tried, not looked up.

use rustix::process::getuid;
use skein_host::sandbox::Enforcement;

use super::Finding;
use crate::{config::Config, enforcement};

const NAME: &str = "confinement";

pub fn look(config: Option<&Config>) -> Vec<Finding> {
    let allowed = config.is_some_and(|config| config.allow_unenforced.steps);
    let mut findings = vec![finding(&enforcement::of_this_machine(), allowed)];
    if getuid().is_root() {
        findings.push(Finding::warning(
            NAME,
            "Skein runs as root: what a worker may write, it writes as root",
            "run Skein as an ordinary user; inside of a sandbox root has no capabilities and is called `nobody`",
        ));
    }
    findings
}

fn finding(enforced: &Result<Enforcement, String>, allowed: bool) -> Finding {
    match enforced {
        Ok(Enforcement::Full) => {
            Finding::ok(NAME, "tried: the kernel enforces what steps write, see and reach")
        }
        Ok(Enforcement::WritesOnly) => Finding::warning(
            NAME,
            "tried: Landlock confines what steps write; a worker can reach the state folder, so gates and `network: none` are refused",
            "let users have name spaces: `user.max_user_namespaces`, `kernel.apparmor_restrict_unprivileged_userns`, or the container",
        ),
        Err(why) if allowed => Finding::warning(
            NAME,
            format!("steps are not confined, and a worker can reach the state folder: {why}"),
            "`allow_unenforced` in skein.toml lets them run; gates need it to name `gates`",
        ),
        Err(why) => Finding::problem(
            NAME,
            format!("this machine cannot confine steps, so they are refused: {why}"),
            "let users create namespaces, or set `allow_unenforced = true` in skein.toml",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn what_cannot_be_kept_is_a_problem_unless_it_is_allowed() {
        assert_eq!(finding(&Ok(Enforcement::Full), false).level, Level::Ok);
        assert_eq!(finding(&Ok(Enforcement::WritesOnly), false).level, Level::Warning);
        assert_eq!(finding(&Err("no".to_owned()), true).level, Level::Warning);
        assert_eq!(finding(&Err("no".to_owned()), false).level, Level::Problem);
    }
}
