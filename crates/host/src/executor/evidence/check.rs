//! The verdict of a checker, and the guards of a completion check.
//!
//! Owns the accepted forms of a decision: in the decision file, in a line of the output, or as exit status. Any other
//! form is undecided. Owns the reasons that make work incomplete although its check passed: the files that may be changed,
//! and their maximum number.

use std::path::Path;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, CheckFinding, CheckOutput},
    ir::{ConvergencePolicy, StepKindSpec},
    limits,
    plan::Plan,
};

use crate::workspace::PathPattern;

/// The maximum number of reasons or fingerprints; further ones are dropped.
const ITEMS: usize = 200;
const ITEM_CHARACTERS: usize = 240;
/// The maximum length of a line that can be a JSON decision.
const LINE_BYTES: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckVerdict {
    /// `None` if no decision could be read.
    pub finding: Option<CheckFinding>,
    pub reasons: Vec<String>,
    pub fingerprints: Vec<String>,
    /// The end of its output, if it says more than its reasons.
    pub output: Option<CheckOutput>,
}

impl CheckVerdict {
    /// A decision in words, or none, with the end of the text that holds them.
    fn from_words(finding: Option<CheckFinding>, text: &str) -> CheckVerdict {
        let output = CheckOutput::new(None, text);
        CheckVerdict {
            finding,
            output: Some(output).filter(|output| !output.text.is_empty()),
            ..CheckVerdict::default()
        }
    }

    pub fn into_end(self) -> AttemptEnd {
        let CheckVerdict { finding, reasons, fingerprints, output } = self;
        let finding = finding.unwrap_or(CheckFinding::Undecided);
        // Work that is complete is not continued, so its output is not needed.
        let output = output.filter(|_| finding != CheckFinding::Complete);
        AttemptEnd::Checked { finding, reasons, fingerprints, output }
    }
}

/// Reads the decision of an agent: from the file first, then from the end of its output.
pub fn read_agent_verdict(file: Option<&str>, said: &str, check: &str) -> CheckVerdict {
    if let Some(text) = file {
        return parse_decision_file(text, check);
    }
    let json =
        said.lines().rev().filter(|line| line.len() <= LINE_BYTES).find_map(|line| parse_json_decision(line, check));
    json.unwrap_or_else(|| CheckVerdict::from_words(find_marker(said), said))
}

/// Reads the decision of a script: 0 is complete, 1 is incomplete, anything else is no decision. The file adds reasons;
/// the output is kept with them.
pub fn read_script_verdict(status: i32, file: Option<&str>, printed: &str, check: &str) -> Option<CheckVerdict> {
    let finding = match status {
        0 => CheckFinding::Complete,
        1 => CheckFinding::Incomplete,
        _ => return None,
    };
    let added = file.and_then(|text| parse_json_decision(text, check)).unwrap_or_default();
    let output = Some(CheckOutput::new(Some(status), printed));
    Some(CheckVerdict { finding: Some(finding), output, ..added })
}

fn parse_decision_file(text: &str, check: &str) -> CheckVerdict {
    match serde_json::from_str::<Value>(text.trim()) {
        // JSON that is not a decision for this check is not searched for words.
        Ok(Value::Object(_)) => parse_json_decision(text, check).unwrap_or_default(),
        _ => CheckVerdict::from_words(find_marker(text), text),
    }
}

/// Parses a decision as a JSON object. A decision for another check is ignored.
fn parse_json_decision(text: &str, check: &str) -> Option<CheckVerdict> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let id = value.get("check_id").or_else(|| value.get("checkId"));
    if id.is_some_and(|id| id.as_str() != Some(check)) {
        return None;
    }
    let word = value.get("decision")?.as_str()?.trim().to_ascii_lowercase();
    let finding = match word.as_str() {
        "complete" => CheckFinding::Complete,
        "incomplete" => CheckFinding::Incomplete,
        "blocked" => CheckFinding::Blocked,
        _ => return None,
    };
    let list = |name: &str| value.get(name).map_or_else(Vec::new, parse_texts);
    let (reasons, fingerprints) = (list("reasons"), list("fingerprints"));
    Some(CheckVerdict { finding: Some(finding), reasons, fingerprints, output: None })
}

/// Reads a text or a list of texts: trimmed, truncated, without duplicates and in order.
fn parse_texts(value: &Value) -> Vec<String> {
    let texts: Vec<&str> = match value {
        Value::String(text) => vec![text],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut items: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let item: String = text.chars().take(ITEM_CHARACTERS).collect();
        if items.len() < ITEMS && seen.insert(item.clone()) {
            items.push(item);
        }
    }
    items
}

