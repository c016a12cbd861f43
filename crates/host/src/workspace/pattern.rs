//! Patterns of paths, as convergence control writes them.
//!
//! Without a wildcard a pattern is a path and all below it. `*` is anything within one name, `**` anything at all, `?`
//! one character of a name.

/// A pattern that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
    /// Whether what is below counts, too.
    below: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Char(char),
    /// `?`
    One,
    /// `*`
    Name,
    /// `**`
    Any,
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        let text = plain(text);
        if !text.contains(['*', '?']) {
            let parts = text.trim_end_matches('/').chars().map(Part::Char).collect();
            return Pattern { parts, below: true };
        }
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => Part::Any,
                '*' => Part::Name,
                '?' => Part::One,
                c => Part::Char(c),
            });
        }
        Pattern { parts, below: false }
    }

    /// A pattern that is one path and all below it, whatever characters are in the path.
    pub fn literal(path: &str) -> Pattern {
        Pattern { parts: path.chars().map(Part::Char).collect(), below: true }
    }

    /// The pattern as it is written.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Char(c) => text.push(*c),
                Part::One => text.push('?'),
                Part::Name => text.push('*'),
                Part::Any => text.push_str("**"),
            }
        }
        text
    }

    /// The path below which everything is that the pattern can mean.
    pub fn start(&self) -> String {
        let literal: String = self
            .parts
            .iter()
            .map_while(|part| match part {
                Part::Char(c) => Some(*c),
                _ => None,
            })
            .collect();
        match (self.below, literal.rfind('/')) {
            (true, _) => literal,
            (false, Some(end)) => literal[..end].to_owned(),
            (false, None) => String::new(),
        }
    }

    /// Whether it means all that is below where it starts.
    pub fn is_whole(&self) -> bool {
        let (start, parts) = (self.start().chars().count(), self.parts.as_slice());
        self.below || start > 0 && matches!(parts[start..], [Part::Char('/'), Part::Any])
    }

    /// The number of folders that everything it means is in. None: it means things at any depth.
    pub fn depth(&self) -> Option<usize> {
        let deep = self.below || self.parts.contains(&Part::Any);
        (!deep).then(|| self.parts.iter().filter(|part| **part == Part::Char('/')).count())
    }

    /// Whether a path is what the pattern means. Takes as long as both are long, whatever they are.
    pub fn matches(&self, path: &str) -> bool {
        let path = plain(path);
        let mut at = vec![false; self.parts.len() + 1];
        at[0] = true;
        self.skip(&mut at);
        let end = self.parts.len();
        for c in path.chars() {
            if self.below && at[end] && c == '/' {
                return true;
            }
            let mut next = vec![false; at.len()];
            for (i, part) in self.parts.iter().enumerate().filter(|(i, _)| at[*i]) {
                match part {
                    Part::Char(wanted) if *wanted == c => next[i + 1] = true,
                    Part::One if c != '/' => next[i + 1] = true,
                    Part::Name if c != '/' => next[i] = true,
                    Part::Any => next[i] = true,
                    _ => {}
                }
            }
            self.skip(&mut next);
            at = next;
        }
        // No path at all means the whole workspace.
        at[end] || self.below && self.parts.is_empty()
    }

    /// Stars may stand for nothing.
    fn skip(&self, at: &mut [bool]) {
        for (i, part) in self.parts.iter().enumerate() {
            if at[i] && matches!(part, Part::Name | Part::Any) {
                at[i + 1] = true;
            }
        }
    }
}

/// A path with one kind of slash, that begins with a name.
fn plain(text: &str) -> String {
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
            let read = Pattern::new(pattern);
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
            let read = Pattern::new(pattern);
            assert_eq!((read.start().as_str(), read.is_whole()), (start, whole), "{pattern}");
            assert_eq!(Pattern::new(&read.text()), read, "{pattern}");
        }
    }

    /// Many stars make other matchers try everything.
    #[test]
    fn a_wild_pattern_takes_no_longer() {
        let pattern = Pattern::new(&"*a**".repeat(200));
        assert!(!pattern.matches(&"b".repeat(4_000)));
    }
}
