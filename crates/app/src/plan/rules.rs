//! The text of a plan about approvals before a step, and about the release of steps that a rule stops.

use super::{
    step::{EscalationLevelView, PlanStepView},
    wording::{format_length, join_words},
};

/// Describes the rule that applies to a step, and its effect.
pub fn describe_rules(step: &PlanStepView) -> Vec<String> {
    let ruling = step
        .ruling
        .as_ref()
        .map(|ruling| format!("approval `{}`, said by {}: {}", ruling.class, ruling.from, ruling.why));
    let asks = step
        .asks_first
        .as_ref()
        .map(|approvers| format!("asks {} before it starts", describe_approvers(approvers, step.quorum)));
    let denied = step.denied.as_ref().map(|_| "may not start".to_owned());
    let levels: Vec<String> = step.escalates_to.iter().enumerate().map(describe_level).collect();
    let levels = (!levels.is_empty()).then(|| format!("if governance stops it, {}", levels.join(", ")));
    ruling.into_iter().chain(asks).chain(denied).chain(levels).collect()
}

/// Describes the approvers, and the number of them that is needed.
pub fn describe_approvers(approvers: &[String], quorum: u32) -> String {
    match (approvers, quorum) {
        ([], 1) => "a person".to_owned(),
        ([], n) => format!("{n} people"),
        (approvers, 1) => join_words(approvers, "or"),
        (approvers, n) => format!("{n} of {}", join_words(approvers, "or")),
    }
}

fn describe_level((number, level): (usize, &EscalationLevelView)) -> String {
    let approvers = describe_approvers(&level.approvers, 1);
    let time = level.timeout_ms.map_or(String::new(), |ms| format!(" within {}", format_length(ms)));
    if number == 0 { format!("{approvers} may release{time}") } else { format!("then {approvers}{time}") }
}
