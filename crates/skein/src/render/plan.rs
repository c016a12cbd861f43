//! A plan as text for people.

use std::fmt::Write;

use skein_app::plan::{
    BatchKind, ConfinementView, CostEstimate, InnerBatches, ItemEstimate, LongestPath, PlanBatch, PlanStepView,
    PlanView,
    facts::{describe_budget, describe_step, list_few, shorten_text},
    wording::{format_length, join_words},
};
use skein_core::plan::group_digits;
use skein_host::sandbox::SandboxEnforcement;
use unicode_width::UnicodeWidthStr;

use crate::render::output::Paint;

/// Renders the whole plan.
pub(crate) fn render_plan(view: &PlanView, paint: Paint) -> String {
    let mut page = PlanPage { paint, text: String::new() };
    page.write_head(view);
    page.write_batches(&view.batches, 0);
    page.write_foot(view);
    page.text
}

/// A name with more columns gets a line of its own.
const WIDEST: usize = 28;

/// Returns the width of the column of names, limited to the maximum.
fn name_width<'a>(steps: impl IntoIterator<Item = &'a PlanStepView>) -> usize {
    steps.into_iter().map(|step| step.id.width()).max().unwrap_or_default().min(WIDEST)
}

struct PlanPage {
    paint: Paint,
    text: String,
}

impl PlanPage {
    fn write_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn write_head(&mut self, view: &PlanView) {
        let workflow = &view.workflow;
        let version = workflow.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        let hash: String = workflow.hash.chars().take(12).collect();
        let aside = self.paint.faint(&format!("{}, plan {hash}", workflow.dialect));
        self.write_line(&format!("{}{version}  {aside}", self.paint.title(&workflow.id)));
        if let Some(name) = workflow.name.as_ref().filter(|name| **name != workflow.id) {
            self.write_line(name);
        }
        if let Some(description) = &workflow.description {
            description.trim().lines().for_each(|line| self.write_line(line));
        }
        if let Some(parameters) = view.parameters.as_object().filter(|parameters| !parameters.is_empty()) {
            let shown = parameters.iter().map(|(name, value)| shorten_text(&format!("{name}={value}")));
            self.write_line(&format!("with {}", shown.collect::<Vec<_>>().join(" ")));
        }
    }

    fn write_batches(&mut self, batches: &[PlanBatch], depth: usize) {
        let indent = " ".repeat(depth);
        // A single step inside another step needs no heading.
        if let ([PlanBatch { sort: BatchKind::Sequential, steps, .. }], 1..) = (batches, depth) {
            return steps.iter().for_each(|step| self.write_step(step, depth, name_width([step])));
        }
        for batch in batches {
            let sort = match batch.sort {
                BatchKind::Gate => " (gate)",
                BatchKind::Conditional if batch.steps.len() > 1 => " (one of these)",
                BatchKind::Conditional => " (conditional)",
                BatchKind::Parallel => " (parallel)",
                BatchKind::Sequential => "",
            };
            if depth == 0 {
                self.write_line("");
            }
            self.write_line(&format!("{indent}{}", self.paint.faint(&format!("Batch {}{sort}", batch.number))));
            let width = name_width(&batch.steps);
            batch.steps.iter().for_each(|step| self.write_step(step, depth + 2, width));
        }
    }

    fn write_step(&mut self, step: &PlanStepView, depth: usize, width: usize) {
        let mut facts = describe_step(step).into_iter();
        let first = facts.next().unwrap_or_default();
        let (name, indent) = (self.paint.name(&step.id), depth + width + 2);
        match (width + 2).checked_sub(step.id.width()) {
            Some(gap @ 2..) => self.write_line(&format!("{:depth$}{name}{:gap$}{first}", "", "")),
            _ => {
                self.write_line(&format!("{:depth$}{name}", ""));
                self.write_line(&format!("{:indent$}{first}", ""));
            }
        }
        let name = step.name.as_ref().filter(|name| name.as_str() != step.id);
        for text in name.into_iter().chain(&step.description) {
            self.write_line(&format!("{:indent$}{}", "", self.paint.faint(&shorten_text(text))));
        }
        for fact in facts {
            self.write_line(&format!("{:indent$}{fact}", ""));
        }
        for InnerBatches { label, batches } in &step.inside {
            self.write_line(&format!("{:indent$}{}", "", self.paint.faint(label), indent = depth + 2));
            self.write_batches(batches, depth + 4);
        }
    }

