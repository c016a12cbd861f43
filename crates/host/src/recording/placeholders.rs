//! Placeholders in a recording for paths of this machine and the id of this run.

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
        String::from_utf8(bytes)
            .map_or_else(|error| error.into_bytes(), |text| self.hide_in_text(&text).into_bytes())
    }

    pub fn show_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        String::from_utf8(bytes)
            .map_or_else(|error| error.into_bytes(), |text| self.show_in_text(&text).into_bytes())
    }
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_texts(item, change)).collect(),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (change(name), map_texts(value, change))).collect(),
        ),
        other => other.clone(),
    }
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
        assert_eq!(
            there.show_in_value(&hidden),
            json!({"see /build/work": ["/build/work/.skein/x of zz11", 7]})
        );
        assert_eq!(here.hide_bytes(vec![0xff, 0]), [0xff, 0]);
    }
}
