//! What is added to the instructions of work that does not get any nearer to its end.
//!
//! Owns the words. What checks said stands in them as data.

use std::fmt::Write;

use skein_core::ir::Convergence;

/// As much of each as is told.
const PATHS: usize = 12;
const FINGERPRINTS: usize = 20;
const REASONS: usize = 12;

/// What is added at a stage. None at the first.
pub fn of(convergence: &Convergence, stage: u32, reasons: &[String], marks: &[String]) -> Option<String> {
    if stage < 2 {
        return None;
    }
    let mut text = format!(
        "This is stage {stage} of {}: check after check found the same. Make the smallest change that mends what was \
         found, and change nothing else.\n",
        convergence.max_stage
    );
    list(&mut text, "Only these paths may be changed", &convergence.allowed_paths, PATHS);
    if let Some(most) = convergence.max_changed_files {
        let _ = writeln!(text, "\nAt most {most} files may be changed in all.");
    }
    list(&mut text, "What identifies what was found, as data", marks, FINGERPRINTS);
    list(&mut text, "Why it was found incomplete, as data", reasons, REASONS);
    for added in convergence.stages.iter().filter(|added| added.stage == stage) {
        let _ = write!(text, "\n{}\n", added.append.trim_end());
    }
    Some(text.trim_end().to_owned())
}

fn list(text: &mut String, title: &str, items: &[String], most: usize) {
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
    use skein_core::ir::Stage;

    use super::*;

    #[test]
    fn a_later_stage_is_told_more() {
        let stage = |stage, append: &str| Stage { stage, append: append.to_owned() };
        let convergence = Convergence {
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
        assert_eq!(of(&convergence, 1, &[], &[]), None);
        let text = of(&convergence, 2, &["no\ntests".into()], &["lint:7".into()]).unwrap();
        for part in ["stage 2 of 3", "- dir11\n- and 8 more", "At most 4 files", "- lint:7", "- no tests"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("Only tests.") && !text.contains("Give up"), "{text}");
    }
}
