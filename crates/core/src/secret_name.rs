//! The two names of a secret: `STRIPE_API_KEY` where a worker is given it, `stripe-api-key` where it is described.

/// The environment variable.
pub fn to_variable_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// The name in files that describe it.
pub fn to_slug(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_the_other_in_another_place() {
        assert_eq!(to_variable_name("stripe-api-key"), "STRIPE_API_KEY");
        assert_eq!(to_slug("STRIPE_API_KEY"), "stripe-api-key");
        assert_eq!(
            (to_variable_name("STRIPE_API_KEY"), to_slug("stripe-api-key")),
            (to_variable_name("stripe-api-key"), to_slug("STRIPE_API_KEY"))
        );
    }
}
