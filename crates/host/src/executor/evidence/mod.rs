//! Evidence: checks the required results of a step after its worker reports success, and reads the verdict of a
//! checker.
//!
//! Owns the check of each piece, and the baseline from before the step: no worker may write the schema that judges its
//! own work. Owns the accepted forms of a verdict (in the decision file, in a line of the output, or as exit status;
//! any other form is undecided), and the reasons that make work incomplete although its check passed: the files that
//! may be changed, and their maximum number. Does not know the consequence of a missing piece: the engine decides that.

pub(crate) mod protect;

use std::{collections::BTreeMap, ffi::OsString, path::Path, time::Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, CheckFinding, CheckOutput, EvidenceResult, InstanceIx, StepAt},
    ir::{ConvergencePolicy, Evidence, Schema, StepKindSpec},
    limits,
    plan::Plan,
    time::Millis,
};

use crate::{
    executor::{
        WorkKey,
        attempt::{
            AttemptContext, EnteredWorkspace, StageError, collect::summarize_names, command::WorkerEnvironment,
            non_retryable, sandbox_setup,
        },
    },
    process::{self, ProcessOutcome, ProcessSpec, to_duration},
    sandbox::Sandbox,
    workspace::{
        FileSurvey, PathPattern, RootFolder,
        root::{FileIdentity, FileOrFolder, FilePathError},
    },
};

/// Variables that an evidence command does not get, because it returns no output.
const OF_WORKER: [&str; 3] = ["SKEIN_OUTPUT", "SKEIN_ERROR", "SKEIN_INPUTS"];

/// The baseline that is taken before a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceBaseline {
    /// By file name. The error, if the schema could not be read.
    schemas: BTreeMap<String, Result<Value, String>>,
    files: FileSurvey,
}

/// The environment in which evidence is checked.
pub(crate) struct EvidenceContext {
    /// The folder where the step works, and the folder of its own files.
    folder: RootFolder,
    own_files: RootFolder,
    /// The environment and the sandbox of evidence commands.
    environment: WorkerEnvironment,
    sandbox: Option<Sandbox>,
}

impl EvidenceContext {
    /// Takes them from the worker's task, before the task is adapted to an agent.
    pub(super) fn from_task(
        attempt: &AttemptContext,
        task: &ProcessSpec,
        workspace: &EnteredWorkspace,
    ) -> Result<EvidenceContext, FilePathError> {
        let sandbox = |sandbox: &Sandbox| sandbox_setup::evidence_sandbox(attempt, sandbox, &workspace.folder);
        let is_passed = |(name, _): &&(OsString, OsString)| !OF_WORKER.iter().any(|own| name == own);
        Ok(EvidenceContext {
            folder: workspace.folder.clone(),
            own_files: workspace.own_files.clone(),
            environment: task.environment.iter().filter(is_passed).cloned().collect(),
            sandbox: task.sandbox.as_ref().map(sandbox).transpose()?,
        })
    }
}

/// The data to check the evidence after the worker has ended.
pub(crate) struct EvidenceCheck {
    before: EvidenceBaseline,
    ground: EvidenceContext,
    /// The folders that do not count as changes.
    without: Vec<FileIdentity>,
    /// The deadline of the attempt.
    due: Option<Instant>,
}

impl EvidenceCheck {
    /// Prepares the check for an attempt that is about to begin. `None` if no evidence is required.
    pub(super) fn prepare(
        attempt: &AttemptContext,
        ground: EvidenceContext,
        without: &[FileIdentity],
    ) -> Result<Option<EvidenceCheck>, StageError> {
        if attempt.job.evidence.is_empty() {
            return Ok(None);
        }
        let before = EvidenceBaseline::load_or_take(attempt, &ground.folder, without)?;
        let due = attempt.job.timeouts.total.and_then(|limit| Instant::now().checked_add(to_duration(limit)));
        Ok(Some(EvidenceCheck { before, ground, without: without.to_vec(), due }))
    }

