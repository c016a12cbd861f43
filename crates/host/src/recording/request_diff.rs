//! The difference between two requests, in a few lines.

use serde_json::Value;

/// The maximum number of lines.
const LINES: usize = 12;
/// The maximum number of characters of one value.
const WIDEST: usize = 160;

/// Describes the difference between the recorded request and the new one. Returns `None` if they are equal.
pub fn diff_requests(recorded: &Value, asked: &Value) -> Option<String> {
    let mut lines = Vec::new();
    compare_values("", recorded, asked, &mut lines);
    if lines.is_empty() {
        return None;
    }
    let more = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    if more > 0 {
        lines.push(format!("and {more} more lines"));
    }
    Some(lines.join("\n"))
}

fn compare_values(path: &str, recorded: &Value, asked: &Value, lines: &mut Vec<String>) {
    match (recorded, asked) {
        _ if recorded == asked => {}
        (Value::Object(before), Value::Object(now)) => {
            let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
            names.sort();
            names.dedup();
            // A different hash is not informative.
            names.retain(|name| !path.is_empty() || *name != super::HASH);
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let value =
                    |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or_default();
                compare_values(&path, &value(before), &value(now), lines);
            }
        }
        // A text is recorded as a list of its lines.
        (Value::Array(before), Value::Array(now)) => {
            let same = before.iter().zip(now).take_while(|(a, b)| a == b).count();
            let ends = before[same..].iter().rev().zip(now[same..].iter().rev());
            let end = ends.take_while(|(a, b)| a == b).count();
            lines.push(format!("{path}, from {} on:", same + 1));
            let shown = |sign: &str, items: &[Value]| {
                items.iter().map(|item| format!("{sign} {}", shorten_value(item))).collect::<Vec<_>>()
            };
            lines.extend(shown("-", &before[same..before.len() - end]));
            lines.extend(shown("+", &now[same..now.len() - end]));
        }
        _ => {
            lines.push(format!("{path}:"));
            lines.push(format!("- {}", shorten_value(recorded)));
            lines.push(format!("+ {}", shorten_value(asked)));
        }
    }
}

fn shorten_value(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "(nothing)".to_owned(),
        other => other.to_string(),
    };
    let shown: String = text.chars().take(WIDEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_different_is_told() {
        let before = json!({"inputs": {"a": 1, "b": 2}, "instructions": ["One.", "Two.", "Three."]});
        assert_eq!(diff_requests(&before, &before), None);
        let now = json!({"inputs": {"a": 1, "c": 3}, "instructions": ["One.", "Too.", "Three."]});
        let told = diff_requests(&before, &now).unwrap();
        let lines = "inputs.b:\n- 2\n+ (nothing)\ninputs.c:\n- (nothing)\n+ 3\ninstructions, from 2 on:\n- Two.\n+ Too.";
        assert_eq!(told, lines);
        let long = json!({"text": vec!["x"; 100]});
        assert!(diff_requests(&long, &json!({"text": []})).unwrap().ends_with("and 89 more lines"));
    }
}
