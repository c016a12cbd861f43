//! Tests the formats through the public API: sources in, definitions or diagnostics out.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod agreement;
mod aip15;
mod codes;
mod compact;
mod counted;
mod damage;
mod document;
mod examples;
mod inputs;
mod ioa;
mod misspelt;
mod names;
mod overrides;
mod project;
mod schemas;
mod yaml;
