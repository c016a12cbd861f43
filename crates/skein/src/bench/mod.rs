//! Measuring Skein on this machine, beside what the machine itself can do in the same minute.
//!
//! Owns what is measured, how often, and the goals. The work is `skein_host::bench`'s, or that of this same program as a
//! process of its own. What is loaded now is loaded for both, so the ratios say more than the times.

mod adopt;
mod line;
mod place;
mod report;
mod start;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use skein_core::plan::Plan;
use skein_host::bench::{self, BenchError};

use self::line::{Goal, Line, Unit};
pub use self::{
    adopt::leave,
    place::{Folder, NoFolder},
    report::Report,
};

type Measured<T> = Result<T, BenchError>;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The best of so many counts.
    rounds: usize,
    chain: usize,
    width: usize,
    runs: usize,
    workers: usize,
}

impl Sizes {
    /// What the goals are about.
    pub const FULL: Sizes = Sizes { rounds: 5, chain: 100, width: 1_000, runs: 1_000, workers: 200 };
    /// Enough to see that everything can be measured.
    pub const QUICK: Sizes = Sizes { rounds: 1, chain: 10, width: 20, runs: 20, workers: 10 };
}

/// How many workers are at work at once.
const AT_ONCE: [u32; 2] = [2, 16];
/// The steps of each of many runs.
const SHORT: usize = 10;

/// What the machine does when nobody is in between: seconds for one.
#[derive(Debug)]
struct Machine {
    commit: f64,
    sync: f64,
    spawn: f64,
    /// For each of [`AT_ONCE`], by `make` and by threads that do nothing else.
    make: [Option<f64>; 2],
    spawns: [f64; 2],
}

/// Measures everything in a folder that is emptied from time to time.
pub fn measure(folder: &Path, sizes: &Sizes) -> Measured<Report> {
    let mut lines = Vec::new();
    let mut machine = Machine::of(folder, sizes)?;
    let (chain, fan_out, short) =
        (bench::chain(sizes.chain), bench::fan_out(sizes.width), bench::chain(SHORT));
    let [mut step, mut fan, mut all] = [f64::INFINITY; 3];
    // In turns, so that what else the machine does meanwhile harms both alike.
    for _ in 0..sizes.rounds {
        machine.commits(folder, sizes)?;
        step = step.min(of(in_state(folder, |state| bench::run(state, &chain, 1))?, sizes.chain));
        fan = fan.min(of(in_state(folder, |state| bench::run(state, &fan_out, 1))?, 1));
        let runs = in_state(folder, |state| bench::run(state, &short, sizes.runs))?;
        all = all.min(of(runs, sizes.runs * SHORT));
    }
    let commit = Some(("one commit", machine.commit));
    let name = format!("chain of {} steps, each", sizes.chain);
    lines.push(Line::new("chain", name, step, Unit::Time, commit, Goal::Ratio(1.6)));
    let name = format!("fan-out of {} and a join", sizes.width);
    lines.push(Line::new("fan_out", name, fan, Unit::Time, commit, Goal::Figure(0.050)));
    let name = format!("{} runs of {SHORT} steps", sizes.runs);
    lines.push(Line::new("runs", name, all, Unit::Rate, commit, Goal::Figure(1.0 / 50_000.0)));
    lines.push(functions(folder, sizes)?);
    for (at, at_once) in AT_ONCE.into_iter().enumerate() {
        lines.push(workers(folder, sizes, &mut machine, at, at_once)?);
    }
    lines.extend(start::lines(folder, sizes.rounds, machine.spawn)?);
    lines.extend(adopt::lines(folder, sizes, machine.commit)?);
    Ok(Report { machine: machine.lines(), lines })
}

