//! "Did you mean": the name nearest to one that does not exist. Knows no names.

/// Longer names are not worth comparing letter by letter.
const LONGEST: usize = 64;
/// With more names than this, a guess would cost more than it helps.
const MOST: usize = 2_000;

/// A hint that names the nearest of `known`, if a slip of the fingers explains the difference.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    closest(name, known).map(|name| format!("did you mean `{name}`?"))
}

fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let tolerated = 1 + name.chars().count() / 4;
    let lower = name.to_lowercase();
    known
        .take(MOST)
        .filter(|known| known.len().abs_diff(name.len()) <= 4 * tolerated)
        .map(|known| (distance(&lower, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, known)| known)
}

/// Insertions, removals and replacements of one character between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
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
    fn a_slip_is_found_and_another_word_is_not() {
        let known = || ["build", "test", "deploy"].into_iter();
        assert_eq!(closest("biuld", known()), Some("build"));
        assert_eq!(closest("Deploy", known()), Some("deploy"));
        assert_eq!(closest("release", known()), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
