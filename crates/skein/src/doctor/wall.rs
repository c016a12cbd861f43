//! Walls: whether workers can be kept to what they may do here. It is tried, not looked up.

use skein_host::wall::{self, Kept};

use super::Finding;
use crate::config::Config;

const NAME: &str = "confinement";

pub fn look(config: Option<&Config>) -> Vec<Finding> {
    let kept = std::env::current_exe().map_err(|error| error.to_string()).and_then(|exe| wall::here(&exe));
    vec![finding(&kept, config.is_some_and(|config| config.allow_unenforced))]
}

fn finding(kept: &Result<Kept, String>, allowed: bool) -> Finding {
    match kept {
        Ok(Kept::All) => Finding::ok(NAME, "tried: what steps write, see and reach is kept by the system"),
        Ok(Kept::Writes) => Finding::warning(
            NAME,
            "tried: what steps write is kept by Landlock; what Skein keeps is open to them, and `network: none` is refused",
            "let users have name spaces: `user.max_user_namespaces`, `kernel.apparmor_restrict_unprivileged_userns`, or the container",
        ),
        Err(why) if allowed => Finding::warning(
            NAME,
            format!("steps are not kept to what they may do: {why}"),
            "`allow_unenforced` in skein.toml lets them run so",
        ),
        Err(why) => Finding::problem(
            NAME,
            format!("nothing can keep steps to what they may do, so they are refused: {why}"),
            "let users have name spaces of their own, or set `allow_unenforced = true` in skein.toml",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn what_cannot_be_kept_is_a_problem_unless_it_is_allowed() {
        assert_eq!(finding(&Ok(Kept::All), false).level, Level::Ok);
        assert_eq!(finding(&Ok(Kept::Writes), false).level, Level::Warning);
        assert_eq!(finding(&Err("no".to_owned()), true).level, Level::Warning);
        assert_eq!(finding(&Err("no".to_owned()), false).level, Level::Problem);
    }
}
