//! A plan as text for people.

use std::fmt::Write;

use skein_core::{plan::grouped, time::Millis};
use skein_host::sandbox::Enforcement;
use unicode_width::UnicodeWidthStr;

use super::{
    Batch, BatchSort, Confined, Estimate, Inner, Longest, PerItem, PlanView, StepView,
    facts::{budget, facts, few, short},
    words::listed,
};
use crate::output::Paint;

/// The whole plan.
pub fn text(view: &PlanView, paint: Paint) -> String {
    let mut page = Page { paint, text: String::new() };
    page.head(view);
    page.batches(&view.batches, 0);
    page.foot(view);
    page.text
}

/// Names of more columns have a line of their own.
const WIDEST: usize = 28;

/// How many columns the names of some steps take, as far as others stand beside them.
fn width<'a>(steps: impl IntoIterator<Item = &'a StepView>) -> usize {
    steps.into_iter().map(|step| step.id.width()).max().unwrap_or_default().min(WIDEST)
}

struct Page {
    paint: Paint,
    text: String,
}

pub fn length(ms: u64) -> String {
    Millis(ms).to_string()
}

impl Page {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn head(&mut self, view: &PlanView) {
        let about = &view.workflow;
        let version = about.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        let hash: String = about.hash.chars().take(12).collect();
        let aside = self.paint.faint(&format!("{}, plan {hash}", about.dialect));
        self.line(&format!("{}{version}  {aside}", self.paint.title(&about.id)));
        if let Some(name) = about.name.as_ref().filter(|name| **name != about.id) {
            self.line(name);
        }
        if let Some(description) = &about.description {
            description.trim().lines().for_each(|line| self.line(line));
        }
        if let Some(parameters) = view.parameters.as_object().filter(|parameters| !parameters.is_empty()) {
            let shown = parameters.iter().map(|(name, value)| short(&format!("{name}={value}")));
            self.line(&format!("with {}", shown.collect::<Vec<_>>().join(" ")));
        }
    }

    fn batches(&mut self, batches: &[Batch], depth: usize) {
        let indent = " ".repeat(depth);
        // One step after nothing and before nothing needs no heading inside another.
        if let ([Batch { sort: BatchSort::Sequential, steps, .. }], 1..) = (batches, depth) {
            return steps.iter().for_each(|step| self.step(step, depth, width([step])));
        }
        for batch in batches {
            let sort = match batch.sort {
                BatchSort::Gate => " (gate)",
                BatchSort::Conditional if batch.steps.len() > 1 => " (one of these)",
                BatchSort::Conditional => " (conditional)",
                BatchSort::Parallel => " (parallel)",
                BatchSort::Sequential => "",
            };
            if depth == 0 {
                self.line("");
            }
            self.line(&format!("{indent}{}", self.paint.faint(&format!("Batch {}{sort}", batch.number))));
            let width = width(&batch.steps);
            batch.steps.iter().for_each(|step| self.step(step, depth + 2, width));
        }
    }

    fn step(&mut self, step: &StepView, depth: usize, width: usize) {
        let mut facts = facts(step).into_iter();
        let first = facts.next().unwrap_or_default();
        let (name, indent) = (self.paint.name(&step.id), depth + width + 2);
        match (width + 2).checked_sub(step.id.width()) {
            Some(gap @ 2..) => self.line(&format!("{:depth$}{name}{:gap$}{first}", "", "")),
            _ => {
                self.line(&format!("{:depth$}{name}", ""));
                self.line(&format!("{:indent$}{first}", ""));
            }
        }
        let name = step.name.as_ref().filter(|name| name.as_str() != step.id);
        for about in name.into_iter().chain(&step.description) {
            self.line(&format!("{:indent$}{}", "", self.paint.faint(&short(about))));
        }
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
        self.row("Longest path", &way(&view.longest_path.steps));
        self.row("Time", &time(&view.longest_path, view.limits.timeout_ms));
        self.row("Limits", &limits(view));
        for hook in &view.hooks {
            self.row("Hook", &hook.shown());
        }
        self.row("Estimate", &estimate(&view.estimate));
        self.row("Confined", &confined(&view.confined));
        if let Some(why) = &view.no_worktrees {
            self.row("Worktrees", why);
        }
        for missing in &view.not_passed {
            self.row("Environment", &missing.message());
        }
        for name in &view.undeclared {
            let title = self.paint.warning(&format!("{:12}", "Undeclared"));
            self.line(&format!("{title}  the parameter `{name}`; it is passed on as it is"));
        }
        for what in &view.unknown {
            self.row("Unknown", what);
        }
    }

    fn row(&mut self, title: &str, text: &str) {
        let title = self.paint.title(&format!("{title:12}"));
        self.line(&format!("{title}  {text}"));
    }
}

fn confined(confined: &Confined) -> String {
    let writes = "steps write in their workspace, those that only read what they give";
    match (confined.enforced, &confined.why, confined.allowed) {
        (Some(Enforcement::Full), ..) => format!("by the system: {writes}"),
        (Some(Enforcement::WritesOnly), ..) => {
            format!(
                "by the system in part: {writes}; a worker can reach the state folder, so gates are refused"
            )
        }
        (None, why, allowed) => {
            let then = if allowed { "are not kept to what they may do" } else { "are refused" };
            format!("no: {}; steps {then}", why.as_deref().unwrap_or_default())
        }
    }
}

/// Steps in a row; of a long one, how it begins and ends.
fn way(steps: &[String]) -> String {
    const ENDS: usize = 6;
    if steps.len() <= 2 * ENDS {
        return steps.join(" → ");
    }
    let (first, last) = (&steps[..ENDS], &steps[steps.len() - ENDS..]);
    format!("{} → … {} more … → {}", first.join(" → "), steps.len() - 2 * ENDS, last.join(" → "))
}

fn time(path: &Longest, most: Option<u64>) -> String {
    if let Some(ms) = path.time_ms {
        return format!("at most {} if nothing is done twice; gates and waits not counted", length(ms));
    }
    let have = if path.without_timeout.len() == 1 { "has" } else { "have" };
    let stop = most.map(|ms| format!("; the run stops after {}", length(ms))).unwrap_or_default();
    format!("unknown: {} {have} no timeout{stop}", few(&path.without_timeout, "and"))
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
    facts.extend(limits.budget.as_ref().map(budget));
    facts.join(", ")
}

fn estimate(estimate: &Estimate) -> String {
    if estimate.agent_starts_at_most == Some(0) && estimate.per_item.is_empty() {
        return "no agent is started, so no tokens are used".to_owned();
    }
    let starts = match estimate.agent_starts_at_most {
        Some(1) => "at most 1 agent start".to_owned(),
        Some(starts) => format!("at most {} agent starts", grouped(starts)),
        None => "no upper bound of agent starts".to_owned(),
    };
    let each = |n: u64, item: &PerItem| format!(" and {} for each item of {}", grouped(n), item.step);
    let mut text = starts;
    estimate.per_item.iter().for_each(|item| text += &each(item.agent_starts, item));
    if let Some(tokens) = estimate.tokens_at_most {
        let _ = write!(text, ", so about {} tokens", grouped(tokens));
        estimate.per_item.iter().for_each(|item| text += &each(item.tokens, item));
    }
    if let Some(usd) = estimate.usd_at_most {
        let _ = write!(text, " or ${usd:.2}");
    }
    format!("{text} (assuming {})", listed(&estimate.assumes, "and"))
}
