//! Measures the number of simulated runs per second on one core.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use skein_sim::simulate;

const RUNS_PER_SECOND: f64 = 5_000.0;
const ROUNDS: u64 = 5;
const SEEDS: u64 = 10_000;

fn main() -> ExitCode {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let (mut events, mut violations) = (0, 0);
        let begin = Instant::now();
        for seed in 1..=SEEDS {
            let finished = simulate::simulate_run(seed);
            events += finished.events;
            violations += u64::from(finished.violation.is_some());
        }
        let taken = begin.elapsed();
        best = best.min(taken);
        println!("{SEEDS} runs, {events} events, {violations} violations in {:.2} s", taken.as_secs_f64());
    }
    let rate = SEEDS as f64 / best.as_secs_f64();
    let passed = rate >= RUNS_PER_SECOND;
    println!("{} {rate:.0} runs/s on one core, goal {RUNS_PER_SECOND}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
