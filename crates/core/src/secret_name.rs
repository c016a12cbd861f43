//! The two names of a secret: `STRIPE_API_KEY` in a worker's environment, `stripe-api-key` in files that describe it.

/// Returns the name of the environment variable.
pub fn to_variable_name(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Returns the name in files that describe the secret.
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
