//! Diagnostics for a workflow before it runs: one test for each rule, named after it.

// Helpers are not marked as tests, but `unwrap` in them is test code too.
#![allow(clippy::unwrap_used)]

#[path = "plan/advice.rs"]
mod advice;
#[path = "plan/artifacts.rs"]
mod artifacts;
#[path = "plan/big.rs"]
mod big;
#[path = "plan/bind.rs"]
mod bind;
#[path = "plan/builder.rs"]
mod builder;
#[path = "plan/builder_rules.rs"]
mod builder_rules;
#[path = "plan/calls.rs"]
mod calls;
#[path = "plan/numbers.rs"]
mod numbers;
#[path = "plan/order.rs"]
mod order;
#[path = "plan/paths.rs"]
mod paths;
#[path = "plan/references.rs"]
mod references;
#[path = "plan/rulings.rs"]
mod rulings;
#[path = "plan/shape.rs"]
mod shape;
#[path = "plan/support.rs"]
mod support;
#[path = "plan/untrusted.rs"]
mod untrusted;
