//! The engine's runs against both references.

use std::collections::BTreeMap;

use skein_core::engine::Event;

use super::*;
use crate::{
    acceptor::Acceptor,
    faults::Faults,
    generate::Size,
    outcome::{Luck, Seeded},
    reference::evaluate,
    simulate,
    world::{self, Finished, Setup},
};

fn events(finished: &Finished) -> impl Iterator<Item = &Event> {
    finished.rows.iter().flat_map(|row| &row.records).map(|record| &record.event)
}

/// What the engine still does that the rules forbid. Each goes when it is mended.
const KNOWN: [&str; 3] = [
    // A step that waited for its approval starts in an instance that drains.
    "the instance is halted: {\"step_goes_on\"",
    // Gates open and steps become ready or held between the end that halts an instance and the halt.
    "the instance is about to be halted",
    // The retry of an undo does not wait for `retry_at`.
    "not between",
];

/// `STRICT=1` shows them too.
fn is_known(why: &str) -> bool {
    if std::env::var_os("STRICT").is_some() {
        return false;
    }
    KNOWN.iter().any(|known| why.contains(known))
}

/// Runs `SEEDS` seeds from `FROM` on; few unless told otherwise.
fn seeds() -> std::ops::Range<u64> {
    let number = |name, or| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    let from = number("FROM", 0);
    from..from + number("SEEDS", 2_000)
}

/// So that what is alike is counted together.
fn gist(why: &str) -> String {
    let why = why.split(": {\"").next().unwrap_or(why);
    why.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()
}

fn report(kind: &str, wrong: BTreeMap<String, (u32, u64, String)>) {
    let mut lines: Vec<_> = wrong.into_values().collect();
    lines.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    for (count, seed, why) in lines.iter().take(25) {
        println!("{kind}: {count} times, such as seed {seed}: {why}");
    }
    assert!(lines.is_empty(), "{} kinds of disagreement", lines.len());
}

#[test]
fn runs_without_races_are_what_the_reference_says() {
    let mut wrong = BTreeMap::new();
    for seed in seeds() {
        let plan = simulate::plan(seed, Size::small());
        let luck = if seed % 3 == 0 { Luck::Rough } else { Luck::Usual };
        let Ok(expected) = evaluate(&plan, &Seeded { seed, luck }) else { continue };
        let setup = Setup { seed, plan: plan.clone(), luck, faults: Faults::none(), workers: 1_000 };
        let finished = world::run(setup);
        if let Err(why) = agrees(&plan, &expected, events(&finished)) {
            let entry = wrong.entry(gist(&why)).or_insert((0, seed, why));
            entry.0 += 1;
        }
    }
    report("reference", wrong);
}

/// Shows a disagreement: `SEED=7 cargo test -p skein-sim show -- --ignored --nocapture`.
#[test]
#[ignore = "a tool"]
fn show() {
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    let plan = simulate::plan(seed, Size::small());
    let luck = if seed % 3 == 0 { Luck::Rough } else { Luck::Usual };
    let setup = Setup { seed, plan: plan.clone(), luck, faults: Faults::none(), workers: 1_000 };
    let finished = world::run(setup);
    events(&finished).for_each(|event| println!("{}", serde_json::to_string(event).unwrap()));
    println!("{}", serde_json::to_string(&*plan.definition.root().workflow).unwrap());
    println!("{:#?}", evaluate(&plan, &Seeded { seed, luck }));
}

#[test]
fn every_history_is_accepted() {
    let mut wrong = BTreeMap::new();
    for seed in seeds() {
        let plan = simulate::setup(seed).plan;
        let finished = simulate::run(seed);
        let mut acceptor = Acceptor::new(plan);
        let mut records = finished.rows.iter().flat_map(|row| &row.records);
        let judged = records.try_for_each(|record| acceptor.accept(record.at, &record.event));
        if let Err(why) = judged.and_then(|()| acceptor.finish())
            && !is_known(&why)
        {
            let entry = wrong.entry(gist(&why[why.find(": ").unwrap_or(0)..])).or_insert((0, seed, why));
            entry.0 += 1;
        }
    }
    report("acceptor", wrong);
}
