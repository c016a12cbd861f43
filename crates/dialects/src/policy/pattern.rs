//! Names with stars, as policies write them.

/// True if a name matches a pattern, in which each star stands for any text, also an empty one.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, wanted) in [
            ("mail:send", "mail:send", true),
            ("mail:send", "mail:sends", false),
            ("mail:*", "mail:send", true),
            ("mail:*", "mailer:send", false),
            ("*", "", true),
            ("tool.*", "tool.call", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("*x", "x", true),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
