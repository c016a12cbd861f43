//! Owns exact comparison of JSON numbers, without rounding either. Does not know other types.

use std::cmp::Ordering;

use serde_json::Number;

/// Compares two numbers exactly: integers up to 64 bits, fractions as the doubles they are.
pub(super) fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (as_whole(a), as_whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_whole(a, as_double(b)),
        (None, Some(b)) => compare_whole(b, as_double(a)).reverse(),
        // Neither is NaN: JSON has none.
        (None, None) => as_double(a).partial_cmp(&as_double(b)).unwrap_or(Ordering::Equal),
    }
}

/// True if the number is zero, of either sign.
pub(super) fn is_zero(n: &Number) -> bool {
    as_whole(n).map_or_else(|| as_double(n) == 0.0, |n| n == 0)
}

fn as_whole(n: &Number) -> Option<i128> {
    n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from))
}

fn as_double(n: &Number) -> f64 {
    n.as_f64().unwrap_or_default()
}

/// Compares an integer with a double. The cast drops the fraction and saturates at 128 bits, far outside of 64.
fn compare_whole(a: i128, b: f64) -> Ordering {
    let fraction = b.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal);
    a.cmp(&(b.trunc() as i128)).then(fraction.reverse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_str};

    fn order(a: &str, b: &str) -> Ordering {
        let number = |text: &str| match from_str(text).unwrap() {
            Value::Number(n) => n,
            other => panic!("{other}"),
        };
        let (a, b) = (number(a), number(b));
        assert_eq!(compare_numbers(&a, &b), compare_numbers(&b, &a).reverse());
        compare_numbers(&a, &b)
    }

    #[test]
    fn is_exact_where_doubles_round() {
        assert_eq!(order("3", "3.0"), Ordering::Equal);
        assert_eq!(order("0", "-0.0"), Ordering::Equal);
        assert_eq!(order("9007199254740993", "9007199254740992.0"), Ordering::Greater);
        assert_eq!(order("18446744073709551615", "18446744073709551616.0"), Ordering::Less);
        assert_eq!(order("9223372036854775807", "9223372036854775808.0"), Ordering::Less);
        assert_eq!(order("-9223372036854775808", "-9223372036854775808.0"), Ordering::Equal);
        assert_eq!(order("18446744073709551615", "-1"), Ordering::Greater);
        assert_eq!(order("18446744073709551615", "1e300"), Ordering::Less);
        assert_eq!(order("-5", "-1e300"), Ordering::Greater);
    }

    #[test]
    fn fractions_decide_between_neighbours() {
        assert_eq!(order("3", "3.5"), Ordering::Less);
        assert_eq!(order("-3", "-3.5"), Ordering::Greater);
        assert_eq!(order("0", "5e-324"), Ordering::Less);
        assert_eq!(order("0", "-5e-324"), Ordering::Greater);
        assert_eq!(order("0.1", "0.2"), Ordering::Less);
    }
}
