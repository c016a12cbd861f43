//! `skein approve` and `skein reject`: a person answers a gate or a hold.

use std::path::Path;

use clap::Args;
use serde_json::json;
use skein_core::{
    closest::did_you_mean,
    engine::{Decision, Input, Opening, utc},
    view::{self, Names, OpeningView},
};
use skein_host::{
    inbox::DecisionRequest,
    store::{OpenRow, RunRow, Store},
};

use crate::{
    exit::Exit,
    inbox,
    invocation::words,
    output::Output,
    say::{self, Taken},
    state::State,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins.
    run: String,
    /// The path of the step; the only one that waits for a decision unless told otherwise.
    step: Option<String>,
    /// Why, for those who look at the run.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(arguments: &Arguments, decision: Decision, state: Option<&Path>, output: Output) -> Exit {
    decide(arguments, decision, state, output).unwrap_or_else(|exit| exit)
}

fn decide(
    arguments: &Arguments,
    decision: Decision,
    given: Option<&Path>,
    output: Output,
) -> Result<Exit, Exit> {
    if let Some(inbox) = inbox::of_another(given) {
        let (run, step, reason) = (arguments.run.clone(), arguments.step.clone(), arguments.reason.clone());
        return Ok(inbox::leave(&inbox, &DecisionRequest { run, step, decision, reason }, output));
    }
    let (state, row) = State::with_run(given, &arguments.run, output)?;
    crate::state::refuse_shortened(&row, output)?;
    let (word, done) = match decision {
        Decision::Approve => ("approve", "approved"),
        Decision::Reject => ("reject", "rejected"),
    };
    let meant = arguments.step.as_ref().map_or(String::new(), |step| format!(" `{step}`"));
    say::outside(&state, &row.run, &format!("{word}{meant}"), output)?;
    let open = opening(&state, &row, arguments.step.as_deref(), output)?;
    let by = say::actor(&say::about(&row, output)?, output)?;
    let name = by.name.clone();
    let input = Input::Decide { opening: open.opening, decision, by, reason: arguments.reason.clone() };
    let taken = say::say(&state, &row.run, &input, output)?;
    let others = match decision {
        Decision::Approve => others(&state, &row, open.opening, output)?,
        Decision::Reject => None,
    };
    if output.is_json() {
        let mut object = said(&state, &row, &taken);
        object["step"] = json!(open.step);
        object["decision"] = json!(word);
        object["by"] = json!(name);
        object["reason"] = json!(arguments.reason);
        if let Some(others) = &others {
            object["approvals"] = json!({"given": others.approvals.len(), "needed": others.quorum});
        }
        output.json(&object);
    } else {
        let others = others.and_then(|others| others.progress());
        let others = others.map_or(String::new(), |far| format!(": {far}, and others have to"));
        let then = then(&row, &taken);
        output.text(&format!("{done} `{}` of run {}{others}{then}\n", open.step, row.run));
    }
    Ok(Exit::Done)
}

/// What is still open because others have to approve as well.
fn others(
    state: &State,
    row: &RunRow,
    opening: Opening,
    output: Output,
) -> Result<Option<OpeningView>, Exit> {
    let (plan, replayed) = state.recall(row, output)?;
    if replayed.opening(opening).is_none_or(|opening| opening.closed || opening.quorum < 2) {
        return Ok(None);
    }
    Ok(view::opening(&replayed, &Names::of(&plan.definition, &replayed), opening))
}

/// What became of the run of which something was said.
pub fn said(state: &State, row: &RunRow, taken: &Taken) -> serde_json::Value {
    let status = state.store.run(&row.run).ok().flatten().map_or(row.head.status, |row| row.head.status);
    let next = (*taken == Taken::Here).then(|| format!("{} resume {}", words(), row.run));
    json!({"run_id": row.run, "status": status, "next": next})
}

/// The same in words, at the end of a sentence.
pub fn then(row: &RunRow, taken: &Taken) -> String {
    match taken {
        Taken::ByOwner => String::new(),
        Taken::Here => format!("; nobody goes on with it now, `skein resume {}` does", row.run),
        Taken::AndEnded => ", which ended it".to_owned(),
    }
}

/// The gate or hold that is meant.
fn opening(state: &State, row: &RunRow, step: Option<&str>, output: Output) -> Result<OpenRow, Exit> {
    if let Some(found) = say::find_opening(row, step) {
        return Ok(found.clone());
    }
    let open: Vec<&OpenRow> = say::openings(row).collect();
    if let Some(step) = step {
        return Err(not_open(state, row, step, &open, output)?);
    }
    if open.is_empty() {
        let message = format!("nothing in run `{}` waits for a decision", row.run);
        return Err(output.refuse(Exit::Refused, &message, None));
    }
    let steps: Vec<String> = open.iter().take(5).map(|open| format!("`{}`", open.step)).collect();
    let message = format!("{} steps of run `{}` wait for a decision", open.len(), row.run);
    Err(output.refuse(Exit::Usage, &message, Some(&format!("name one of {}", steps.join(", ")))))
}

/// Why a step cannot be decided: it was, it waits for something else, or there is none.
fn not_open(
    state: &State,
    row: &RunRow,
    step: &str,
    open: &[&OpenRow],
    output: Output,
) -> Result<Exit, Exit> {
    let (plan, replayed) = state.recall(row, output)?;
    let names = Names::of(&plan.definition, &replayed);
    let last = replayed.openings.iter().rfind(|opening| names.step(opening.at) == step);
    let (message, hint) = match last.and_then(|last| last.decided.as_ref()) {
        Some((by, at)) => (format!("`{step}` was decided already, by {by} at {}", utc(*at)), None),
        None if row.open.iter().any(|open| open.step == step) => (
            format!("`{step}` waits for a signal, not for a decision"),
            Some("`skein signal RUN EVENT` sends one".to_owned()),
        ),
        None => {
            let hint = did_you_mean(step, open.iter().map(|open| open.step.as_str()));
            let all = || open.iter().take(5).map(|open| format!("`{}`", open.step)).collect::<Vec<_>>();
            let hint =
                hint.or_else(|| (!open.is_empty()).then(|| format!("what waits is {}", all().join(", "))));
            (format!("no step `{step}` of run `{}` waits for a decision", row.run), hint)
        }
    };
    Ok(output.refuse(Exit::Refused, &message, hint.as_deref()))
}
