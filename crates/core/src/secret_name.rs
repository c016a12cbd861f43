//! The two names of a secret: `STRIPE_API_KEY` where a worker is given it, `stripe-api-key` where it is described.

/// The environment variable.
pub fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// The name in files that describe it.
pub fn slug(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_the_other_in_another_place() {
        assert_eq!(variable("stripe-api-key"), "STRIPE_API_KEY");
        assert_eq!(slug("STRIPE_API_KEY"), "stripe-api-key");
        assert_eq!(
            (variable("STRIPE_API_KEY"), slug("stripe-api-key")),
            (variable("stripe-api-key"), slug("STRIPE_API_KEY"))
        );
    }
}
