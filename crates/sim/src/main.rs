//! The simulator command: simulates runs for a while, reports coverage, and minimizes the first broken rule.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use skein_sim::{
    coverage::Coverage,
    rule_monitor,
    simulate::{self, FaultSweepTotals},
    violation::RuleViolation,
};

const USAGE: &str = "\
usage: skein-sim [--seconds N | --runs N] [--from SEED] [--threads N] [--ci]
       skein-sim --seed SEED

Simulates runs of random workflows in a world with faults, and checks every rule after every event.
  --seconds N   duration in seconds (default: 60, unless --runs is given)
  --runs N      number of runs
  --from SEED   first seed (default: 1)
  --threads N   number of threads (default: one per core)
  --ci          also fail if something that must occur never occurred
  --seed SEED   show one run: its workflow, its events, and its minimized violation, if any";

fn main() -> ExitCode {
    match SimulatorOptions::parse(std::env::args().skip(1)) {
        Ok(SimulatorOptions { help: true, .. }) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(SimulatorOptions { seed: Some(seed), .. }) => show_run(seed),
        Ok(options) => simulate_all(&options),
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

#[derive(Debug)]
struct SimulatorOptions {
    seconds: Option<u64>,
    runs: Option<u64>,
    from: u64,
    threads: u64,
    ci: bool,
    help: bool,
    seed: Option<u64>,
}

impl SimulatorOptions {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<SimulatorOptions, String> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let mut options =
            SimulatorOptions { seconds: None, runs: None, from: 1, threads: cores, ci: false, help: false, seed: None };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--ci" => options.ci = true,
                "--help" | "-h" => options.help = true,
                _ => options.parse_number(&arg, args.next())?,
            }
        }
        Ok(options)
    }

    /// Parses an option that takes a number.
    fn parse_number(&mut self, arg: &str, value: Option<String>) -> Result<(), String> {
        let number = || {
            let text = value.ok_or(format!("{arg} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{arg} needs a number, not `{text}`"))
        };
        match arg {
            "--seconds" => self.seconds = Some(number()?),
            "--runs" => self.runs = Some(number()?),
            "--from" => self.from = number()?,
            "--threads" => self.threads = number()?.max(1),
            "--seed" => self.seed = Some(number()?),
            _ => return Err(format!("unknown option `{arg}`")),
        }
        Ok(())
    }
}
/// The combined results of all threads.
#[derive(Debug, Default)]
struct SimulationTotals {
    runs: u64,
    events: u64,
    coverage: Coverage,
    violations: BTreeMap<u64, RuleViolation>,
    /// The results of the runs with one fault at every possible point.
    everywhere: FaultSweepTotals,
}

fn simulate_all(options: &SimulatorOptions) -> ExitCode {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds.unwrap_or(60));
    let next = AtomicU64::new(options.from);
    let stop = AtomicBool::new(false);
    let work = || {
        let mut total = SimulationTotals::default();
        while !stop.load(Ordering::Relaxed) {
            let first = next.fetch_add(64, Ordering::Relaxed);
            for seed in first..first + 64 {
                let over = options.runs.is_some_and(|runs| seed >= options.from + runs);
                let late = options.runs.is_none() && Instant::now() >= end;
                if over || late {
                    return total;
                }
                simulate_seed(seed, &mut total);
            }
            stop.store(total.violations.len() >= 10, Ordering::Relaxed);
        }
        total
    };
    let mut total = SimulationTotals::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let part = thread.join().expect("a simulation does not panic");
            total.runs += part.runs;
            total.events += part.events;
            total.coverage.merge(&part.coverage);
            total.violations.extend(part.violations);
        }
    });
    let took = begin.elapsed();
    total.everywhere = sweep_plans(options.from, total.runs / 1_000);
    print_totals(options, &total, took)
}

