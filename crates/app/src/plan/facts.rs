//! The facts about one step of a plan as text, one line each.

use skein_core::{
    ir::{Budget, BudgetMode, StepKindName, TimeoutScope},
    plan::group_digits,
};

use crate::plan::{
    PlanStepView,
    step::{EscalationLevelView, FallbackAgentView, GateView, InputView, RouteView, WorkView},
    wording::{format_length, join_words},
};

/// The maximum length of a value in a line.
const WIDEST: usize = 100;

/// Returns the first line of a text, shortened if necessary.
pub fn shorten_text(text: &str) -> String {
    let mut lines = text.trim().lines();
    let line = lines.next().unwrap_or_default().trim_end();
    let cut: String = line.chars().take(WIDEST).collect();
    if cut.len() < line.len() || lines.next().is_some() { format!("{cut}…") } else { cut }
}

/// Describes a step: first its worker, then its dependencies, its inputs and outputs, and its possible endings.
pub fn describe_step(step: &PlanStepView) -> Vec<String> {
    let mut facts = vec![describe_action(step)];
    facts.extend(step.work.iter().flat_map(describe_driver));
    facts.extend(step.work.iter().filter(|work| !work.may.is_empty()).map(describe_permissions));
    facts.extend(step.work.iter().flat_map(|work| describe_fallbacks(&work.agents)));
    facts.extend((!step.after.is_empty()).then(|| format!("after {}", list_few(&step.after, "and"))));
    facts.extend(step.when.as_ref().map(|when| format!("only if {}", shorten_text(when))));
    facts.extend(
        (!step.settles.is_empty())
            .then(|| format!("only if the changes of {} conflict, to resolve that", list_few(&step.settles, "or"))),
    );
    facts.extend(step.gate.iter().flat_map(describe_gate));
    facts.extend(step.inputs.iter().map(describe_input));
    facts.extend(step.work.iter().flat_map(describe_access));
    facts.extend(describe_rules(step));
    facts.extend(step.work.iter().filter(|_| step.attempts > 1).filter_map(describe_retry));
    facts.extend(step.work.iter().flat_map(describe_check));
    facts.extend(describe_spending(step));
    facts.extend(describe_ending(step));
    facts.extend(step.routes.iter().map(describe_route));
    facts.extend(step.undo.as_ref().map(|undo| format!("undone by {}", shorten_text(undo))));
    facts
}

/// Describes the agents of a step in the order in which they take over.
fn describe_fallbacks(agents: &[FallbackAgentView]) -> Vec<String> {
    let line = |(i, agent): (usize, &FallbackAgentView)| {
        let name = match i {
            0 => agent.by.clone(),
            _ => format!("if that one is out of quota or unavailable, {}", agent.by),
        };
        let model = agent.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
        let kept = agent.kept_to.as_ref().map(|kept| format!(": {kept}")).unwrap_or_default();
        format!("{name}{model}{kept}")
    };
    agents.iter().enumerate().map(line).collect()
}

/// Returns the first of many names.
pub fn list_few(names: &[String], last: &str) -> String {
    const MOST: usize = 8;
    match names.len() {
        n if n > MOST => format!("{} and {} more", names[..MOST].join(", "), n - MOST),
        _ => join_words(names, last),
    }
}

fn name_approvers(approvers: &[String]) -> String {
    if approvers.is_empty() { "anyone".to_owned() } else { join_words(approvers, "or") }
}

fn describe_action(step: &PlanStepView) -> String {
    match (&step.work, &step.gate, &step.wait, &step.calls) {
        (Some(work), ..) => describe_work(work),
        (_, Some(gate), ..) => {
            let message =
                if gate.message.is_empty() { String::new() } else { format!(": {}", shorten_text(&gate.message)) };
            let approvers = match gate.quorum {
                1 => name_approvers(&gate.approvers),
                quorum => describe_approvers(&gate.approvers, quorum),
            };
            format!("waits for {approvers} to approve{message}")
        }
        (_, _, Some(wait), _) => format!("waits for the signal {}", join_words(&wait.signals, "or")),
        (.., Some(workflow)) => {
            let shown = step.shown_under.as_ref().map(|step| format!(", which is shown under {step}"));
            format!("runs the workflow {workflow}{}", shown.unwrap_or_default())
        }
        _ => match step.kind {
            StepKindName::Parallel => format!("runs {} lanes side by side", step.inside.len()),
            StepKindName::Each => "runs the steps below for each item".to_owned(),
            StepKindName::Loop => "repeats the steps below".to_owned(),
            _ => "chooses the next step".to_owned(),
        },
    }
}

