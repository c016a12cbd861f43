//! Guards of a completion check: the files that may be changed, and their maximum number.
//!
//! Owns the reasons that make work incomplete although its check passed. Does not know the way in which changed files
//! are found ([`super::git`]).

use std::path::Path;

use skein_core::{
    engine::{AttemptEnd, CheckFinding},
    ir::{ConvergencePolicy, StepKindSpec},
    limits,
    plan::Plan,
};

use crate::workspace::PathPattern;

/// The maximum number of outside files that become fingerprints.
const NAMED: usize = 25;
/// The maximum number of outside files that are named in the reason.
const NAMED_IN_REASON: usize = 5;
/// Never counted: the files that steps hand to one another, the loop's own files, and git's.
const IGNORED: [&str; 3] = ["context/**", ".roboppi-loop/**", ".git/**"];

/// The convergence limits that guard a check.
#[derive(Debug)]
pub struct ConvergenceGuard {
    pub convergence: ConvergencePolicy,
    /// Ignored patterns, beside the state folder.
    ignored: Vec<String>,
}

impl ConvergenceGuard {
    /// The guard of a check, or `None` if it has no limits. Files of the context folder do not count.
    pub fn for_convergence(
        plan: &Plan,
        convergence: &ConvergencePolicy,
        context: Option<&str>,
    ) -> Option<ConvergenceGuard> {
        if convergence.allowed_paths.is_empty() && convergence.max_changed_files.is_none() {
            return None;
        }
        let mut ignored: Vec<String> = IGNORED.iter().map(ToString::to_string).collect();
        ignored.extend(convergence.ignored_paths.iter().cloned());
        ignored.extend(context.filter(|folder| is_subfolder(folder)).map(str::to_owned));
        ignored.extend(imported_artifact_paths(plan));
        Some(ConvergenceGuard { convergence: convergence.clone(), ignored })
    }

    /// Turns a finding into `Incomplete` if the changed files violate the limits.
    pub fn judge(&self, end: AttemptEnd, changed: &[String], state: Option<&Path>) -> AttemptEnd {
        let AttemptEnd::Checked { finding, reasons, fingerprints, output } = end else { return end };
        let (mut why, mut marks) = self.find_violations(changed, state);
        if marks.is_empty() {
            return AttemptEnd::Checked { finding, reasons, fingerprints, output };
        }
        why.extend(reasons);
        marks.extend(fingerprints);
        why.truncate(limits::CHECK_NOTES);
        marks.truncate(limits::CHECK_NOTES);
        // A blocked check still asks a person.
        let finding = if finding == CheckFinding::Blocked { finding } else { CheckFinding::Incomplete };
        AttemptEnd::Checked { finding, reasons: why, fingerprints: marks, output }
    }

    /// The reasons and fingerprints of all violations.
    fn find_violations(&self, changed: &[String], state: Option<&Path>) -> (Vec<String>, Vec<String>) {
        let read = |texts: &[String]| texts.iter().map(|text| PathPattern::new(text)).collect::<Vec<_>>();
        let mut ignored = read(&self.ignored);
        ignored
            .extend(state.and_then(Path::to_str).filter(|folder| is_subfolder(folder)).map(PathPattern::new));
        let any = |patterns: &[PathPattern], path: &str| patterns.iter().any(|pattern| pattern.matches(path));
        let scoped: Vec<&String> = changed.iter().filter(|path| !any(&ignored, path)).collect();
        let (mut why, mut marks) = (Vec::new(), Vec::new());
        if let Some(most) = self.convergence.max_changed_files
            && scoped.len() > most as usize
        {
            why.push(format!("{} files changed, `max_changed_files` is {most}", scoped.len()));
            marks.push("diff_budget:max_changed_files_exceeded".to_owned());
        }
        let allowed = read(&self.convergence.allowed_paths);
        let outside: Vec<&String> =
            scoped.into_iter().filter(|path| !allowed.is_empty() && !any(&allowed, path)).collect();
        if !outside.is_empty() {
            let named: Vec<&str> = outside.iter().take(NAMED_IN_REASON).map(|path| path.as_str()).collect();
            let more = if outside.len() > named.len() { ", …" } else { "" };
            why.push(format!("files outside `allowed_paths`: {}{more}", named.join(", ")));
            marks.push("scope:outside_allowed_paths".to_owned());
            marks.extend(outside.iter().take(NAMED).map(|path| file_fingerprint(path)));
        }
        (why, marks)
    }
}

