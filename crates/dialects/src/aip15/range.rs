//! Ranges of versions as npm writes them: `^1.2`, `~1.2.3`, `1.x`, `>=1 <3`, `1.0 - 2.0`, and any of these with `||`.

/// A version without what comes after its three numbers.
type Version = (u64, u64, u64);

/// A range: the versions from one on up to, and without, another. Any one of them suffices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range(Vec<(Version, Option<Version>)>);

impl Range {
    /// None for a text that is no range.
    pub fn parse(text: &str) -> Option<Range> {
        text.split("||").map(|part| all_of(part.trim())).collect::<Option<Vec<_>>>().map(Range)
    }

    /// Whether a version is in it. What is no version is in none.
    pub fn holds(&self, version: &str) -> bool {
        let Some((version, _)) = partial(version) else { return false };
        self.0.iter().any(|(from, to)| *from <= version && to.is_none_or(|to| version < to))
    }
}

/// Comparisons that must all hold.
fn all_of(text: &str) -> Option<(Version, Option<Version>)> {
    if let Some((from, to)) = text.split_once(" - ") {
        let ((from, _), (to, given)) = (partial(from.trim())?, partial(to.trim())?);
        return Some((from, after(to, given)));
    }
    // A sign may stand apart from its number.
    let mut joined = text.to_owned();
    for sign in [">= ", "<= ", "> ", "< ", "= ", "^ ", "~ "] {
        joined = joined.replace(sign, sign.trim_end());
    }
    let (mut from, mut to) = ((0, 0, 0), None::<Version>);
    for word in joined.split_whitespace() {
        let (low, high) = comparison(word)?;
        from = from.max(low);
        to = match (to, high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Some((from, to))
}

fn comparison(word: &str) -> Option<(Version, Option<Version>)> {
    let zero = (0, 0, 0);
    let read = |sign: &str| word.strip_prefix(sign).map(partial);
    if let Some(version) = read(">=") {
        return Some((version?.0, None));
    }
    if let Some(version) = read("<=") {
        let (version, given) = version?;
        return Some((zero, after(version, given)));
    }
    if let Some(version) = read(">") {
        let (version, given) = version?;
        return Some((after(version, given)?, None));
    }
    if let Some(version) = read("<") {
        return Some((zero, Some(version?.0)));
    }
    if let Some(version) = read("~") {
        let (version, given) = version?;
        return Some((version, after(version, given.min(2))));
    }
    if let Some(version) = read("^") {
        let (version, given) = version?;
        // What is before 1.0.0 promises less.
        let kept = match version {
            (0, 0, _) if given >= 3 => 3,
            (0, _, _) if given >= 2 => 2,
            _ => given.min(1),
        };
        return Some((version, after(version, kept)));
    }
    let (version, given) = partial(word.strip_prefix('=').unwrap_or(word))?;
    Some((version, after(version, given)))
}

/// The first version that does not begin with so many numbers of this one. None: there is none.
fn after((major, minor, patch): Version, given: usize) -> Option<Version> {
    match given {
        0 => None,
        1 => Some((major.checked_add(1)?, 0, 0)),
        2 => Some((major, minor.checked_add(1)?, 0)),
        _ => Some((major, minor, patch.checked_add(1)?)),
    }
}

/// A version of which the end may be left out or be `x` or `*`, and how many numbers it has.
fn partial(text: &str) -> Option<(Version, usize)> {
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
    // After one that may be anything comes no number.
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
            let read = Range::parse(range).unwrap();
            assert!(inside.iter().all(|version| read.holds(version)), "{range}");
            assert!(!outside.iter().any(|version| read.holds(version)), "{range}");
        }
        for wrong in ["one", "1.2.3.4", "^x.y", ">=1 nothing"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }
}
