//! When two findings of a check are the same finding.

use std::collections::BTreeSet;

use crate::plan::Hash;

/// What identifies a finding: its fingerprints, or its reasons where it has none. None: it cannot be compared.
pub(super) fn key(reasons: &[String], fingerprints: &[String]) -> Option<Hash> {
    let (kind, notes) =
        if fingerprints.is_empty() { ("reason", reasons) } else { ("fingerprint", fingerprints) };
    let notes: BTreeSet<&str> =
        notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).collect();
    (!notes.is_empty()).then(|| Hash::of_json(&(kind, notes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(key(&[], &words(&["b", "a", "a "])), key(&words(&["other"]), &words(&["a", "b"])));
        assert_ne!(key(&words(&["a"]), &[]), key(&[], &words(&["a"])));
        assert_eq!(key(&words(&[" "]), &[]), None);
    }
}