    fn write_foot(&mut self, view: &PlanView) {
        self.write_line("");
        self.write_row("Longest path", &render_path(&view.longest_path.steps));
        self.write_row("Time", &describe_time(&view.longest_path, view.limits.timeout_ms));
        self.write_row("Limits", &describe_limits(view));
        for hook in &view.hooks {
            self.write_row("Hook", &hook.describe_hook());
        }
        self.write_row("Estimate", &describe_estimate(&view.estimate));
        self.write_row("Confined", &describe_confinement(&view.confined));
        if let Some(why) = &view.no_worktrees {
            self.write_row("Worktrees", why);
        }
        for missing in &view.not_passed {
            self.write_row("Environment", &missing.message());
        }
        for name in &view.undeclared {
            let title = self.paint.warning(&format!("{:12}", "Undeclared"));
            self.write_line(&format!("{title}  the parameter `{name}`; it is passed on unchanged"));
        }
        for what in &view.unknown {
            self.write_row("Unknown", what);
        }
    }

    fn write_row(&mut self, title: &str, text: &str) {
        let title = self.paint.title(&format!("{title:12}"));
        self.write_line(&format!("{title}  {text}"));
    }
}

fn describe_confinement(confined: &ConfinementView) -> String {
    let writes = "steps write in their workspace, those that only read what they give";
    match (confined.enforced, &confined.why, confined.allowed) {
        (Some(SandboxEnforcement::Full), ..) => format!("by the system: {writes}"),
        (Some(SandboxEnforcement::WritesOnly), ..) => {
            format!("by the system in part: {writes}; a worker can reach the state folder, so gates are refused")
        }
        (None, why, allowed) => {
            let then = if allowed { "are not confined" } else { "are refused" };
            format!("no: {}; steps {then}", why.as_deref().unwrap_or_default())
        }
    }
}

/// Renders a path of steps; of a long one, only its beginning and end.
fn render_path(steps: &[String]) -> String {
    const ENDS: usize = 6;
    if steps.len() <= 2 * ENDS {
        return steps.join(" → ");
    }
    let (first, last) = (&steps[..ENDS], &steps[steps.len() - ENDS..]);
    format!("{} → … {} more … → {}", first.join(" → "), steps.len() - 2 * ENDS, last.join(" → "))
}

fn describe_time(path: &LongestPath, most: Option<u64>) -> String {
    if let Some(ms) = path.time_ms {
        return format!("at most {} if nothing is done twice; gates and waits not counted", format_length(ms));
    }
    let have = if path.without_timeout.len() == 1 { "has" } else { "have" };
    let stop = most.map(|ms| format!("; the run stops after {}", format_length(ms))).unwrap_or_default();
    format!("unknown: {} {have} no timeout{stop}", list_few(&path.without_timeout, "and"))
}

fn describe_limits(view: &PlanView) -> String {
    let limits = &view.limits;
    let mut facts: Vec<String> = Vec::new();
    facts.push(
        limits
            .timeout_ms
            .map_or("no timeout for the run".to_owned(), |ms| format!("{} for the run", format_length(ms))),
    );
    facts.extend(limits.concurrency.map(|n| format!("{n} step{} at once", if n == 1 { "" } else { "s" })));
    facts.extend(limits.max_steps.map(|n| format!("{n} steps in all")));
    facts.extend(limits.budget.as_ref().map(describe_budget));
    facts.join(", ")
}

fn describe_estimate(estimate: &CostEstimate) -> String {
    if estimate.agent_starts_at_most == Some(0) && estimate.per_item.is_empty() {
        return "no agent is started, so no tokens are used".to_owned();
    }
    let starts = match estimate.agent_starts_at_most {
        Some(1) => "at most 1 agent start".to_owned(),
        Some(starts) => format!("at most {} agent starts", group_digits(starts)),
        None => "no upper bound on agent starts".to_owned(),
    };
    let each = |n: u64, item: &ItemEstimate| format!(" and {} for each item of {}", group_digits(n), item.step);
    let mut text = starts;
    estimate.per_item.iter().for_each(|item| text += &each(item.agent_starts, item));
    if let Some(tokens) = estimate.tokens_at_most {
        let _ = write!(text, ", so about {} tokens", group_digits(tokens));
        estimate.per_item.iter().for_each(|item| text += &each(item.tokens, item));
    }
    if let Some(usd) = estimate.usd_at_most {
        let _ = write!(text, " or ${usd:.2}");
    }
    format!("{text} (assuming {})", join_words(&estimate.assumes, "and"))
}
