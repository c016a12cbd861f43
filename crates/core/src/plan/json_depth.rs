//! The nesting depth of a value as JSON, without writing it.
//!
//! Counts the levels that `serde_json` would write: an array or an object is a level, and so is the object around a
//! variant with contents.

use std::fmt;

use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

/// Returns the levels of arrays and objects of a value.
pub(super) fn measure_json_depth<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut depth = JsonDepth { now: 0, deepest: 0 };
    value.serialize(&mut depth).expect("what is measured serialises to JSON");
    depth.deepest
}

struct JsonDepth {
    now: usize,
    deepest: usize,
}

impl JsonDepth {
    fn open(&mut self, levels: usize) -> OpenLevels<'_> {
        self.now += levels;
        self.deepest = self.deepest.max(self.now);
        OpenLevels { depth: self, levels }
    }
}

/// An array or an object that is being measured, and its number of levels.
struct OpenLevels<'a> {
    depth: &'a mut JsonDepth,
    levels: usize,
}

impl OpenLevels<'_> {
    fn close(self) -> Result<(), fmt::Error> {
        self.depth.now -= self.levels;
        Ok(())
    }
}

/// Values without levels.
macro_rules! flat {
    ($($method:ident($($given:ty),*);)*) => {
        $(fn $method(self, $(_: $given),*) -> Result<(), fmt::Error> { Ok(()) })*
    };
}

impl<'a> Serializer for &'a mut JsonDepth {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = OpenLevels<'a>;
    type SerializeTuple = OpenLevels<'a>;
    type SerializeTupleStruct = OpenLevels<'a>;
    type SerializeTupleVariant = OpenLevels<'a>;
    type SerializeMap = OpenLevels<'a>;
    type SerializeStruct = OpenLevels<'a>;
    type SerializeStructVariant = OpenLevels<'a>;

    flat! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
        serialize_str(&str);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), fmt::Error> {
        Ok(())
    }

    /// Bytes are an array of numbers.
    fn serialize_bytes(self, _: &[u8]) -> Result<(), fmt::Error> {
        self.open(1).close()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        let inside = self.open(1);
        value.serialize(&mut *inside.depth)?;
        inside.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(1))
    }

    fn serialize_tuple(self, _: usize) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(1))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(1))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(2))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(1))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(1))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<OpenLevels<'a>, fmt::Error> {
        Ok(self.open(2))
    }
}

/// Items of arrays.
macro_rules! items {
    ($($of:ident $method:ident;)*) => { $(
        impl $of for OpenLevels<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
                value.serialize(&mut *self.depth)
            }

            fn end(self) -> Result<(), fmt::Error> {
                self.close()
            }
        }
    )* };
}

items! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

/// Fields of objects.
macro_rules! fields {
    ($($of:ident)*) => { $(
        impl $of for OpenLevels<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), fmt::Error> {
                value.serialize(&mut *self.depth)
            }

            fn end(self) -> Result<(), fmt::Error> {
                self.close()
            }
        }
    )* };
}

fields! { SerializeStruct SerializeStructVariant }

impl SerializeMap for OpenLevels<'_> {
    type Ok = ();
    type Error = fmt::Error;

    /// A key is text, without levels.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), fmt::Error> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        value.serialize(&mut *self.depth)
    }

    fn end(self) -> Result<(), fmt::Error> {
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
            [
                measure_json_depth(&Sort::Plain),
                measure_json_depth(&Sort::One(1)),
                measure_json_depth(&Sort::Two(1, 2))
            ],
            [0, 1, 2]
        );
        // {"Named":{"list":[{"One":1}]}}
        assert_eq!(measure_json_depth(&Sort::Named { list: vec![Sort::One(1), Sort::Plain] }), 4);
    }
}
