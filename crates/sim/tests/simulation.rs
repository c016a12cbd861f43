//! A short simulation as a test; `skein-sim` runs longer ones.

use skein_sim::simulate;

#[test]
fn no_rule_is_broken() {
    for seed in 1..1_500 {
        let finished = simulate::simulate_run(seed);
        assert_eq!(finished.violation, None, "seed {seed}: cargo run -p skein-sim -- --seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in (1..2_000).step_by(7) {
        let (first, second) = (simulate::simulate_run(seed), simulate::simulate_run(seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        let text = |finished: &skein_sim::world::SimulatedRun| serde_json::to_string(&finished.rows).unwrap();
        assert_eq!(text(&first), text(&second), "seed {seed}");
    }
}

/// Injects cancel, failure, crash and repeated undo at every index of a few runs; the command covers more.
#[test]
fn one_fault_at_every_place_breaks_no_rule() {
    for number in 0..25 {
        let total = simulate::sweep_faults(number);
        assert_eq!(total.violation, None);
        assert!(total.runs > 11, "each fault is tried until it does not strike");
    }
}
