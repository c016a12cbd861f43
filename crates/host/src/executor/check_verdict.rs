//! The verdict of a checker: from its decision file, a line of its output, or its exit status.
//!
//! Owns the accepted forms of a decision. Does not guess: any other form is undecided.

use serde_json::Value;
use skein_core::engine::{AttemptEnd, CheckFinding, CheckOutput};

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
    let json = said
        .lines()
        .rev()
        .filter(|line| line.len() <= LINE_BYTES)
        .find_map(|line| parse_json_decision(line, check));
    json.unwrap_or_else(|| CheckVerdict::from_words(find_marker(said), said))
}

/// Reads the decision of a script: 0 is complete, 1 is incomplete, anything else is no decision. The file adds reasons;
/// the output is kept with them.
pub fn read_script_verdict(
    status: i32,
    file: Option<&str>,
    printed: &str,
    check: &str,
) -> Option<CheckVerdict> {
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

#[cfg(test)]
mod tests {
    use skein_core::limits;

    use super::*;

    fn finding(file: Option<&str>, said: &str) -> Option<CheckFinding> {
        read_agent_verdict(file, said, "id-7").finding
    }

    #[test]
    fn the_file_wins_over_what_was_said() {
        let file = r#"{"decision": " Incomplete ", "check_id": "id-7", "reasons": ["a", " a", "", "b"], "fingerprints": "f"}"#;
        let verdict = read_agent_verdict(Some(file), "COMPLETE", "id-7");
        assert_eq!(verdict.finding, Some(CheckFinding::Incomplete));
        assert_eq!((verdict.reasons, verdict.fingerprints), (vec!["a".into(), "b".into()], vec!["f".into()]));
    }

    #[test]
    fn a_decision_for_another_check_is_none() {
        assert_eq!(finding(Some(r#"{"decision": "complete", "check_id": "id-6"}"#), "COMPLETE"), None);
        assert_eq!(finding(Some(r#"{"decision": "complete", "checkId": 7}"#), ""), None);
        let said =
            "{\"decision\": \"complete\", \"check_id\": \"id-6\"}\n{\"decision\": \"incomplete\"}\nbye";
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
        assert_eq!(
            (verdict.finding, &verdict.reasons),
            (Some(CheckFinding::Incomplete), &vec!["because".to_owned()])
        );
        assert_eq!(verdict.output, Some(CheckOutput { status: Some(1), text: "2 failed".into() }));
        let complete = read_script_verdict(0, None, "all well", "id-7").unwrap();
        assert_eq!(complete.finding, Some(CheckFinding::Complete));
        assert!(matches!(complete.into_end(), AttemptEnd::Checked { output: None, .. }));
        assert_eq!(read_script_verdict(2, None, "", "id-7"), None);
    }

    #[test]
    fn words_around_a_decision_are_kept_up_to_their_end() {
        let said =
            format!("{}\nit lacks a title\nINCOMPLETE: no title\n", "é".repeat(limits::CHECK_OUTPUT_BYTES));
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