/// True if a folder is inside the workspace, and not the whole workspace.
fn is_subfolder(folder: &str) -> bool {
    !folder.trim_matches(['.', '/']).is_empty()
}

fn file_fingerprint(path: &str) -> String {
    format!("scope:file:{path}").chars().take(limits::CHECK_NOTE_CHARS).collect()
}

/// The paths where artifacts of other steps are placed in the workspace, in all steps.
fn imported_artifact_paths(plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
        let StepKindSpec::Work(work) = &step.kind else { continue };
        let folder = work.isolation.workspace.as_deref().unwrap_or(".");
        names.extend(work.takes.iter().map(|take| format!("{folder}/{}", take.name)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str], most: Option<u32>) -> ConvergenceGuard {
        let convergence = ConvergencePolicy {
            stall_threshold: 2,
            max_stage: 3,
            fail_on_max_stage: true,
            stages: Vec::new(),
            allowed_paths: allowed.iter().map(ToString::to_string).collect(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: most,
        };
        let ignored = IGNORED.iter().map(ToString::to_string).chain(["build/context".to_owned()]).collect();
        ConvergenceGuard { convergence, ignored }
    }

    fn judged(
        guard: &ConvergenceGuard,
        finding: CheckFinding,
        changed: &[&str],
    ) -> (CheckFinding, Vec<String>) {
        let changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
        let fingerprints = vec!["own".into()];
        let end = AttemptEnd::Checked { finding, reasons: Vec::new(), fingerprints, output: None };
        match guard.judge(end, &changed, Some(Path::new(".skein"))) {
            AttemptEnd::Checked { finding, fingerprints, .. } => (finding, fingerprints),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_allowed_changes_nothing() {
        let guard = guard(&["src"], Some(2));
        let changed = ["src/a", "src/b", "context/x/y", ".skein/skein.db", "build/context/z", ".git/index"];
        assert_eq!(
            judged(&guard, CheckFinding::Complete, &changed),
            (CheckFinding::Complete, vec!["own".to_owned()])
        );
    }

    #[test]
    fn too_many_files_or_the_wrong_ones_are_incomplete() {
        let (finding, marks) =
            judged(&guard(&["src"], Some(1)), CheckFinding::Complete, &["src/a", "b", "c/d"]);
        assert_eq!(finding, CheckFinding::Incomplete);
        assert_eq!(
            marks,
            [
                "diff_budget:max_changed_files_exceeded",
                "scope:outside_allowed_paths",
                "scope:file:b",
                "scope:file:c/d",
                "own"
            ]
        );
        assert_eq!(
            judged(&guard(&["src"], None), CheckFinding::Undecided, &["b"]).0,
            CheckFinding::Incomplete
        );
        assert_eq!(judged(&guard(&["src"], None), CheckFinding::Blocked, &["b"]).0, CheckFinding::Blocked);
    }

    #[test]
    fn not_all_files_are_named() {
        let changed: Vec<String> = (0..500).map(|i| format!("{i}/{}", "x".repeat(400))).collect();
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        let (_, marks) = judged(&guard(&["src"], None), CheckFinding::Incomplete, &changed);
        assert_eq!(marks.len(), 1 + NAMED + 1);
        assert!(marks.iter().all(|mark| mark.chars().count() <= limits::CHECK_NOTE_CHARS));
    }
}
