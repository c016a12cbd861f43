//! A map from step ids to values, in the order of the ids. It is a sorted array: it is built once and then only read,
//! and for a large workflow it costs a fraction of a tree.

use std::{cmp::Ordering, ops::Index};

use crate::ids::StepId;

#[derive(Debug, Clone)]
pub struct StepIdMap<T> {
    sorted: Vec<StepIdEntry<T>>,
}

#[derive(Debug, Clone)]
struct StepIdEntry<T> {
    /// The first bytes of the id, which sort as the ids do; they nearly always suffice to distinguish two ids.
    head: u64,
    id: StepId,
    value: T,
}

impl<T> StepIdMap<T> {
    pub fn get(&self, id: impl AsRef<str>) -> Option<&T> {
        let id = id.as_ref();
        let head = key_prefix(id);
        let from = &self.sorted[self.sorted.partition_point(|named| named.head < head)..];
        let order = |named: &StepIdEntry<T>| named.head.cmp(&head).then_with(|| named.id.as_str().cmp(id));
        match from.first()? {
            first if first.id.as_str() == id => Some(&first.value),
            _ => from.binary_search_by(order).ok().map(|at| &from[at].value),
        }
    }

    pub fn contains_key(&self, id: impl AsRef<str>) -> bool {
        self.get(id).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&StepId, &T)> {
        self.sorted.iter().map(|named| (&named.id, &named.value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &StepId> {
        self.iter().map(|(id, _)| id)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

fn key_prefix(id: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(id.bytes()).for_each(|(to, byte)| *to = byte);
    u64::from_be_bytes(bytes)
}

fn compare_entries<T>(one: &StepIdEntry<T>, other: &StepIdEntry<T>) -> Ordering {
    one.head.cmp(&other.head).then_with(|| one.id.cmp(&other.id))
}

/// If an id occurs several times, its last value counts.
impl<T> FromIterator<(StepId, T)> for StepIdMap<T> {
    fn from_iter<I: IntoIterator<Item = (StepId, T)>>(all: I) -> StepIdMap<T> {
        let named = all.into_iter().map(|(id, value)| StepIdEntry { head: key_prefix(id.as_str()), id, value });
        let mut sorted: Vec<StepIdEntry<T>> = named.collect();
        sorted.sort_by(compare_entries);
        sorted.dedup_by(|later, kept| {
            let same = later.id == kept.id;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        StepIdMap { sorted }
    }
}

impl<T, Q: AsRef<str>> Index<Q> for StepIdMap<T> {
    type Output = T;

    fn index(&self, id: Q) -> &T {
        self.get(id).expect("the name is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_the_last_of_two_counts() {
        let given = ["step-number-2", "b", "step-number-1", "ab", "b", "a", "step-number-10"];
        let names: StepIdMap<u32> = given.iter().map(|id| StepId::new(id).unwrap()).zip(0..).collect();
        let keys: Vec<&str> = names.keys().map(StepId::as_str).collect();
        assert_eq!(keys, ["a", "ab", "b", "step-number-1", "step-number-10", "step-number-2"]);
        assert_eq!((names["b"], names["step-number-1"], names.get("c")), (4, 2, None));
        assert!(names.contains_key("ab") && !names.contains_key("step-number-") && names.len() == 6);
    }
}