/// Finds the last line that begins with a decision word.
fn find_marker(text: &str) -> Option<CheckFinding> {
    text.lines().rev().find_map(|line| {
        let line = line.trim().to_ascii_uppercase();
        let rest = ["VERDICT", "DECISION"].iter().find_map(|word| line.strip_prefix(word));
        let said = rest.map_or(line.as_str(), |rest| rest.trim_start_matches([':', '=', ' ']));
        let word = said.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        match word {
            "COMPLETE" | "PASS" => Some(CheckFinding::Complete),
            "INCOMPLETE" | "FAIL" | "FAILED" => Some(CheckFinding::Incomplete),
            "BLOCKED" => Some(CheckFinding::Blocked),
            _ => None,
        }
    })
}

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
        ignored.extend(state.and_then(Path::to_str).filter(|folder| is_subfolder(folder)).map(PathPattern::new));
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
    use skein_core::limits;

    use super::*;

    fn finding(file: Option<&str>, said: &str) -> Option<CheckFinding> {
        read_agent_verdict(file, said, "id-7").finding
    }

    #[test]
    fn the_file_wins_over_what_was_said() {
        let file =
            r#"{"decision": " Incomplete ", "check_id": "id-7", "reasons": ["a", " a", "", "b"], "fingerprints": "f"}"#;
        let verdict = read_agent_verdict(Some(file), "COMPLETE", "id-7");
        assert_eq!(verdict.finding, Some(CheckFinding::Incomplete));
        assert_eq!((verdict.reasons, verdict.fingerprints), (vec!["a".into(), "b".into()], vec!["f".into()]));
    }

    #[test]
    fn a_decision_for_another_check_is_none() {
        assert_eq!(finding(Some(r#"{"decision": "complete", "check_id": "id-6"}"#), "COMPLETE"), None);
        assert_eq!(finding(Some(r#"{"decision": "complete", "checkId": 7}"#), ""), None);
        let said = "{\"decision\": \"complete\", \"check_id\": \"id-6\"}\n{\"decision\": \"incomplete\"}\nbye";
        assert_eq!(finding(None, said), Some(CheckFinding::Incomplete));
    }

    #[test]
    fn words_are_found_at_the_start_of_a_line_from_the_end() {
        assert_eq!(finding(None, "PASS\nfail: two tests\nthat is all"), Some(CheckFinding::Incomplete));
        assert_eq!(finding(None, "verdict: complete"), Some(CheckFinding::Complete));
        assert_eq!(finding(Some("DECISION=BLOCKED"), ""), Some(CheckFinding::Blocked));
        assert_eq!(finding(None, "it is complete\npassed"), None, "no word of its own");
        assert_eq!(finding(None, ""), None);
    }

    #[test]
    fn a_script_decides_by_its_status() {
        let file = Some(r#"{"decision": "complete", "reasons": "because"}"#);
        let verdict = read_script_verdict(1, file, "2 failed\n", "id-7").unwrap();
        assert_eq!((verdict.finding, &verdict.reasons), (Some(CheckFinding::Incomplete), &vec!["because".to_owned()]));
        assert_eq!(verdict.output, Some(CheckOutput { status: Some(1), text: "2 failed".into() }));
        let complete = read_script_verdict(0, None, "all well", "id-7").unwrap();
        assert_eq!(complete.finding, Some(CheckFinding::Complete));
        assert!(matches!(complete.into_end(), AttemptEnd::Checked { output: None, .. }));
        assert_eq!(read_script_verdict(2, None, "", "id-7"), None);
    }

    #[test]
    fn words_around_a_decision_are_kept_up_to_their_end() {
        let said = format!("{}\nit lacks a title\nINCOMPLETE: no title\n", "é".repeat(limits::CHECK_OUTPUT_BYTES));
        let verdict = read_agent_verdict(None, &said, "id-7");
        assert_eq!(verdict.output.unwrap().text, "it lacks a title\nINCOMPLETE: no title");
        assert_eq!(read_agent_verdict(None, "I looked.", "id-7").output.unwrap().text, "I looked.");
        let decided = r#"{"decision": "incomplete", "reasons": ["no title"]}"#;
        assert_eq!(read_agent_verdict(None, decided, "id-7").output, None, "its reasons are told");
    }

    #[test]
    fn lists_are_bounded() {
        let many: Vec<String> = (0..500).map(|i| format!("{i}{}", "x".repeat(400))).collect();
        let items = parse_texts(&serde_json::json!(many));
        assert_eq!((items.len(), items[0].len()), (ITEMS, ITEM_CHARACTERS));
    }
}

#[cfg(test)]
mod convergence_guard_tests {
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

    fn judged(guard: &ConvergenceGuard, finding: CheckFinding, changed: &[&str]) -> (CheckFinding, Vec<String>) {
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
        assert_eq!(judged(&guard, CheckFinding::Complete, &changed), (CheckFinding::Complete, vec!["own".to_owned()]));
    }

    #[test]
    fn too_many_files_or_the_wrong_ones_are_incomplete() {
        let (finding, marks) = judged(&guard(&["src"], Some(1)), CheckFinding::Complete, &["src/a", "b", "c/d"]);
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
        assert_eq!(judged(&guard(&["src"], None), CheckFinding::Undecided, &["b"]).0, CheckFinding::Incomplete);
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