fn describe_work(work: &WorkView) -> String {
    let model = work.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
    format!("{}{model}", shorten_text(&work.by))
}

fn describe_permissions(work: &WorkView) -> String {
    format!("may {}", join_words(&work.may, "and"))
}

/// Describes the chosen driver with the reason, and the reason against each of the others.
fn describe_driver(work: &WorkView) -> Vec<String> {
    let Some(found) = &work.provided else { return Vec::new() };
    let chosen = found.driver.as_ref().map(|driver| {
        let tool = if work.by.ends_with(&driver.tool) { String::new() } else { format!(" as tool {}", driver.tool) };
        format!("done by the driver {}{tool}: {}", driver.id, driver.why)
    });
    let refused = found.refused.as_ref().filter(|_| found.passed_over.is_empty());
    let refused = refused.map(|refused| format!("it cannot run: {}", refused.message));
    let none = (found.driver.is_none() && !found.passed_over.is_empty()).then(|| "no driver can run it".to_owned());
    let passed_over = found.passed_over.iter().map(|driver| format!("passes over {}, which {}", driver.id, driver.why));
    chosen.into_iter().chain(refused).chain(none).chain(passed_over).collect()
}

fn describe_gate(gate: &GateView) -> Vec<String> {
    let shows = gate.shows.iter().map(|shown| format!("shows {}", shorten_text(shown)));
    let late = gate.timeout_ms.map(|ms| format!("after {}, {}", format_length(ms), gate.on_timeout));
    let late = late.unwrap_or_else(|| "waits without a timeout".to_owned());
    shows.chain([format!("if rejected, {}; {late}", gate.on_reject)]).collect()
}

fn describe_route(route: &RouteView) -> String {
    match route.when.as_str() {
        "then" => format!("then goes to {}", route.next),
        "else" => format!("else goes to {}", route.next),
        when => format!("if {}, goes to {}", shorten_text(when), route.next),
    }
}

fn describe_input(input: &InputView) -> String {
    match (&input.value, &input.from) {
        (Some(value), _) => format!("reads {} = {}", input.name, shorten_text(&value.to_string())),
        (_, Some(from)) if *from == input.name => format!("reads {from}"),
        (_, from) => {
            format!("reads {} from {}", input.name, shorten_text(from.as_deref().unwrap_or_default()))
        }
    }
}

/// Describes the inputs of the work, its outputs, and its access.
fn describe_access(work: &WorkView) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(work.takes.iter().map(|take| match take.name == take.artifact {
        true => format!("takes {} of {}", take.artifact, take.from),
        false => format!("takes {} of {} as {}", take.artifact, take.from, take.name),
    }));
    facts.extend(work.gives.iter().map(|give| format!("gives {} at {}", give.artifact, give.path)));
    facts.extend((!work.tools.is_empty()).then(|| format!("may use {}", list_few(&work.tools, "and"))));
    facts.extend(
        work.servers.iter().map(|server| format!("has the server {}: {}", server.name, shorten_text(&server.at))),
    );
    let memory = work.memory_tokens.map(|n| format!("up to {} tokens of memory", group_digits(n.into())));
    let context: Vec<String> = work.context_modules.iter().cloned().chain(memory).collect();
    facts.extend((!context.is_empty()).then(|| format!("is given {}", list_few(&context, "and"))));
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
    facts.extend(settled.map(|by| format!("if its changes conflict with those of others, {by} resolves it")));
    facts.extend((!work.protects.is_empty()).then(|| format!("must not change {}", list_few(&work.protects, "or"))));
    facts.extend(
        (!work.unprotects.is_empty())
            .then(|| format!("may change {}, which Skein otherwise protects", list_few(&work.unprotects, "and"))),
    );
    facts.extend(work.evidence.iter().map(|proof| format!("succeeds only if {proof}")));
    facts.extend((!work.network).then(|| "has no network access".to_owned()));
    facts
}

