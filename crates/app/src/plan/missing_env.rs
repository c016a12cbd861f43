//! Environment variables of the caller that scripts use and steps do not get.
//!
//! Owns the search of a script for variables. It is a heuristic, not a parser of shells: in doubt it reports nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use skein_core::{
    ir::{Step, StepKindSpec, WorkSpec, WorkerSpec},
    plan::{PlanDefinition, ScopeIx},
};
use skein_host::executor::is_always_passed;

use crate::project::config::ProjectConfig;

/// Variables that a shell sets by itself.
const OF_SHELLS: [&str; 40] = [
    "BASH",
    "BASHPID",
    "BASHOPTS",
    "BASH_SOURCE",
    "BASH_VERSION",
    "COLUMNS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTFILE",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "PPID",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "TERM",
    "UID",
];
/// Commands that set the variables they name.
const SETTERS: [&str; 10] =
    ["for", "read", "local", "declare", "typeset", "readonly", "mapfile", "readarray", "select", "getopts"];
/// Programs whose argument is a script.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// A variable that is set in the environment of Skein, used by scripts, and not passed to them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MissingVariable {
    pub variable: String,
    /// The steps that use it.
    pub steps: Vec<String>,
}

impl MissingVariable {
    pub fn message(&self) -> String {
        let steps = crate::plan::list_few(&self.steps, "and");
        format!("{} is not passed to steps; add it to pass_env in skein.toml (used by {steps})", self.variable)
    }
}

/// Finds all such variables.
pub(crate) fn find_missing_variables(
    definition: &PlanDefinition,
    config: &ProjectConfig,
    is_set: &dyn Fn(&str) -> bool,
) -> Vec<MissingVariable> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (scope, entry) in (0..).map(ScopeIx).zip(&definition.scopes) {
        let declared = &definition.workflow_containing(scope).workflow.env;
        for step in &entry.scope.steps {
            for (work, worker) in list_workers(step) {
                let passed = |name: &String| {
                    is_always_passed(name)
                        || name.starts_with("SKEIN_")
                        || OF_SHELLS.contains(&name.as_str())
                        || config.pass_env.contains(name)
                        || declared.contains_key(name)
                        || work.isolation.secrets.contains(name)
                };
                // Only names that are set here are checked further: a script may have thousands of others.
                let missing = |name: &String| !passed(name) && is_set(name);
                for name in
                    list_scripts(worker, config).into_iter().flat_map(|script| find_used_variables(script, &missing))
                {
                    let steps = found.entry(name).or_default();
                    if !steps.iter().any(|known| known == step.id.as_str()) {
                        steps.push(step.id.to_string());
                    }
                }
            }
        }
    }
    found.into_iter().map(|(variable, steps)| MissingVariable { variable, steps }).collect()
}

/// Returns true if a variable is set in the environment of Skein.
pub(crate) fn is_set_here(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// Returns the workers of a step's parts, and the work that each belongs to.
fn list_workers(step: &Step) -> Vec<(&WorkSpec, &WorkerSpec)> {
    let mut workers = Vec::new();
    if let StepKindSpec::Work(work) = &step.kind {
        workers.push((&**work, &work.worker));
        workers.extend(work.check.iter().map(|check| (&**work, &check.worker)));
        workers.extend(work.summary.iter().map(|summary| (&**work, &summary.worker)));
    }
    workers.extend(step.undo.iter().map(|undo| (&undo.work, &undo.work.worker)));
    workers
}

/// Returns the scripts that a worker runs: its own, or those in the command of an agent that is a shell.
fn list_scripts<'a>(worker: &'a WorkerSpec, config: &'a ProjectConfig) -> Vec<&'a str> {
    match worker {
        WorkerSpec::Script { text, .. } => vec![text],
        WorkerSpec::Agent { name: Some(name), .. } => {
            let command = config.agents.get(name).map_or(&[][..], |agent| &agent.command);
            let program = command.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
            let is_shell = SHELLS.contains(&program) && command.iter().any(|argument| argument == "-c");
            command.iter().skip(1).filter(|_| is_shell).map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the variables that a script reads and does not set, if they match the filter.
fn find_used_variables(script: &str, matters: &dyn Fn(&String) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut single, mut double, mut word) = (false, false, true);
    let mut rest = script;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' if !single => after.get(after.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
            '\'' if !double => {
                single = !single;
                after
            }
            '"' if !single => {
                double = !double;
                after
            }
            '#' if word && !single && !double => after.split_once('\n').map_or("", |(_, next)| next),
            '$' if !single => {
                let at = after.strip_prefix('{').map_or(after, |braced| braced.trim_start_matches(['!', '#']));
                let name = leading_variable_name(at);
                names.extend((!name.is_empty()).then(|| name.to_owned()));
                &at[name.len()..]
            }
            _ => after,
        };
        word = c.is_whitespace() || matches!(c, ';' | '&' | '|' | '(');
    }
    names.retain(|name| matters(name) && !sets_variable(script, name));
    names
}

/// Returns the name of a variable at the start of a text.
fn leading_variable_name(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())];
    if name.starts_with(|c: char| c.is_ascii_digit()) { "" } else { name }
}

/// Returns true if a script sets a variable somewhere.
fn sets_variable(script: &str, name: &str) -> bool {
    let mut commands = script.split(['\n', ';', '&', '|', '(', ')', '{', '}']);
    commands.any(|command| {
        let words: Vec<&str> = command.split_whitespace().collect();
        let assigns = |word: &&str| {
            let value = word.strip_prefix(name).map(|rest| rest.strip_prefix('+').unwrap_or(rest));
            value.is_some_and(|rest| rest.starts_with('=') || rest.starts_with('['))
        };
        let setter = words.iter().position(|word| SETTERS.contains(word));
        words.iter().any(assigns) || setter.is_some_and(|at| words[at..].contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(script: &str) -> Vec<String> {
        find_used_variables(script, &|_| true).into_iter().collect()
    }

    #[test]
    fn variables_are_found_where_a_shell_would_expand_them() {
        assert_eq!(names("echo $FOO ${BAR:-x} \"${#BAZ} it's $QUX\""), ["BAR", "BAZ", "FOO", "QUX"]);
        assert!(names("echo '$FOO' \\$BAR $1 $$ $? ${1} # $BAZ\n").is_empty());
        assert_eq!(names("a=x#$FOO"), ["FOO"], "no comment begins within a word");
        assert_eq!(names("$FOO$BAR"), ["BAR", "FOO"]);
    }

    #[test]
    fn what_a_script_sets_itself_is_not_missed() {
        for script in [
            "FOO=1; echo $FOO",
            "export FOO=1 && echo $FOO",
            "for FOO in a b; do echo $FOO; done",
            "while read -r FOO; do echo $FOO; done",
            "FOO+=x\necho ${FOO}",
            "declare -A FOO; echo ${FOO[x]}",
        ] {
            assert!(names(script).is_empty(), "{script}");
        }
        assert_eq!(names("export FOO; echo $FOO"), ["FOO"], "it only passes on what is there");
        assert_eq!(names("echo FOO $FOO"), ["FOO"]);
    }
}
