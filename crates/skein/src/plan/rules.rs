//! What a plan says of who is asked before a step, and of who may let go on what a rule stops.

use super::{
    step::{LevelView, StepView},
    text::length,
    words::listed,
};

/// Which rule holds, and what follows from it.
pub fn rules(step: &StepView) -> Vec<String> {
    let ruling = step
        .ruling
        .as_ref()
        .map(|ruling| format!("approval `{}`, said by {}: {}", ruling.class, ruling.from, ruling.why));
    let asks =
        step.asks_first.as_ref().map(|who| format!("asks {} before it starts", people(who, step.quorum)));
    let denied = step.denied.as_ref().map(|_| "may not start".to_owned());
    let levels: Vec<String> = step.escalates_to.iter().enumerate().map(level).collect();
    let levels = (!levels.is_empty()).then(|| format!("what governance stops, {}", levels.join(", ")));
    ruling.into_iter().chain(asks).chain(denied).chain(levels).collect()
}

/// Who is asked, and how many of them.
pub fn people(who: &[String], quorum: u32) -> String {
    match (who, quorum) {
        ([], 1) => "a person".to_owned(),
        ([], n) => format!("{n} people"),
        (who, 1) => listed(who, "or"),
        (who, n) => format!("{n} of {}", listed(who, "or")),
    }
}

fn level((number, level): (usize, &LevelView)) -> String {
    let who = people(&level.approvers, 1);
    let time = level.timeout_ms.map_or(String::new(), |ms| format!(" within {}", length(ms)));
    if number == 0 { format!("{who} may release{time}") } else { format!("then {who}{time}") }
}
