//! When two findings of a check are the same finding.

use std::collections::BTreeSet;

use crate::plan::ContentHash;

/// What identifies a finding: its fingerprints, or its reasons where it has none. None: it cannot be compared.
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