/// Injects one fault at every possible point of some plans: one plan per thousand random runs.
fn sweep_plans(from: u64, plans: u64) -> FaultSweepTotals {
    let mut total = FaultSweepTotals::default();
    for number in from..=from + plans {
        let part = simulate::sweep_faults(number);
        total.runs += part.runs;
        total.events += part.events;
        total.violation = total.violation.or(part.violation);
    }
    total
}

fn simulate_seed(seed: u64, total: &mut SimulationTotals) {
    let finished = simulate::simulate_run(seed);
    total.runs += 1;
    total.events += finished.events;
    total.coverage.merge(&finished.coverage);
    let mut violation = finished.violation;
    if seed.is_multiple_of(64) && violation.is_none() && simulate::simulate_run(seed).trace != finished.trace {
        violation = Some("I11: the same seed gave a different history".into());
    }
    if let Some(violation) = violation {
        total.violations.insert(seed, violation);
    }
}

fn print_totals(options: &SimulatorOptions, total: &SimulationTotals, took: Duration) -> ExitCode {
    let SimulationTotals { runs, events, coverage, violations, everywhere } = total;
    let each = options.threads as f64 * took.as_secs_f64();
    // Each run and each fork leaves one trace.
    let accepted = coverage.sometimes.get("trace accepted").copied().unwrap_or(0);
    let forks = accepted.saturating_sub(*runs);
    println!("{runs} runs and {forks} forks, {events} events in {:.1} s", took.as_secs_f64());
    println!(
        "{:.0} runs and {:.0} events a second on each of {} threads",
        (*runs + forks) as f64 / each,
        *events as f64 / each,
        options.threads
    );
    println!("and {} runs, {} events with one fault at every possible point", everywhere.runs, everywhere.events);
    println!("\nfaults:");
    for (fault, count) in &coverage.faults {
        println!("  {count:>9}  {fault:?}");
    }
    let (seen, all) = coverage.count_pairs();
    println!("\ntransitions: {seen} of {all} pairs of phase and input ({:.1} %)", 100.0 * seen as f64 / all as f64);
    let agreed = coverage.sometimes.get("reference agreed").copied().unwrap_or(0);
    println!("references: {agreed} final views equal, {accepted} traces accepted");
    let missing: Vec<String> = coverage.missing_pairs().into_iter().chain(coverage.missing_points()).collect();
    if !missing.is_empty() {
        println!("\nnever occurred:\n  {}", missing.join("\n  "));
    }
    for (seed, violation) in violations.iter().take(10) {
        println!("\nseed {seed}: {violation}\n  replay: cargo run --profile sim -p skein-sim -- --seed {seed}");
    }
    if let Some(violation) = &everywhere.violation {
        println!("\n{violation}");
    }
    println!("\n{} violations", violations.len() + usize::from(everywhere.violation.is_some()));
    if let Some(seed) = violations.keys().next() {
        println!("\nthe first violation, minimized:");
        show_run(*seed);
    }
    let broken = !violations.is_empty() || everywhere.violation.is_some();
    let bad = broken || (options.ci && !missing.is_empty());
    ExitCode::from(u8::from(bad))
}

/// Prints everything known about one run.
fn show_run(seed: u64) -> ExitCode {
    let plan = simulate::draw_setup(seed).plan;
    let finished = simulate::simulate_run(seed);
    let frozen = serde_json::to_string_pretty(&plan.definition.to_frozen()).unwrap_or_default();
    println!("workflow: {frozen}\nparameters: {}\n\nevents:", plan.parameters);
    for record in finished.rows.iter().flat_map(|row| &row.records) {
        println!("{} {}", record.at.0, serde_json::to_string(&record.event).unwrap_or_default());
    }
    let Some(violation) = finished.violation else {
        println!("\nno rule was broken");
        return ExitCode::SUCCESS;
    };
    println!("\nviolation: {violation}");
    if let Some((moves, violation)) = rule_monitor::shrink_moves(&plan, finished.moves) {
        println!("\n{} moves reproduce it: {violation}", moves.len());
        for each in moves {
            println!("{}", serde_json::to_string(&each).unwrap_or_default());
        }
    }
    ExitCode::FAILURE
}
