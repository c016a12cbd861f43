//! Walls: what could keep a worker within what it may do here. Each is tried, not looked up; nothing stays walled in.

use skein_host::machine::{Landlock, landlock};

use super::{
    Finding,
    programs::{Answer, Answers, Wanted},
};

const BWRAP: &str = "bwrap";
const UNSHARE: &str = "unshare";

pub fn wanted() -> Vec<Wanted> {
    // A small program in a world with no network and nothing to write to.
    let walled =
        &["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--", "true"];
    let alone = &["--user", "--map-root-user", "--net", "true"];
    vec![
        Wanted { key: BWRAP, program: BWRAP.to_owned(), arguments: walled },
        Wanted { key: UNSHARE, program: UNSHARE.to_owned(), arguments: alone },
    ]
}

pub fn look(answers: &Answers) -> Vec<Finding> {
    let walls = Walls {
        files: landlock(),
        bubble: Tried::of(answers.get(BWRAP)),
        spaces: Tried::of(answers.get(UNSHARE)),
    };
    vec![walls.landlock(), walls.bwrap(), walls.namespaces(), walls.together()]
}

/// Whether a program could do what it is for.
#[derive(Debug, PartialEq, Eq)]
enum Tried {
    Works,
    Fails(String),
    Missing,
}

impl Tried {
    fn of(answer: Option<&Answer>) -> Tried {
        match answer {
            Some(Answer::Said { .. }) => Tried::Works,
            Some(Answer::Failed { why, .. }) => Tried::Fails(why.clone()),
            Some(Answer::Missing(_)) | None => Tried::Missing,
        }
    }
}

struct Walls {
    files: Landlock,
    bubble: Tried,
    spaces: Tried,
}

impl Walls {
    fn landlock(&self) -> Finding {
        let name = "Landlock";
        match &self.files {
            Landlock::Holds { version } => {
                let more = if *version >= 4 { "files, and connections by TCP" } else { "files" };
                Finding::ok(name, format!("version {version}, tried: walls off {more}"))
            }
            Landlock::NotEnabled => {
                let hint = "start the kernel with `landlock` in `lsm=`, where that can be chosen";
                Finding::warning(name, "the kernel has it, and was started without it", hint)
            }
            Landlock::NotBuilt => Finding::warning(
                name,
                "the kernel does not have it",
                "Linux 5.13 or later has it, if it was built in",
            ),
            Landlock::Fails(why) => {
                Finding::warning(name, format!("it does not hold: {why}"), "bubblewrap can do instead")
            }
        }
    }

    fn bwrap(&self) -> Finding {
        match &self.bubble {
            Tried::Works => Finding::ok("bubblewrap", "tried: walls off files, processes and the network"),
            Tried::Fails(why) => {
                let hint = "it needs user namespaces, or to be installed setuid";
                Finding::warning("bubblewrap", format!("it is here, and does not start: {why}"), hint)
            }
            Tried::Missing => {
                let hint = "to wall off the network too, install it (Debian: `apt install bubblewrap`)";
                Finding::warning("bubblewrap", "not here", hint)
            }
        }
    }

    fn namespaces(&self) -> Finding {
        let name = "user namespaces";
        match &self.spaces {
            Tried::Works => Finding::ok(name, "tried: one without a network can be made"),
            Tried::Fails(why) => {
                let hint = "the kernel or the container must allow them: `sysctl user.max_user_namespaces`";
                Finding::warning(name, format!("none can be made: {why}"), hint)
            }
            Tried::Missing => {
                Finding::warning(name, "not tried: there is no `unshare`", "install util-linux to know")
            }
        }
    }

    /// What all of it comes to.
    fn together(&self) -> Finding {
        let files = matches!(self.files, Landlock::Holds { .. });
        let bubble = self.bubble == Tried::Works;
        let message = match (files, bubble) {
            (true, true) => "what a step may write and `network: none` can both be enforced",
            (true, false) => {
                "what a step may write can be enforced by Landlock; `network: none` cannot, for want of bubblewrap"
            }
            (false, true) => "what a step may write and `network: none` can both be enforced by bubblewrap",
            (false, false) => "nothing can keep a worker from writing where it should not",
        };
        if files || bubble {
            return Finding::ok("together", message);
        }
        let hint = "what must be enforced is refused here, unless `allow_unenforced = true` in skein.toml";
        Finding::warning("together", message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    fn walls(files: Landlock, bubble: Tried) -> Walls {
        Walls { files, bubble, spaces: Tried::Missing }
    }

    #[test]
    fn what_is_there_says_what_can_be_enforced() {
        let holds = || Landlock::Holds { version: 3 };
        let fails = || Tried::Fails("no".to_owned());
        let both = walls(holds(), Tried::Works).together();
        assert_eq!((both.level, both.message.contains("both")), (Level::Ok, true));
        let files = walls(holds(), fails()).together();
        assert!(files.level == Level::Ok && files.message.contains("`network: none` cannot"));
        assert_eq!(walls(Landlock::NotBuilt, Tried::Works).together().level, Level::Ok);
        assert_eq!(walls(Landlock::NotEnabled, Tried::Missing).together().level, Level::Warning);
        assert!(!walls(holds(), fails()).landlock().message.contains("TCP"), "only from version 4 on");
    }
}
