//! The reference on generated workflows. `rules` tests each rule.

mod rules;

use std::collections::BTreeMap;

use skein_core::plan;

use super::*;
use crate::{
    generate::{WorkflowSize, generate_workflow},
    outcome::{LuckLevel, SeededWorld},
};

fn generated(seed: u64) -> Plan {
    let made = generate_workflow(seed, WorkflowSize::small());
    let checked = plan::check_workflow(made.workflow, &made.library);
    checked.definition.unwrap().bind(made.parameters).unwrap()
}

#[test]
fn a_good_share_of_runs_has_one_result() {
    const SEEDS: u64 = 2_000;
    let mut races: BTreeMap<TimingRace, u32> = BTreeMap::new();
    let mut ends: BTreeMap<RunStatus, u32> = BTreeMap::new();
    let mut undone = 0;
    for seed in 0..SEEDS {
        match evaluate_plan(&generated(seed), &SeededWorld { seed, luck: LuckLevel::Usual }) {
            Ok(expected) => {
                *ends.entry(expected.status).or_default() += 1;
                undone += expected.undone.len();
            }
            Err(race) => *races.entry(race).or_default() += 1,
        }
    }
    let good: u32 = ends.values().sum();
    println!("{ends:?} {races:#?}");
    assert!(u64::from(good) * 100 >= SEEDS * 40, "{good} {ends:?} {races:#?}");
    assert!(ends.len() >= 5 && undone > 20, "{ends:?} {undone}");
}

#[test]
fn an_evaluation_is_the_same_every_time() {
    for seed in 0..200 {
        let world = SeededWorld { seed, luck: LuckLevel::Rough };
        assert_eq!(evaluate_plan(&generated(seed), &world), evaluate_plan(&generated(seed), &world));
    }
}

#[test]
fn anything_matches_anything_and_nothing_else_does() {
    use serde_json::json;
    assert!(matches_expected(&json!({"a": ANYTHING, "b": [1]}), &json!({"a": {"x": 1}, "b": [1]})));
    assert!(!matches_expected(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
    assert!(!matches_expected(&json!([1, 2]), &json!([1])));
}
