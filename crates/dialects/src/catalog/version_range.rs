//! Ranges of versions as npm writes them: `^1.2`, `~1.2.3`, `1.x`, `>=1 <3`, `1.0 - 2.0`, and any of these with `||`.

/// The three numbers of a version, without pre-release and build.
type VersionNumber = (u64, u64, u64);

/// A union of half-open intervals of versions: the lower bound is included, the upper one is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange(Vec<(VersionNumber, Option<VersionNumber>)>);

impl VersionRange {
    /// Returns None for a text that is not a range.
    pub fn parse(text: &str) -> Option<VersionRange> {
        text.split("||").map(|part| parse_comparisons(part.trim())).collect::<Option<Vec<_>>>().map(VersionRange)
    }

    /// True if a version is in the range. A text that is not a version is in none.
    pub fn contains(&self, version: &str) -> bool {
        let Some((version, _)) = parse_partial_version(version) else { return false };
        self.0.iter().any(|(from, to)| *from <= version && to.is_none_or(|to| version < to))
    }
}

/// Parses comparisons that must all hold.
fn parse_comparisons(text: &str) -> Option<(VersionNumber, Option<VersionNumber>)> {
    if let Some((from, to)) = text.split_once(" - ") {
        let ((from, _), (to, given)) = (parse_partial_version(from.trim())?, parse_partial_version(to.trim())?);
        return Some((from, upper_bound(to, given)));
    }
    // There may be a space between an operator and its number.
    let mut joined = text.to_owned();
    for sign in [">= ", "<= ", "> ", "< ", "= ", "^ ", "~ "] {
        joined = joined.replace(sign, sign.trim_end());
    }
    let (mut from, mut to) = ((0, 0, 0), None::<VersionNumber>);
    for word in joined.split_whitespace() {
        let (low, high) = parse_comparison(word)?;
        from = from.max(low);
        to = match (to, high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Some((from, to))
}

fn parse_comparison(word: &str) -> Option<(VersionNumber, Option<VersionNumber>)> {
    let zero = (0, 0, 0);
    let read = |sign: &str| word.strip_prefix(sign).map(parse_partial_version);
    if let Some(version) = read(">=") {
        return Some((version?.0, None));
    }
    if let Some(version) = read("<=") {
        let (version, given) = version?;
        return Some((zero, upper_bound(version, given)));
    }
    if let Some(version) = read(">") {
        let (version, given) = version?;
        return Some((upper_bound(version, given)?, None));
    }
    if let Some(version) = read("<") {
        return Some((zero, Some(version?.0)));
    }
    if let Some(version) = read("~") {
        let (version, given) = version?;
        return Some((version, upper_bound(version, given.min(2))));
    }
    if let Some(version) = read("^") {
        let (version, given) = version?;
        // Versions below 1.0.0 have narrower compatibility.
        let kept = match version {
            (0, 0, _) if given >= 3 => 3,
            (0, _, _) if given >= 2 => 2,
            _ => given.min(1),
        };
        return Some((version, upper_bound(version, kept)));
    }
    let (version, given) = parse_partial_version(word.strip_prefix('=').unwrap_or(word))?;
    Some((version, upper_bound(version, given)))
}

/// Returns the first version that differs in the first `given` numbers. None if there is no such version.
fn upper_bound((major, minor, patch): VersionNumber, given: usize) -> Option<VersionNumber> {
    match given {
        0 => None,
        1 => Some((major.checked_add(1)?, 0, 0)),
        2 => Some((major, minor.checked_add(1)?, 0)),
        _ => Some((major, minor, patch.checked_add(1)?)),
    }
}

/// Parses a version whose last numbers may be absent, `x` or `*`. Also returns the count of its numbers.
fn parse_partial_version(text: &str) -> Option<(VersionNumber, usize)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let plain = text.split(['-', '+']).next()?;
    let mut numbers = [0; 3];
    let mut given = 0;
    let parts: Vec<&str> = if plain.is_empty() { Vec::new() } else { plain.split('.').collect() };
    if parts.len() > numbers.len() {
        return None;
    }
    let is_any = |part: &&str| matches!(*part, "x" | "X" | "*");
    let numbered = parts.iter().take_while(|part| !is_any(part)).count();
    // No number may follow a wildcard.
    if !parts[numbered..].iter().all(is_any) {
        return None;
    }
    for part in &parts[..numbered] {
        let number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
        numbers[given] = number;
        given += 1;
    }
    Some(((numbers[0], numbers[1], numbers[2]), given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_npm_says() {
        for (range, inside, outside) in [
            ("*", &["0.0.1", "9.9.9"][..], &[][..]),
            ("", &["1.0.0"], &[]),
            ("1", &["1.0.0", "1.9.3"], &["2.0.0", "0.9.9"]),
            ("1.x", &["1.0.0", "1.9.3"], &["2.0.0"]),
            ("1.2", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("=1.2.3", &["1.2.3"], &["1.2.4"]),
            ("^1.2.3", &["1.2.3", "1.9.0"], &["1.2.2", "2.0.0"]),
            ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0"]),
            ("^0.0.3", &["0.0.3"], &["0.0.4"]),
            ("~1.2.3", &["1.2.3", "1.2.9"], &["1.3.0"]),
            ("~1", &["1.0.0", "1.9.0"], &["2.0.0"]),
            (">=1 <3", &["1.0.0", "2.9.9"], &["3.0.0", "0.1.0"]),
            (">1.2 <= 2.0.0", &["1.3.0", "2.0.0"], &["1.2.9", "2.0.1"]),
            ("1.0 - 2.0", &["1.0.0", "2.0.5"], &["2.1.0"]),
            ("^1 || ^3", &["1.1.1", "3.0.0"], &["2.0.0"]),
        ] {
            let read = VersionRange::parse(range).unwrap();
            assert!(inside.iter().all(|version| read.contains(version)), "{range}");
            assert!(!outside.iter().any(|version| read.contains(version)), "{range}");
        }
        for wrong in ["one", "1.2.3.4", "^x.y", ">=1 nothing"] {
            assert_eq!(VersionRange::parse(wrong), None, "{wrong}");
        }
    }
}
