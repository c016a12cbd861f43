//! A plan as text for people.

use std::fmt::Write;

use skein_core::{plan::grouped, time::Millis};

use super::{Batch, BatchSort, Estimate, Inner, Named, PlanView, StepView};
use crate::output::Paint;

/// The whole plan.
pub fn text(view: &PlanView, paint: Paint) -> String {
    let mut page = Page { paint, text: String::new() };
    page.head(view);
    page.batches(&view.batches, 0);
    page.foot(view);
    page.text
}

struct Page {
    paint: Paint,
    text: String,
}

fn length(ms: u64) -> String {
    Millis(ms).to_string()
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

impl Page {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn head(&mut self, view: &PlanView) {
        let about = &view.workflow;
        let version = about.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        let short: String = about.hash.chars().take(12).collect();
        let aside = self.paint.faint(&format!("{}, plan {short}", about.dialect));
        self.line(&format!("{}{version}  {aside}", self.paint.title(&about.id)));
        if let Some(description) = &about.description {
            description.trim().lines().for_each(|line| self.line(line));
        }
        if let Some(parameters) = view.parameters.as_object().filter(|parameters| !parameters.is_empty()) {
            let shown = parameters.iter().map(|(name, value)| format!("{name}={value}"));
            self.line(&format!("with {}", shown.collect::<Vec<_>>().join(" ")));
        }
    }

    fn batches(&mut self, batches: &[Batch], depth: usize) {
        let indent = " ".repeat(depth);
        for batch in batches {
            let sort = match batch.sort {
                BatchSort::Gate => ", a gate",
                BatchSort::Conditional if batch.steps.len() > 1 => ", one of these",
                BatchSort::Conditional => ", conditional",
                BatchSort::Parallel => ", in parallel",
                BatchSort::Sequential => "",
            };
            if depth == 0 {
                self.line("");
            }
            self.line(&format!("{indent}{}", self.paint.faint(&format!("Batch {}{sort}", batch.number))));
            let width =
                batch.steps.iter().map(|step| step.id.chars().count()).max().unwrap_or_default().min(28);
            batch.steps.iter().for_each(|step| self.step(step, depth + 2, width));
        }
    }

    fn step(&mut self, step: &StepView, depth: usize, width: usize) {
        let mut facts = facts(step).into_iter();
        let first = facts.next().unwrap_or_default();
        let name = self.paint.name(&format!("{:width$}", step.id));
        self.line(&format!("{:depth$}{name}  {first}", ""));
        let indent = depth + width + 2;
        for fact in facts {
            self.line(&format!("{:indent$}{fact}", ""));
        }
        for Inner { label, batches } in &step.inside {
            self.line(&format!("{:indent$}{}", "", self.paint.faint(label), indent = depth + 2));
            self.batches(batches, depth + 4);
        }
    }

    fn foot(&mut self, view: &PlanView) {
        self.line("");
        let path = &view.longest_path;
        let time = match path.at_most_ms {
            Some(ms) => format!("at most {}, gates not counted", length(ms)),
            None => format!("time unknown: {} without a timeout", listed(&path.unknown)),
        };
        self.row("Longest path", &format!("{}: {time}", path.steps.join(" → ")));
        self.row("Limits", &limits(view));
        self.row("Estimate", &estimate(&view.estimate));
        for what in &view.estimate.unknown {
            self.row("Unknown", what);
        }
    }

    fn row(&mut self, title: &str, text: &str) {
        let title = self.paint.title(&format!("{title:12}"));
        self.line(&format!("{title}  {text}"));
    }
}

/// What there is to say about a step, a line each.
fn facts(step: &StepView) -> Vec<String> {
    let mut facts = vec![doing(step)];
    facts.extend(step.when.as_ref().map(|when| format!("only if {when}")));
    facts.extend(step.routes.iter().map(|route| match route.when.as_str() {
        "else" => format!("else to {}", route.next),
        when => format!("if {when} to {}", route.next),
    }));
    facts.extend(from(&step.inputs, "reads", "from"));
    facts.extend(from(&step.takes, "takes", "from"));
    facts.extend(from(&step.gives, "gives", "at"));
    facts.extend(
        (!step.secrets.is_empty()).then(|| format!("is given the secrets {}", listed(&step.secrets))),
    );
    facts.extend(step.workspace.as_ref().map(|workspace| format!("works in {workspace}")));
    facts.extend((!step.network).then(|| "has no network".to_owned()));
    facts.extend(step.asks_first.then(|| "asks a person before it starts".to_owned()));
    facts.extend(
        step.check
            .as_ref()
            .map(|check| format!("until {} says complete, at most {} times", check.by, check.iterations)),
    );
    facts.extend(tries(step));
    facts.extend(step.undo.as_ref().map(|undo| format!("undone by {undo}")));
    facts
}

fn doing(step: &StepView) -> String {
    if let Some(gate) = &step.gate {
        let who = if gate.approvers.is_empty() { "anyone".to_owned() } else { gate.approvers.join(" or ") };
        let late = gate.timeout_ms.map(|ms| format!("; after {} it {}", length(ms), gate.on_timeout));
        return format!("waits for {who}: {}{}", gate.message.trim(), late.unwrap_or_default());
    }
    if let Some(wait) = &step.waits_for {
        let late = wait.timeout_ms.map(|ms| format!("; after {} it {}", length(ms), wait.on_timeout));
        return format!("waits for the signal {}{}", wait.signals.join(" or "), late.unwrap_or_default());
    }
    if let Some(calls) = &step.calls {
        return format!("runs the workflow {calls}");
    }
    let Some(by) = &step.by else {
        return match step.inside.len() {
            0 => "chooses where to go on".to_owned(),
            1 => "runs the steps below again and again".to_owned(),
            lanes => format!("runs {lanes} lanes side by side"),
        };
    };
    let model = step.model.as_ref().map(|model| format!(" with {model}")).unwrap_or_default();
    match step.may.is_empty() {
        true => format!("{by}{model}"),
        false => format!("{by}{model}, may {}", listed(&step.may)),
    }
}

fn from(values: &Named, verb: &str, preposition: &str) -> Vec<String> {
    values.iter().map(|(name, from)| format!("{verb} {name} {preposition} {}", from.trim())).collect()
}

fn tries(step: &StepView) -> Option<String> {
    if matches!(step.kind, skein_core::ir::KindName::Branch) {
        return None;
    }
    let time = step.timeout_ms.map(|ms| format!("at most {}", length(ms)));
    let tries = (step.attempts > 1).then(|| format!("up to {} attempts", step.attempts));
    let facts: Vec<String> = time.into_iter().chain(tries).collect();
    let failing = format!("if it fails, {}", step.on_failure);
    Some(if facts.is_empty() { failing } else { format!("{}; {failing}", facts.join(", ")) })
}

fn limits(view: &PlanView) -> String {
    let limits = &view.limits;
    let mut facts: Vec<String> = Vec::new();
    facts.push(
        limits
            .timeout_ms
            .map_or("no timeout for the run".to_owned(), |ms| format!("{} for the run", length(ms))),
    );
    facts.extend(limits.concurrency.map(|n| format!("{n} step{} at once", if n == 1 { "" } else { "s" })));
    facts.extend(limits.max_steps.map(|n| format!("{n} steps in all")));
    if let Some(budget) = &limits.budget {
        let usd = budget.micro_usd.map(|usd| format!("${:.2}", usd as f64 / 1e6));
        let tokens = budget.tokens.map(|tokens| format!("{} tokens", grouped(tokens)));
        let most: Vec<String> = usd.into_iter().chain(tokens).collect();
        facts.push(format!("a budget of {}", most.join(" and ")));
    }
    facts.join(", ")
}

fn estimate(estimate: &Estimate) -> String {
    if estimate.agent_starts_at_most == Some(0) && estimate.per_item.is_empty() {
        return "no agent is started, so no tokens are used".to_owned();
    }
    let starts = match estimate.agent_starts_at_most {
        Some(starts) => format!("up to {} agent starts", grouped(starts)),
        None => "no upper bound of agent starts".to_owned(),
    };
    let items = estimate
        .per_item
        .iter()
        .map(|item| format!(", and {} for each item of {}", grouped(item.agent_starts), item.step));
    let mut text = starts + &items.collect::<String>();
    if let Some(tokens) = estimate.tokens_at_most {
        let _ = write!(text, ", so up to {} tokens", grouped(tokens));
    }
    if let Some(usd) = estimate.usd_at_most {
        let _ = write!(text, " or ${usd:.2}");
    }
    format!("{text} (assuming {})", listed(&estimate.assumes))
}
