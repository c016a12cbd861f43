//! Owns "did you mean": which legal name is nearest to a wrong one. Knows no names.

/// Longer names are not worth comparing letter by letter.
const MAX_NAME: usize = 64;

/// How much of a name must be there for the rest to be guessed.
const MIN_START: usize = 3;

/// The nearest of `legal`, if near enough that a slip of the fingers explains the difference.
pub(super) fn closest(name: &str, legal: &'static [&'static str]) -> Option<&'static str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    if name.len() >= MIN_START
        && let Some(longer) = legal.iter().find(|legal| legal.to_ascii_lowercase().starts_with(&lower))
    {
        return Some(longer);
    }
    let (distance, best) =
        legal.iter().map(|legal| (distance(&lower, &legal.to_ascii_lowercase()), *legal)).min()?;
    let tolerated = 1 + best.len() / 4;
    (distance <= tolerated).then_some(best)
}

/// The end of a message, for a nearest name if there is one.
pub(super) fn did_you_mean(closest: Option<&str>) -> String {
    closest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Insertions, removals and replacements of one character between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let legal: &[&str] = &["parameters", "stages", "env"];
        assert_eq!(closest("paramters", legal), Some("parameters"));
        assert_eq!(closest("Stages", legal), Some("stages"));
        assert_eq!(closest("param", legal), Some("parameters"));
        assert_eq!(closest("secrets", legal), None);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
