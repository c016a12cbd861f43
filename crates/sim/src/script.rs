//! A run as a list of moves, so that a failing run can be replayed without the world, and minimized.

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{Driver, InputToken, TimedInput},
    plan::Plan,
};

use crate::{
    rule_monitor::RuleMonitor,
    violation::{RuleResult, RuleViolation},
};

/// An action on the driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverMove {
    Say(TimedInput),
    Crash { row_lost: bool },
}

/// Performs the moves in order, and returns the rule that the engine broke, if any.
pub fn replay_moves(plan: &Plan, moves: &[DriverMove]) -> RuleResult {
    let mut driver = Driver::new(plan.clone());
    let mut watch = RuleMonitor::new(plan);
    let mut rows = Vec::new();
    for (i, each) in (0..).zip(moves) {
        match each {
            DriverMove::Say(stimulus) => {
                watch.observe_input(&driver, stimulus, false);
                driver.push_input(InputToken(i), stimulus.clone());
                let lost = matches!(
                    moves.get(usize::try_from(i + 1).unwrap_or(0)),
                    Some(DriverMove::Crash { row_lost: true })
                );
                if lost {
                    continue;
                }
                if let Some(batch) = driver.poll_append() {
                    watch.observe_durable_row(&driver, &batch)?;
                    rows.push(batch);
                    driver.confirm_append();
                    watch.check_settled(&driver)?;
                }
                while let Some((_, answer)) = driver.poll_answer() {
                    watch.observe_answer(&answer);
                }
                while driver.poll_action().is_some() {}
            }
            DriverMove::Crash { .. } => {
                driver = Driver::replay(plan.clone(), rows.iter().map(AsRef::as_ref))
                    .map_err(|error| format!("I2: {error}"))?;
                watch.check_replayed(&driver)?;
            }
        }
    }
    Ok(())
}

/// Finds a small subset of the moves that still breaks a rule, by leaving out ever smaller parts.
pub fn shrink_moves(plan: &Plan, moves: Vec<DriverMove>) -> Option<(Vec<DriverMove>, RuleViolation)> {
    let mut violation = replay_moves(plan, &moves).err()?;
    let mut best = moves;
    let mut part = best.len().div_ceil(2).max(1);
    loop {
        let mut i = 0;
        let mut smaller = false;
        while i < best.len() {
            let mut without = best.clone();
            without.drain(i..(i + part).min(best.len()));
            match replay_moves(plan, &without) {
                Err(found) => {
                    (best, violation, smaller) = (without, found, true);
                }
                Ok(()) => i += part,
            }
        }
        if part == 1 && !smaller {
            return Some((best, violation));
        }
        part = (part / 2).max(1);
    }
}