/// Runs whose steps functions of Skein do, beside the same runs whose steps nobody does.
fn functions(folder: &Path, sizes: &Sizes) -> Measured<Line> {
    let plan = bench::of_functions(SHORT);
    let [mut done, mut nobody] = [f64::INFINITY; 2];
    for _ in 0..sizes.rounds {
        let each = |by: bool| {
            let took = in_state(folder, |state| bench::functions(state, &plan, sizes.runs, by));
            took.map(|took| of(took, sizes.runs * SHORT))
        };
        nobody = nobody.min(each(false)?);
        done = done.min(each(true)?);
    }
    let name = format!("{} runs of {SHORT} steps that are functions", sizes.runs);
    let limit = Some(("the same, done by nobody,", nobody));
    Ok(Line::new("functions", name, done, Unit::Rate, limit, Goal::Ratio(0.8)))
}

/// One run whose steps each start a process that does nothing.
fn workers(folder: &Path, sizes: &Sizes, machine: &mut Machine, at: usize, at_once: u32) -> Measured<Line> {
    let plan: Plan = bench::side_by_side(sizes.workers, at_once);
    let mut each = f64::INFINITY;
    for _ in 0..sizes.rounds {
        machine.spawns(folder, sizes, at, at_once as usize)?;
        each = each.min(of(in_state(folder, |state| bench::crew(state, &plan, at_once))?, sizes.workers));
    }
    let limit = match machine.make[at] {
        Some(make) => (["make -j2", "make -j16"][at], make),
        None => ("as many threads", machine.spawns[at]),
    };
    let id = ["workers_2", "workers_16"][at];
    let name = format!("{} steps that start `true`, {at_once} at once", sizes.workers);
    Ok(Line::new(id, name, each, Unit::Rate, Some(limit), Goal::Ratio(1.0)))
}

impl Machine {
    fn of(folder: &Path, sizes: &Sizes) -> Measured<Machine> {
        let [commit, sync, spawn] = [f64::INFINITY; 3];
        let mut machine = Machine { commit, sync, spawn, make: [None; 2], spawns: [f64::INFINITY; 2] };
        for _ in 0..sizes.rounds {
            machine.sync = machine.sync.min(of(bench::syncs(folder, sizes.chain)?, sizes.chain));
            machine.spawn = machine.spawn.min(of(bench::spawns(sizes.workers, 1)?, sizes.workers));
        }
        Ok(machine)
    }

    fn commits(&mut self, folder: &Path, sizes: &Sizes) -> Measured<()> {
        self.commit = self.commit.min(of(bench::commits(folder, sizes.chain)?, sizes.chain));
        Ok(())
    }

    fn spawns(&mut self, folder: &Path, sizes: &Sizes, at: usize, at_once: usize) -> Measured<()> {
        let make = bench::make(folder, sizes.workers, at_once)?.map(|took| of(took, sizes.workers));
        self.make[at] = make.map(|make| self.make[at].unwrap_or(make).min(make));
        self.spawns[at] = self.spawns[at].min(of(bench::spawns(sizes.workers, at_once)?, sizes.workers));
        Ok(())
    }

    /// What it does, and how often in a second; none: it cannot.
    fn lines(&self) -> Vec<(&'static str, &'static str, Option<f64>)> {
        vec![
            ("commits", "synced commits", Some(self.commit)),
            ("syncs", "bare syncs", Some(self.sync)),
            ("spawns", "starts of `true`", Some(self.spawn)),
            ("spawns_2", "starts of `true`, 2 at once", Some(self.spawns[0])),
            ("spawns_16", "starts of `true`, 16 at once", Some(self.spawns[1])),
            ("make_2", "targets of `make -j2`", self.make[0]),
            ("make_16", "targets of `make -j16`", self.make[1]),
        ]
    }
}

/// Does something with a state folder of its own. It is removed when all has been measured: file systems are slow to make
/// files where many have just been removed.
fn in_state<T>(folder: &Path, what: impl FnOnce(&Path) -> Measured<T>) -> Measured<T> {
    what(&unused(folder, "state")?)
}

/// The path of something that is not there yet.
fn unused(folder: &Path, name: &str) -> Measured<PathBuf> {
    let number = fs::read_dir(folder)?.count();
    Ok(folder.join(format!("{name}-{number}")))
}

/// Seconds for one of so many.
fn of(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() / count as f64
}