/// Describes the workspace of another attempt, if it is not simply the one that the last attempt left.
fn describe_retry(work: &WorkView) -> Option<String> {
    let text = match work.on_retry? {
        "reset" => "another attempt finds the workspace restored",
        _ => "another attempt is told what the last one changed",
    };
    Some(text.to_owned())
}

fn describe_check(work: &WorkView) -> Vec<String> {
    let check = work
        .check
        .as_ref()
        .map(|check| format!("until {} says complete, at most {} times", shorten_text(&check.by), check.iterations));
    let summary = work.summary_by.as_ref().map(|by| format!("summarised by {by}"));
    check.into_iter().chain(summary).collect()
}

/// Describes the spending limits of a step, and their effects.
fn describe_spending(step: &PlanStepView) -> Vec<String> {
    let steps = step.work.as_ref().and_then(|work| work.max_steps);
    let steps = steps.map(|most| format!("at most {} agent steps an attempt", group_digits(most.into())));
    let quota = step.quota.map(|_| "waits while the account of its agent is limited".to_owned());
    steps.into_iter().chain(step.budget.as_ref().map(describe_budget)).chain(quota).collect()
}

/// Describes a budget, and the effect of exceeding it.
pub fn describe_budget(budget: &Budget) -> String {
    let usd = budget.micro_usd.map(|usd| format!("${:.2}", usd as f64 / 1e6));
    let tokens = budget.tokens.map(|tokens| format!("{} tokens", group_digits(tokens)));
    let most: Vec<String> = usd.into_iter().chain(tokens).collect();
    let then = match budget.mode {
        BudgetMode::Warn => "then a warning is printed",
        BudgetMode::Pause => "then a person is asked for the same amount again",
        BudgetMode::Stop => "then it fails",
    };
    format!("a budget of {}, {then}", most.join(" and "))
}

/// Describes the timeout of a step, its attempts, and the effect of its failure. A gate describes these itself.
fn describe_ending(step: &PlanStepView) -> Option<String> {
    if let Some(wait) = &step.wait {
        let late = wait.timeout_ms.map(|ms| format!("after {}, {}", format_length(ms), wait.on_timeout));
        return Some(late.unwrap_or_else(|| "waits without a timeout".to_owned()));
    }
    if matches!(step.kind, StepKindName::Branch | StepKindName::Gate) {
        return None;
    }
    let per = match step.timeout_per {
        TimeoutScope::Attempt if step.attempts > 1 => " an attempt",
        TimeoutScope::Step if step.attempts > 1 => " in all",
        _ => "",
    };
    let time = step.timeout_ms.map(|ms| format!("at most {}{per}", format_length(ms)));
    // The steps inside a composite have timeouts of their own.
    let time = time.or_else(|| step.work.is_some().then(|| "no timeout".to_owned()));
    let tries = (step.attempts > 1).then(|| format!("up to {} attempts", step.attempts));
    let bounds: Vec<String> = time.into_iter().chain(tries).collect();
    let bounds = if bounds.is_empty() { String::new() } else { format!("{}; ", bounds.join(", ")) };
    let late = match step.timeout_ms {
        Some(_) if step.on_timeout != step.on_failure => format!("; if it times out, {}", step.on_timeout),
        _ => String::new(),
    };
    Some(format!("{bounds}if it fails, {}{late}", step.on_failure))
}

/// Describes the rule that applies to a step, and its effect.
pub(crate) fn describe_rules(step: &PlanStepView) -> Vec<String> {
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
pub(crate) fn describe_approvers(approvers: &[String], quorum: u32) -> String {
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
