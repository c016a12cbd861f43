//! "Did you mean": the name nearest to one that does not exist. Does not know any names.

/// Longer names are not worth comparing letter by letter.
const LONGEST: usize = 64;
/// With more names than this, a guess would cost more than it helps.
const MOST: usize = 2_000;
/// Minimum length of a prefix from which the rest of a name is guessed.
const MIN_START: usize = 3;

/// Returns a hint that names the nearest of `known`, if a typo explains the difference.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    find_closest_name(name, known).map(|name| format!("did you mean `{name}`?"))
}

/// Returns the same hint as the end of a sentence; empty if there is no nearest name.
pub fn or_did_you_mean(closest: Option<&str>) -> String {
    closest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Returns the nearest of `known`: one that starts with `name`, else one that is a typo away.
pub fn find_closest_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_lowercase();
    let letters = name.chars().count();
    let mut nearest: Option<(usize, &str)> = None;
    for known in known.take(MOST) {
        let other = known.to_lowercase();
        if letters >= MIN_START && other.starts_with(&lower) {
            return Some(known);
        }
        // Between names of one or two letters, everything is only a typo away.
        let tolerated = match letters.max(known.chars().count()) {
            ..=2 => 0,
            longest => 1 + longest / 4,
        };
        if other.len().abs_diff(lower.len()) > 4 * tolerated {
            continue;
        }
        let found = (strsim::levenshtein(&lower, &other), known);
        if found.0 <= tolerated && nearest.is_none_or(|nearest| found < nearest) {
            nearest = Some(found);
        }
    }
    nearest.map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, known: &'static [&'static str]) -> Option<&'static str> {
        find_closest_name(name, known.iter().copied())
    }

    #[test]
    fn a_slip_is_found_and_another_word_is_not() {
        let steps = &["build", "test", "deploy"];
        assert_eq!(of("biuld", steps), Some("build"));
        assert_eq!(of("Deploy", steps), Some("deploy"));
        assert_eq!(of("release", steps), None);
        assert_eq!(of("c", &["a", "b", "s1"]), None);
        assert_eq!(of("s2", &["s1", "a"]), None);
        assert_eq!(of("S1", &["s1", "a"]), Some("s1"));
        let roots = &["parameters", "stages", "env"];
        assert_eq!(of("paramters", roots), Some("parameters"));
        assert_eq!(of("Stages", roots), Some("stages"));
        assert_eq!(of("secrets", roots), None);
    }

    #[test]
    fn the_rest_of_a_name_is_guessed() {
        assert_eq!(of("param", &["env", "parameters"]), Some("parameters"));
        assert_eq!(of("pa", &["env", "parameters"]), None);
    }

    #[test]
    fn a_name_too_long_to_compare_is_left_alone() {
        let name = "x".repeat(LONGEST + 1);
        assert_eq!(find_closest_name(&name, [name.as_str()].into_iter()), None);
    }

    #[test]
    fn a_hint_reads_well() {
        assert_eq!(did_you_mean("tset", ["test"].into_iter()).as_deref(), Some("did you mean `test`?"));
        assert_eq!(or_did_you_mean(Some("test")), "; did you mean `test`?");
        assert_eq!(or_did_you_mean(None), "");
    }
}
