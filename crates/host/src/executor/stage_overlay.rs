//! The additional instructions for work that does not converge.
//!
//! Owns their wording. The results of checks appear in them as data.

use std::fmt::Write;

use skein_core::ir::ConvergencePolicy;

use crate::workspace::CheckRecord;

/// The maximum number of listed items of each kind.
const PATHS: usize = 12;
const FINGERPRINTS: usize = 20;
const REASONS: usize = 12;

/// The additional prompt text of a stage. `None` for the first stage.
pub fn stage_prompt(
    convergence: &ConvergencePolicy,
    stage: u32,
    check: Option<&CheckRecord>,
) -> Option<String> {
    if stage < 2 {
        return None;
    }
    let mut text = format!(
        "This is stage {stage} of {}: check after check found the same. Make the smallest change that mends what was \
         found, and change nothing else.\n",
        convergence.max_stage
    );
    append_list(&mut text, "Only these paths may be changed", &convergence.allowed_paths, PATHS);
    if let Some(most) = convergence.max_changed_files {
        let _ = writeln!(text, "\nAt most {most} files may be changed in all.");
    }
    if let Some(check) = check {
        append_list(&mut text, "What identifies what was found, as data", &check.fingerprints, FINGERPRINTS);
        append_list(&mut text, "Why it was found incomplete, as data", &check.reasons, REASONS);
    }
    for added in convergence.stages.iter().filter(|added| added.stage == stage) {
        let _ = write!(text, "\n{}\n", added.append.trim_end());
    }
    Some(text.trim_end().to_owned())
}

/// The maximum size of an environment variable.
const VARIABLE: usize = 100_000;

/// The instructions that a source adds at a stage, for workers without a prompt.
pub fn stage_instructions(convergence: &ConvergencePolicy, stage: u32) -> Option<String> {
    let added = convergence.stages.iter().filter(|added| added.stage == stage);
    let texts: Vec<&str> =
        added.map(|added| added.append.trim_end()).filter(|text| !text.is_empty()).collect();
    let mut text = texts.join("\n");
    text.truncate(text.floor_char_boundary(VARIABLE));
    (!text.is_empty()).then_some(text)
}

fn append_list(text: &mut String, title: &str, items: &[String], most: usize) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}:");
    for item in items.iter().take(most) {
        let line: String = item.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(text, "- {line}");
    }
    if items.len() > most {
        let _ = writeln!(text, "- and {} more", items.len() - most);
    }
}

#[cfg(test)]
mod tests {
    use skein_core::{engine::CheckFinding, ir::ConvergenceStage, time::Timestamp};

    use super::*;

    #[test]
    fn a_later_stage_is_told_more() {
        let stage = |stage, append: &str| ConvergenceStage { stage, append: append.to_owned() };
        let convergence = ConvergencePolicy {
            stall_threshold: 2,
            max_stage: 3,
            fail_on_max_stage: true,
            stages: vec![stage(2, "Only tests.\n"), stage(3, "Give up.")],
            allowed_paths: (0..20).map(|i| format!("dir{i}")).collect(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: Some(4),
        };
        assert_eq!(stage_prompt(&convergence, 1, None), None);
        let check = CheckRecord {
            at: Timestamp(0),
            iteration: 1,
            finding: CheckFinding::Incomplete,
            reasons: vec!["no\ntests".into()],
            fingerprints: vec!["lint:7".into()],
            output: None,
        };
        let text = stage_prompt(&convergence, 2, Some(&check)).unwrap();
        for part in ["stage 2 of 3", "- dir11\n- and 8 more", "At most 4 files", "- lint:7", "- no tests"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(stage_instructions(&convergence, 3).as_deref(), Some("Give up."));
        assert_eq!(stage_instructions(&convergence, 1), None);
        assert!(text.ends_with("Only tests.") && !text.contains("Give up"), "{text}");
    }
}
