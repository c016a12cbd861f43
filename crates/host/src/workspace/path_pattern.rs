//! Path patterns, as convergence control uses them.
//!
//! Without a wildcard, a pattern matches a path and everything below it. `*` matches anything within one name, `**`
//! anything at all, `?` one character of a name.

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    parts: Vec<PatternPart>,
    /// True if everything below a matching path matches, too.
    below: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternPart {
    Char(char),
    /// `?`
    One,
    /// `*`
    Name,
    /// `**`
    Any,
}

impl PathPattern {
    pub(crate) fn new(text: &str) -> PathPattern {
        let text = normalize_path(text);
        if !text.contains(['*', '?']) {
            let parts = text.trim_end_matches('/').chars().map(PatternPart::Char).collect();
            return PathPattern { parts, below: true };
        }
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => PatternPart::Any,
                '*' => PatternPart::Name,
                '?' => PatternPart::One,
                c => PatternPart::Char(c),
            });
        }
        PathPattern { parts, below: false }
    }

    /// Creates a pattern for one path and everything below it, whatever characters are in the path.
    pub(crate) fn from_literal(path: &str) -> PathPattern {
        PathPattern { parts: path.chars().map(PatternPart::Char).collect(), below: true }
    }

    /// Returns the text of the pattern.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                PatternPart::Char(c) => text.push(*c),
                PatternPart::One => text.push('?'),
                PatternPart::Name => text.push('*'),
                PatternPart::Any => text.push_str("**"),
            }
        }
        text
    }

    /// Returns the path that contains everything that the pattern can match.
    pub(crate) fn literal_prefix(&self) -> String {
        let literal: String = self
            .parts
            .iter()
            .map_while(|part| match part {
                PatternPart::Char(c) => Some(*c),
                _ => None,
            })
            .collect();
        match (self.below, literal.rfind('/')) {
            (true, _) => literal,
            (false, Some(end)) => literal[..end].to_owned(),
            (false, None) => String::new(),
        }
    }

    /// True if it matches everything below its literal prefix.
    pub(crate) fn is_whole(&self) -> bool {
        let (start, parts) = (self.literal_prefix().chars().count(), self.parts.as_slice());
        self.below || start > 0 && matches!(parts[start..], [PatternPart::Char('/'), PatternPart::Any])
    }

    /// Returns the number of folders above everything that it matches, or `None` if it matches at any depth.
    pub(crate) fn depth(&self) -> Option<usize> {
        let deep = self.below || self.parts.contains(&PatternPart::Any);
        (!deep).then(|| self.parts.iter().filter(|part| **part == PatternPart::Char('/')).count())
    }

    /// True if a path matches. The time is proportional to the lengths of both, for any pattern.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let path = normalize_path(path);
        let mut at = vec![false; self.parts.len() + 1];
        at[0] = true;
        self.skip_stars(&mut at);
        let end = self.parts.len();
        for c in path.chars() {
            if self.below && at[end] && c == '/' {
                return true;
            }
            let mut next = vec![false; at.len()];
            for (i, part) in self.parts.iter().enumerate().filter(|(i, _)| at[*i]) {
                match part {
                    PatternPart::Char(wanted) if *wanted == c => next[i + 1] = true,
                    PatternPart::One if c != '/' => next[i + 1] = true,
                    PatternPart::Name if c != '/' => next[i] = true,
                    PatternPart::Any => next[i] = true,
                    _ => {}
                }
            }
            self.skip_stars(&mut next);
            at = next;
        }
        // An empty path means the whole workspace.
        at[end] || self.below && self.parts.is_empty()
    }

    /// Skips stars, which may match nothing.
    fn skip_stars(&self, at: &mut [bool]) {
        for (i, part) in self.parts.iter().enumerate() {
            if at[i] && matches!(part, PatternPart::Name | PatternPart::Any) {
                at[i + 1] = true;
            }
        }
    }
}

/// Returns a path with forward slashes that starts with a name.
fn normalize_path(text: &str) -> String {
    let text = text.trim().replace('\\', "/");
    let mut rest = text.as_str();
    loop {
        rest = match rest.strip_prefix("./").or_else(|| rest.strip_prefix('/')) {
            Some(shorter) => shorter,
            None => break if rest == "." { String::new() } else { rest.to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_is_written() {
        for (pattern, inside, outside) in [
            ("src", &["src", "src/a.rs", "./src/b/c.rs"][..], &["src2/a", "a/src", "sr"][..]),
            ("src/", &["src/a.rs"], &["source"]),
            ("./docs/a.md", &["docs/a.md", "/docs/a.md"], &["docs/b.md"]),
            ("*.md", &["a.md", ".md"], &["docs/a.md", "a.mdx"]),
            ("docs/*.md", &["docs/a.md"], &["docs/b/a.md"]),
            ("docs/**", &["docs/a.md", "docs/b/a.md"], &["docs", "doc/a"]),
            ("**/*.rs", &["a/b.rs", "a/b/c.rs"], &["b.rs", "a/b.rsx"]),
            ("a?c", &["abc", "aéc"], &["a/c", "ac"]),
            ("src\\win", &["src/win/a"], &["src/wine"]),
            (".", &["anything/at/all"], &[]),
            ("**", &["anything/at/all", "x"], &[]),
        ] {
            let read = PathPattern::new(pattern);
            for path in inside {
                assert!(read.matches(path), "{pattern} means {path}");
            }
            for path in outside {
                assert!(!read.matches(path), "{pattern} does not mean {path}");
            }
        }
    }

    #[test]
    fn it_is_known_where_to_look() {
        for (pattern, start, whole) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/", "src", true),
            ("src/**", "src", true),
            ("src/*", "src", false),
            ("a/b*/c", "a", false),
            ("**/*.lock", "", false),
            ("**", "", false),
        ] {
            let read = PathPattern::new(pattern);
            assert_eq!((read.literal_prefix().as_str(), read.is_whole()), (start, whole), "{pattern}");
            assert_eq!(PathPattern::new(&read.to_text()), read, "{pattern}");
        }
    }

    /// Many stars make a backtracking matcher slow.
    #[test]
    fn a_wild_pattern_takes_no_longer() {
        let pattern = PathPattern::new(&"*a**".repeat(200));
        assert!(!pattern.matches(&"b".repeat(4_000)));
    }
}
