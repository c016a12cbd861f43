//! The nesting depth of a value as JSON, without keeping the JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Returns the levels of arrays and objects of a value.
pub(super) fn measure_json_depth<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut depth = JsonDepth::default();
    let mut serializer = Serializer::with_formatter(io::sink(), &mut depth);
    value.serialize(&mut serializer).expect("what is measured serialises to JSON");
    depth.deepest
}

/// Counts levels as they are opened and closed.
#[derive(Default)]
struct JsonDepth {
    now: usize,
    deepest: usize,
}

impl JsonDepth {
    fn open(&mut self) -> io::Result<()> {
        self.now += 1;
        self.deepest = self.deepest.max(self.now);
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.now -= 1;
        Ok(())
    }
}

impl Formatter for &mut JsonDepth {
    fn begin_array<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.open()
    }

    fn end_array<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.close()
    }

    fn begin_object<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.open()
    }

    fn end_object<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::measure_json_depth;

    #[derive(serde::Serialize)]
    enum Sort {
        Plain,
        One(u8),
        Two(u8, u8),
        Named { list: Vec<Sort> },
    }

    #[test]
    fn levels_are_those_of_the_json() {
        assert_eq!(measure_json_depth(&json!("[[[")), 0);
        assert_eq!(measure_json_depth(&json!({"a": [1, {"b": []}], "c": 2})), 4);
        assert_eq!(measure_json_depth(&(1, Some("x"), json!([[1], 2]))), 3);
        assert_eq!(
            [measure_json_depth(&Sort::Plain), measure_json_depth(&Sort::One(1)), measure_json_depth(&Sort::Two(1, 2))],
            [0, 1, 2]
        );
        // {"Named":{"list":[{"One":1}]}}
        assert_eq!(measure_json_depth(&Sort::Named { list: vec![Sort::One(1), Sort::Plain] }), 4);
    }
}
