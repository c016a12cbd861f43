//! Owns the encoding of an object's fields as a JSON object that keeps their order and rejects duplicate keys.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};

use super::ast::Expr;

pub(super) fn serialize<S: Serializer>(fields: &[(String, Expr)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(fields.len()))?;
    for (key, expr) in fields {
        map.serialize_entry(key, expr)?;
    }
    map.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Expr)>, D::Error> {
    from.deserialize_map(FieldsVisitor)
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, Expr)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of expressions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = BTreeSet::new();
        let mut fields = Vec::new();
        while let Some((key, expr)) = map.next_entry::<String, Expr>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
            fields.push((key, expr));
        }
        Ok(fields)
    }
}
