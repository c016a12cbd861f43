//! The form of a request in a recording: placeholders for paths of this machine and the id of this run, and the
//! difference between two requests in a few lines.

use std::path::Path;

use serde_json::Value;

/// The replaced texts with their placeholders. A longer text comes before a shorter one that it may contain.
#[derive(Debug, Clone)]
pub struct PathPlaceholders(Vec<(String, String)>);

impl PathPlaceholders {
    /// Creates the placeholders in the order of the names: of two equal paths, the first gets the placeholder.
    pub fn new(all: &[(&str, &Path)], run: &str) -> PathPlaceholders {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let texts = all.iter().filter_map(|(name, path)| Some((*name, path.to_str()?)));
        for (name, text) in texts.chain([("run", run)]) {
            // The root path is a part of every path.
            if text.len() > 1 && !pairs.iter().any(|(known, _)| known == text) {
                pairs.push((text.to_owned(), format!("<skein:{name}>")));
            }
        }
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        PathPlaceholders(pairs)
    }

    pub fn hide_in_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (place, word)| text.replace(place, word))
    }

    pub fn show_in_text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (place, word)| text.replace(word, place))
    }

    /// Returns a value with all its texts replaced.
    pub fn hide_in_value(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.hide_in_text(text))
    }

    pub fn show_in_value(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.show_in_text(text))
    }

    /// Replaces texts in the content of a file. Content that is not UTF-8 stays as it is.
    pub fn hide_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        String::from_utf8(bytes).map_or_else(|error| error.into_bytes(), |text| self.hide_in_text(&text).into_bytes())
    }

    pub fn show_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        String::from_utf8(bytes).map_or_else(|error| error.into_bytes(), |text| self.show_in_text(&text).into_bytes())
    }
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (change(name), map_texts(value, change))).collect())
        }
        other => other.clone(),
    }
}

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
            names.retain(|name| !path.is_empty() || *name != crate::recording::HASH);
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let value = |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or_default();
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
    fn places_go_and_come_back_wherever_they_are() {
        let at = |base: &str, run: &str| {
            let work = format!("{base}/work");
            PathPlaceholders::new(
                &[("state", Path::new(&format!("{work}/.skein"))), ("workspace", Path::new(&work))],
                run,
            )
        };
        let (here, there) = (at("/home/ada", "k3f9"), at("/build", "zz11"));
        let value = json!({"see /home/ada/work": ["/home/ada/work/.skein/x of k3f9", 7]});
        let hidden = here.hide_in_value(&value);
        assert_eq!(hidden, json!({"see <skein:workspace>": ["<skein:state>/x of <skein:run>", 7]}));
        assert_eq!(there.show_in_value(&hidden), json!({"see /build/work": ["/build/work/.skein/x of zz11", 7]}));
        assert_eq!(here.hide_bytes(vec![0xff, 0]), [0xff, 0]);
    }
}

#[cfg(test)]
mod request_diff_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_different_is_told() {
        let before = json!({"inputs": {"a": 1, "b": 2}, "instructions": ["One.", "Two.", "Three."]});
        assert_eq!(diff_requests(&before, &before), None);
        let now = json!({"inputs": {"a": 1, "c": 3}, "instructions": ["One.", "Too.", "Three."]});
        let told = diff_requests(&before, &now).unwrap();
        let lines =
            "inputs.b:\n- 2\n+ (nothing)\ninputs.c:\n- (nothing)\n+ 3\ninstructions, from 2 on:\n- Two.\n+ Too.";
        assert_eq!(told, lines);
        let long = json!({"text": vec!["x"; 100]});
        assert!(diff_requests(&long, &json!({"text": []})).unwrap().ends_with("and 89 more lines"));
    }
}
