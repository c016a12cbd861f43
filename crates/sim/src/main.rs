//! Runs seeds for a while, and says what occurred.

use std::time::{Duration, Instant};

use skein_sim::{coverage::Coverage, script, simulate};

fn main() {
    let mut seconds = 10;
    let mut first = 1;
    let mut one = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse::<u64>().ok());
        match (arg.as_str(), value) {
            ("--seconds", Some(n)) => seconds = n,
            ("--from", Some(n)) => first = n,
            ("--seed", Some(n)) => one = Some(n),
            _ => {
                eprintln!("usage: skein-sim [--seconds N] [--from SEED] [--seed SEED]");
                std::process::exit(2);
            }
        }
    }
    if let Some(seed) = one {
        report(seed);
        return;
    }
    let begin = Instant::now();
    let (mut runs, mut events, mut failed) = (0u64, 0u64, 0u64);
    let mut coverage = Coverage::default();
    let mut seed = first;
    while begin.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..100 {
            if std::env::var_os("SIM_TRACE").is_some() {
                eprintln!("{seed}");
            }
            let finished = simulate::run(seed);
            runs += 1;
            events += finished.events;
            coverage.add(&finished.coverage);
            if let Some(violation) = &finished.violation {
                failed += 1;
                if failed <= 15 {
                    println!("seed {seed}: {violation}");
                }
            }
            seed += 1;
        }
    }
    let took = begin.elapsed().as_secs_f64();
    println!("{runs} runs, {events} events, {:.0} runs/s, {failed} violations", runs as f64 / took);
    let (seen, all) = coverage.pairs();
    println!("{seen} of {all} pairs");
    println!("missing pairs: {:?}", coverage.missing_pairs());
    println!("missing points: {:?}", coverage.missing_points());
}

fn report(seed: u64) {
    let setup = simulate::setup(seed);
    let plan = setup.plan.clone();
    let finished = simulate::run(seed);
    println!("{}", serde_json::to_string_pretty(&plan.definition.root().workflow).unwrap_or_default());
    for record in finished.rows.iter().flat_map(|row| &row.records) {
        println!("{} {}", record.at.0, serde_json::to_string(&record.event).unwrap_or_default());
    }
    println!("violation: {:?}", finished.violation);
    if let Some((moves, violation)) = script::shrink(&plan, finished.moves) {
        println!("shrunk to {} moves: {violation}", moves.len());
        for each in moves {
            println!("{}", serde_json::to_string(&each).unwrap_or_default());
        }
    }
}