    /// Checks every piece. Commands run first, so that the files they leave are checked too. `None` if stopped
    /// meanwhile.
    pub(super) fn prove_all(&self, attempt: &AttemptContext, key: &WorkKey) -> Option<Vec<EvidenceResult>> {
        let mut proofs = BTreeMap::new();
        let mut order: Vec<(usize, &Evidence)> = attempt.job.evidence.iter().enumerate().collect();
        order.sort_by_key(|(_, evidence)| !matches!(evidence, Evidence::Command(_)));
        for (number, evidence) in order {
            let (holds, found) = match evidence {
                Evidence::Command(words) => self.run_command(attempt, key, number, words)?,
                Evidence::File(path) => self.check_file(path),
                Evidence::Changed(pattern) => self.check_changed(pattern),
                Evidence::Schema { path, of } => match self.check_schema(path, of) {
                    Ok(()) => (true, String::new()),
                    Err(why) => (false, why),
                },
            };
            proofs.insert(number, EvidenceResult { what: evidence.to_string(), holds, found: keep_tail(&found) });
        }
        Some(proofs.into_values().collect())
    }

    /// Runs a command. Returns true if it exits with 0, and the end of its output. `None` if it was stopped.
    fn run_command(
        &self,
        AttemptContext { shared, job, run, files, mark }: &AttemptContext,
        key: &WorkKey,
        number: usize,
        words: &[String],
    ) -> Option<(bool, String)> {
        let Some((program, arguments)) = words.split_first() else { return Some((false, String::new())) };
        let ground = &self.ground;
        let log = files.root().path().join(format!("proof-{}.log", number + 1));
        let mut task = ProcessSpec::new(program, ground.folder.path(), log, mark.clone());
        task.arguments = arguments.iter().map(Into::into).collect();
        task.environment.clone_from(&ground.environment);
        task.sandbox.clone_from(&ground.sandbox);
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()).as_millis());
        let left = left.map_or(limits::PROOF, |left| u64::try_from(left).unwrap_or(limits::PROOF));
        task.limit = Some(Millis(left.clamp(1, limits::PROOF)));
        task.filter = shared.redaction_filter();
        task.tell = shared.line_callback(job);
        task.notes = Some(run.notes_path());
        let ended = process::run_process(task, |handle| shared.attach_process(key, handle));
        match ended.how {
            ProcessOutcome::Stopped => None,
            ProcessOutcome::Exited(0) => Some((true, ended.tail)),
            how => Some((false, format!("{}\n{}", ended.tail, how.message()))),
        }
    }

    fn check_file(&self, path: &str) -> (bool, String) {
        match self.open_file(path) {
            Ok(FileOrFolder::File(_, mark)) => (true, format!("{} bytes", mark.size)),
            Ok(FileOrFolder::Folder(_)) => (true, "a folder".to_owned()),
            Err(error) => (false, error.why.to_string()),
        }
    }

    /// Opens a file in the workspace, or else in the folder where a read-only worker leaves its files.
    fn open_file(&self, path: &str) -> Result<FileOrFolder, FilePathError> {
        match self.ground.folder.open_existing(path) {
            Err(error) if error.is_missing() => self.ground.own_files.open_existing(path),
            other => other,
        }
    }

    fn check_changed(&self, pattern: &str) -> (bool, String) {
        let pattern = PathPattern::new(pattern);
        let now = FileSurvey::scan_folder(&self.ground.folder, std::slice::from_ref(&pattern), &self.without);
        let now = match now {
            Ok(now) => now,
            Err(error) => return (false, error.to_string()),
        };
        let changed = self.before.files.compare_with(&now);
        let changed: Vec<String> =
            changed.into_iter().map(|(path, _)| path).filter(|path| pattern.matches(path)).collect();
        match changed.is_empty() {
            true => (false, "no matching file has changed".to_owned()),
            false => (true, summarize_names(changed.into_iter())),
        }
    }

    fn check_schema(&self, path: &str, of: &str) -> Result<(), String> {
        let schema = match self.before.schemas.get(path) {
            Some(schema) => schema.clone()?,
            None => return Err(format!("`{path}` did not exist before the step")),
        };
        let root = match self.ground.folder.entry_kind(of) {
            Ok(None) => &self.ground.own_files,
            _ => &self.ground.folder,
        };
        let value = read_json(root, of)?;
        Schema::new(schema).check(&value).map_err(|error| error.to_string())
    }
}

