//! What there is to say about one step of a plan, a line each.

use skein_core::{
    ir::{Budget, BudgetMode, KindName, Per},
    plan::grouped,
};

use super::{
    StepView,
    rules::{people, rules},
    step::{GateView, InputView, RouteView, WorkView},
    text::length,
    turns::TurnView,
    words::listed,
};

/// More than this of one value is not shown in a line.
const WIDEST: usize = 100;

/// The first line of a text, and no more of it than can be read at a glance.
pub fn short(text: &str) -> String {
    let mut lines = text.trim().lines();
    let line = lines.next().unwrap_or_default().trim_end();
    let cut: String = line.chars().take(WIDEST).collect();
    if cut.len() < line.len() || lines.next().is_some() { format!("{cut}…") } else { cut }
}

/// Who does it comes first, then what it waits for, what it is given and leaves, and how it may end.
pub fn facts(step: &StepView) -> Vec<String> {
    let mut facts = vec![doing(step)];
    facts.extend(step.work.iter().flat_map(provided));
    facts.extend(step.work.iter().filter(|work| !work.may.is_empty()).map(may));
    facts.extend(step.work.iter().flat_map(|work| turns(&work.agents)));
    facts.extend((!step.after.is_empty()).then(|| format!("after {}", few(&step.after, "and"))));
    facts.extend(step.when.as_ref().map(|when| format!("only if {}", short(when))));
    facts.extend(
        (!step.settles.is_empty()).then(|| {
            format!("only if what {} changed does not fit, to settle that", few(&step.settles, "or"))
        }),
    );
    facts.extend(step.gate.iter().flat_map(asked));
    facts.extend(step.inputs.iter().map(input));
    facts.extend(step.work.iter().flat_map(reach));
    facts.extend(rules(step));
    facts.extend(step.work.iter().filter(|_| step.attempts > 1).filter_map(again));
    facts.extend(step.work.iter().flat_map(checked));
    facts.extend(spends(step));
    facts.extend(ends(step));
    facts.extend(step.routes.iter().map(route));
    facts.extend(step.undo.as_ref().map(|undo| format!("undone by {}", short(undo))));
    facts
}

/// Who does it, and who takes over from them.
fn turns(agents: &[TurnView]) -> Vec<String> {
    let line = |(i, agent): (usize, &TurnView)| {
        let who = match i {
            0 => agent.by.clone(),
            _ => format!("if that one is used up or down, {}", agent.by),
        };
        let model = agent.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
        let kept = agent.kept_to.as_ref().map(|kept| format!(": {kept}")).unwrap_or_default();
        format!("{who}{model}{kept}")
    };
    agents.iter().enumerate().map(line).collect()
}

/// The first of many names.
pub fn few(names: &[String], last: &str) -> String {
    const MOST: usize = 8;
    match names.len() {
        n if n > MOST => format!("{} and {} more", names[..MOST].join(", "), n - MOST),
        _ => listed(names, last),
    }
}

fn anyone(who: &[String]) -> String {
    if who.is_empty() { "anyone".to_owned() } else { listed(who, "or") }
}

fn doing(step: &StepView) -> String {
    match (&step.work, &step.gate, &step.wait, &step.calls) {
        (Some(work), ..) => working(work),
        (_, Some(gate), ..) => {
            let message =
                if gate.message.is_empty() { String::new() } else { format!(": {}", short(&gate.message)) };
            let who = match gate.quorum {
                1 => anyone(&gate.approvers),
                quorum => people(&gate.approvers, quorum),
            };
            format!("waits for {who} to approve{message}")
        }
        (_, _, Some(wait), _) => format!("waits for the signal {}", listed(&wait.signals, "or")),
        (.., Some(workflow)) => {
            let shown = step.shown_under.as_ref().map(|step| format!(", which is shown under {step}"));
            format!("runs the workflow {workflow}{}", shown.unwrap_or_default())
        }
        _ => match step.kind {
            KindName::Parallel => format!("runs {} lanes side by side", step.inside.len()),
            KindName::Each => "runs the steps below for each item".to_owned(),
            KindName::Loop => "repeats the steps below".to_owned(),
            _ => "chooses where to go on".to_owned(),
        },
    }
}

fn working(work: &WorkView) -> String {
    let model = work.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
    format!("{}{model}", short(&work.by))
}

fn may(work: &WorkView) -> String {
    format!("may {}", listed(&work.may, "and"))
}

/// Which driver does it and why, and why each of the others does not.
fn provided(work: &WorkView) -> Vec<String> {
    let Some(found) = &work.provided else { return Vec::new() };
    let chosen = found.driver.as_ref().map(|driver| {
        let tool =
            if work.by.ends_with(&driver.tool) { String::new() } else { format!(" as tool {}", driver.tool) };
        format!("done by the driver {}{tool}: {}", driver.id, driver.why)
    });
    let refused = found.refused.as_ref().filter(|_| found.passed_over.is_empty());
    let refused = refused.map(|refused| format!("nobody can do it: {}", refused.message));
    let none =
        (found.driver.is_none() && !found.passed_over.is_empty()).then(|| "no driver can do it".to_owned());
    let others =
        found.passed_over.iter().map(|other| format!("passes over {}, which {}", other.id, other.why));
    chosen.into_iter().chain(refused).chain(none).chain(others).collect()
}

fn asked(gate: &GateView) -> Vec<String> {
    let shows = gate.shows.iter().map(|shown| format!("shows {}", short(shown)));
    let late = gate.timeout_ms.map(|ms| format!("after {}, {}", length(ms), gate.on_timeout));
    let late = late.unwrap_or_else(|| "waits as long as it takes".to_owned());
    shows.chain([format!("if rejected, {}; {late}", gate.on_reject)]).collect()
}

