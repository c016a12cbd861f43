//! `skein plan`: what a run would do.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use skein_core::{
    ir::Kind,
    plan::{Plan, Problem, ProblemCode},
};
use skein_dialects::{Diagnostic, render};
use skein_host::{crew::is_repository, wall};

use super::load::{Loaded, invalid, load};
use crate::{exit::Exit, output::Output, parameters, plan::PlanView};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// A file, or the name of a workflow of the project.
    pub workflow: String,
    /// A parameter, read by its declared type.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// A JSON object of parameters.
    #[arg(long = "params", value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, output: Output) -> Exit {
    match plan(arguments, output) {
        Ok((loaded, view)) => {
            print(&loaded, &view, output);
            Exit::Done
        }
        Err(exit) => exit,
    }
}

fn plan(arguments: &Arguments, output: Output) -> Result<(Loaded, PlanView), Exit> {
    let (loaded, plan) = bound(arguments, output)?;
    let walls = std::env::current_exe().map_err(|error| error.to_string()).and_then(|exe| wall::here(&exe));
    let mut view = PlanView::of(&plan, &loaded.project.config, walls);
    view.no_worktrees = no_worktrees(&plan, &loaded.project.root);
    Ok((loaded, view))
}

/// Why steps cannot have the worktrees that they want.
fn no_worktrees(plan: &Plan, project: &Path) -> Option<String> {
    let mut steps = plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let wanted = steps.any(|step| matches!(&step.kind, Kind::Work(work) if work.isolation.worktree));
    (wanted && !is_repository(project))
        .then(|| "cannot be had: the project is in no git repository".to_owned())
}

/// The workflow that was named, with the parameters that were given.
pub fn bound(arguments: &Arguments, output: Output) -> Result<(Loaded, Plan), Exit> {
    let loaded = load(&arguments.workflow, output)?;
    let report = &loaded.report;
    let Some(definition) = &report.definition else {
        return Err(invalid(&report.diagnostics, output));
    };
    let schema = &definition.root().workflow.inputs;
    let given = parameters::read(&arguments.parameters, arguments.file.as_deref(), schema)
        .map_err(|why| output.refuse(Exit::Usage, &why, None))?;
    let plan = definition.bind(given).map_err(|problems| misgiven(&problems, output))?;
    Ok((loaded, plan))
}

/// Says what is wrong with the parameters.
fn misgiven(problems: &[Problem], output: Output) -> Exit {
    let told: Vec<String> = problems.iter().map(told).collect();
    let hint = problems.iter().find_map(|problem| problem.hint.clone());
    let missing = problems.iter().find(|problem| problem.code == ProblemCode::MissingParameter);
    let give = missing.map(|problem| format!("give it with `--param {}=VALUE`", name(problem)));
    output.refuse(Exit::Usage, &told.join("; "), hint.or(give).as_deref())
}

/// A value that does not fit is told with the parameter that it was given for.
fn told(problem: &Problem) -> String {
    match (problem.code, name(problem)) {
        (ProblemCode::BadParameter, name) if !name.is_empty() => {
            format!("the parameter `{name}`: {}", problem.message)
        }
        _ => problem.message.clone(),
    }
}

/// The parameter that a problem is about, or a value within it.
fn name(problem: &Problem) -> &str {
    problem.at.field.strip_prefix("parameters.").unwrap_or_default()
}

fn print(loaded: &Loaded, view: &PlanView, output: Output) {
    let report = &loaded.report;
    if output.is_json() {
        let objects = |list: &[Diagnostic]| list.iter().map(render::object).collect::<Vec<Value>>();
        let mut value = json!(view);
        value["diagnostics"] = Value::from(objects(&report.diagnostics));
        value["notes"] = Value::from(objects(&report.notes));
        return output.json(&value);
    }
    let mut text = crate::plan::text(view, output.paint);
    for note in report.diagnostics.iter().chain(&report.notes) {
        let word = if note.severity == skein_core::plan::Severity::Note {
            output.paint.title(&format!("{:12}", "Note"))
        } else {
            output.paint.warning(&format!("{:12}", "Warning"))
        };
        let place = note.place();
        let position = place.source.position(place.span.start);
        let aside = format!("[{} at {}:{}]", note.code, place.source.name, position.line);
        text += &format!("{word}  {} {}\n", note.message, output.paint.faint(&aside));
    }
    output.text(&text);
}