impl EvidenceBaseline {
    /// The baseline from before the first attempt of the step. It is kept, so that later attempts compare with the
    /// same.
    fn load_or_take(
        AttemptContext { job, run, .. }: &AttemptContext,
        folder: &RootFolder,
        without: &[FileIdentity],
    ) -> Result<EvidenceBaseline, StageError> {
        let kept = run.baseline_folder().map_err(non_retryable)?;
        let StepAt(InstanceIx(instance), step) = job.attempt.at;
        let name = format!("{instance}.{step}.{}.evidence.json", job.attempt.visit);
        let known = kept.read_file(&name, limits::SURVEY_BYTES).ok();
        if let Some(before) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(before);
        }
        let schema = |evidence: &Evidence| match evidence {
            Evidence::Schema { path, .. } => Some((path.clone(), read_json(folder, path))),
            _ => None,
        };
        let pattern = |evidence: &Evidence| match evidence {
            Evidence::Changed(pattern) => Some(PathPattern::new(pattern)),
            _ => None,
        };
        let patterns: Vec<PathPattern> = job.evidence.iter().filter_map(pattern).collect();
        let before = EvidenceBaseline {
            schemas: job.evidence.iter().filter_map(schema).collect(),
            files: FileSurvey::scan_folder(folder, &patterns, without).map_err(non_retryable)?,
        };
        let bytes = serde_json::to_vec(&before).expect("what was before is JSON");
        kept.replace_file(&name, &bytes).map_err(non_retryable)?;
        Ok(before)
    }
}

fn read_json(root: &RootFolder, path: &str) -> Result<Value, String> {
    let bytes = root.read_file(path, limits::VALUE_BYTES as u64).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("`{path}` is not JSON: {error}"))
}

/// The end of a text, up to the length that is kept.
fn keep_tail(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().rev().nth(limits::FOUND_CHARS - 1) {
        Some((start, _)) => text[start..].to_owned(),
        None => text.to_owned(),
    }
}

/// The maximum number of reasons or fingerprints; further ones are dropped.
const ITEMS: usize = 200;
const ITEM_CHARACTERS: usize = 240;
/// The maximum length of a line that can be a JSON decision.
const LINE_BYTES: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CheckVerdict {
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

    pub(super) fn into_end(self) -> AttemptEnd {
        let CheckVerdict { finding, reasons, fingerprints, output } = self;
        let finding = finding.unwrap_or(CheckFinding::Undecided);
        // Work that is complete is not continued, so its output is not needed.
        let output = output.filter(|_| finding != CheckFinding::Complete);
        AttemptEnd::Checked { finding, reasons, fingerprints, output }
    }
}

/// Reads the decision of an agent: from the file first, then from the end of its output.
pub(super) fn read_agent_verdict(file: Option<&str>, said: &str, check: &str) -> CheckVerdict {
    if let Some(text) = file {
        return parse_decision_file(text, check);
    }
    let json =
        said.lines().rev().filter(|line| line.len() <= LINE_BYTES).find_map(|line| parse_json_decision(line, check));
    json.unwrap_or_else(|| CheckVerdict::from_words(find_marker(said), said))
}

/// Reads the decision of a script: 0 is complete, 1 is incomplete, anything else is no decision. The file adds reasons;
/// the output is kept with them.
pub(super) fn read_script_verdict(status: i32, file: Option<&str>, printed: &str, check: &str) -> Option<CheckVerdict> {
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
pub(crate) struct ConvergenceGuard {
    pub convergence: ConvergencePolicy,
    /// Ignored patterns, beside the state folder.
    ignored: Vec<String>,
}

impl ConvergenceGuard {
    /// The guard of a check, or `None` if it has no limits. Files of the context folder do not count.
    pub(crate) fn for_convergence(
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
    pub(crate) fn judge(&self, end: AttemptEnd, changed: &[String], state: Option<&Path>) -> AttemptEnd {
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
