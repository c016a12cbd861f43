//! Comparison of the findings of a completion check, to detect a stall.

use std::collections::BTreeSet;

use crate::plan::ContentHash;

/// Hashes a finding: its fingerprints, or its reasons if it has none. Returns `None` if the finding cannot be compared.
pub(super) fn hash_finding(reasons: &[String], fingerprints: &[String]) -> Option<ContentHash> {
    let (kind, notes) =
        if fingerprints.is_empty() { ("reason", reasons) } else { ("fingerprint", fingerprints) };
    let notes: BTreeSet<&str> =
        notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).collect();
    (!notes.is_empty()).then(|| ContentHash::hash_json(&(kind, notes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            hash_finding(&[], &words(&["b", "a", "a "])),
            hash_finding(&words(&["other"]), &words(&["a", "b"]))
        );
        assert_ne!(hash_finding(&words(&["a"]), &[]), hash_finding(&[], &words(&["a"])));
        assert_eq!(hash_finding(&words(&[" "]), &[]), None);
    }
}