fn route(route: &RouteView) -> String {
    match route.when.as_str() {
        "then" => format!("then goes to {}", route.next),
        "else" => format!("else goes to {}", route.next),
        when => format!("if {}, goes to {}", short(when), route.next),
    }
}

fn input(input: &InputView) -> String {
    match (&input.value, &input.from) {
        (Some(value), _) => format!("reads {} = {}", input.name, short(&value.to_string())),
        (_, Some(from)) if *from == input.name => format!("reads {from}"),
        (_, from) => format!("reads {} from {}", input.name, short(from.as_deref().unwrap_or_default())),
    }
}

/// What the work is given, leaves, and may reach.
fn reach(work: &WorkView) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(work.takes.iter().map(|take| match take.name == take.artifact {
        true => format!("takes {} of {}", take.artifact, take.from),
        false => format!("takes {} of {} as {}", take.artifact, take.from, take.name),
    }));
    facts.extend(work.gives.iter().map(|give| format!("gives {} at {}", give.artifact, give.path)));
    facts.extend((!work.tools.is_empty()).then(|| format!("may use {}", few(&work.tools, "and"))));
    facts.extend(
        work.servers.iter().map(|server| format!("has the server {}: {}", server.name, short(&server.at))),
    );
    let memory = work.memory_tokens.map(|n| format!("up to {} tokens of memory", grouped(n.into())));
    let told: Vec<String> = work.told.iter().cloned().chain(memory).collect();
    facts.extend((!told.is_empty()).then(|| format!("is told {}", few(&told, "and"))));
    facts.extend(work.secrets.iter().map(|secret| match &secret.from {
        Some(from) => format!("is given the secret {} from {from}", secret.name),
        None => format!("is given the secret {}", secret.name),
    }));
    facts.extend(work.workspace.as_ref().map(|workspace| format!("works in {workspace}")));
    facts.extend(work.worktree.then(|| match work.stays {
        true => "works in a worktree of its own, where its changes stay".to_owned(),
        false => "works in a worktree of its own".to_owned(),
    }));
    let settled = work.settled_by.as_ref();
    facts.extend(settled.map(|by| format!("if its changes do not fit those of others, {by} settles it")));
    facts.extend(
        (!work.protects.is_empty()).then(|| format!("must not change {}", few(&work.protects, "or"))),
    );
    facts.extend(
        (!work.unprotects.is_empty())
            .then(|| format!("may change {}, which Skein otherwise protects", few(&work.unprotects, "and"))),
    );
    facts.extend(work.evidence.iter().map(|proof| format!("is done only if {proof}")));
    facts.extend((!work.network).then(|| "has no network".to_owned()));
    facts
}

/// What another attempt finds, where that is not simply what the last one left.
fn again(work: &WorkView) -> Option<String> {
    let text = match work.on_retry? {
        "reset" => "another attempt finds the workspace as it was before",
        _ => "another attempt is told what the last one changed",
    };
    Some(text.to_owned())
}

fn checked(work: &WorkView) -> Vec<String> {
    let check = work
        .check
        .as_ref()
        .map(|check| format!("until {} says complete, at most {} times", short(&check.by), check.iterations));
    let summary = work.summary_by.as_ref().map(|by| format!("summed up by {by}"));
    check.into_iter().chain(summary).collect()
}

/// The limits of what a step spends, and their effects.
fn spends(step: &StepView) -> Vec<String> {
    let steps = step.work.as_ref().and_then(|work| work.max_steps);
    let steps = steps.map(|most| format!("at most {} agent steps an attempt", grouped(most.into())));
    let quota = step.quota.map(|_| "waits while the account of its agent is limited".to_owned());
    steps.into_iter().chain(step.budget.as_ref().map(budget)).chain(quota).collect()
}

/// A budget, and what happens when it is spent.
pub fn budget(budget: &Budget) -> String {
    let usd = budget.micro_usd.map(|usd| format!("${:.2}", usd as f64 / 1e6));
    let tokens = budget.tokens.map(|tokens| format!("{} tokens", grouped(tokens)));
    let most: Vec<String> = usd.into_iter().chain(tokens).collect();
    let then = match budget.mode {
        BudgetMode::Warn => "which stops nothing",
        BudgetMode::Pause => "then a person is asked for as much again",
        BudgetMode::Stop => "then it fails",
    };
    format!("a budget of {}, {then}", most.join(" and "))
}

/// How long it may take, how often it is tried, and what its failure does. A gate has said so already.
fn ends(step: &StepView) -> Option<String> {
    if let Some(wait) = &step.wait {
        let late = wait.timeout_ms.map(|ms| format!("after {}, {}", length(ms), wait.on_timeout));
        return Some(late.unwrap_or_else(|| "waits as long as it takes".to_owned()));
    }
    if matches!(step.kind, KindName::Branch | KindName::Gate) {
        return None;
    }
    let per = match step.timeout_per {
        Per::Attempt if step.attempts > 1 => " an attempt",
        Per::Step if step.attempts > 1 => " in all",
        _ => "",
    };
    let time = step.timeout_ms.map(|ms| format!("at most {}{per}", length(ms)));
    // What is inside a step has timeouts of its own.
    let time = time.or_else(|| step.work.is_some().then(|| "no timeout".to_owned()));
    let tries = (step.attempts > 1).then(|| format!("up to {} attempts", step.attempts));
    let bounds: Vec<String> = time.into_iter().chain(tries).collect();
    let bounds = if bounds.is_empty() { String::new() } else { format!("{}; ", bounds.join(", ")) };
    let late = match step.timeout_ms {
        Some(_) if step.on_timeout != step.on_failure => format!("; if it is late, {}", step.on_timeout),
        _ => String::new(),
    };
    Some(format!("{bounds}if it fails, {}{late}", step.on_failure))
}
