//! `skein plan`: what a run would do.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use skein_core::{
    closest::did_you_mean,
    ir::{Kind, Schema, Workflow},
    plan::{Plan, Problem, ProblemCode},
};
use skein_dialects::{Diagnostic, Overridden, Sort, render};
use skein_host::{
    crew::is_repository,
    workspace::{ROOT_PARAMETER, has_files, with_root},
};

use super::load::{Loaded, invalid, load};
use crate::{
    enforcement,
    exit::Exit,
    output::Output,
    parameters, persona,
    plan::{PlanView, short},
    project::OnDisk,
    resolve::Resolutions,
};

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
    let (loaded, plan) = bound(arguments, |_| Ok(None), output)?;
    let enforced = enforcement::of_this_machine();
    // Where no tool is described at all, one warning says so, and not every step.
    let found = match loaded.project.shelf(Sort::Tool).entries() {
        [] => Resolutions::default(),
        _ => Resolutions::of(&plan, &loaded.project),
    };
    let mut view = PlanView::of(&plan, &persona::known(&plan, &loaded.project), &found, enforced);
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

/// The workflow that was named, with the parameters that were given. One that takes or gives files is told where they are.
pub fn bound(
    arguments: &Arguments,
    root: impl FnOnce(&OnDisk) -> Result<Option<PathBuf>, Exit>,
    output: Output,
) -> Result<(Loaded, Plan), Exit> {
    let loaded = load(&arguments.workflow, output)?;
    let report = &loaded.report;
    let Some(definition) = &report.definition else {
        return Err(invalid(&report.diagnostics, output));
    };
    let schema = &definition.root().workflow.inputs;
    let given = parameters::read(&arguments.parameters, arguments.file.as_deref(), schema)
        .map_err(|why| output.refuse(Exit::Usage, &why, None))?;
    let given = match has_files(&definition.root().workflow) {
        true => told_root(given, root(&loaded.project)?, schema),
        false => given,
    };
    let plan =
        definition.bind(given.clone()).map_err(|problems| misgiven(&problems, &given, schema, output))?;
    refuse_undeclared(&given, &definition.root().workflow, output)?;
    Ok((loaded, plan))
}

/// Parameters with the place of the files. Where there is no run, nothing is said of it that need not be.
fn told_root(given: Value, root: Option<PathBuf>, schema: &Schema) -> Value {
    let needed = schema.required().any(|name| name == ROOT_PARAMETER);
    match root.or_else(|| needed.then(|| PathBuf::from("the run's own folder"))) {
        Some(root) => (*with_root(&given, &root)).clone(),
        None => given,
    }
}

/// Refuses parameters that the workflow does not declare, unless it takes any.
fn refuse_undeclared(given: &Value, workflow: &Workflow, output: Output) -> Result<(), Exit> {
    let names = given.as_object().into_iter().flat_map(|given| given.keys());
    let undeclared: Vec<&String> =
        names.filter(|name| !parameters::is_declared(&workflow.inputs, name)).collect();
    let Some(first) = undeclared.first() else { return Ok(()) };
    let quoted: Vec<String> = undeclared.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("workflow `{}` declares no parameter {}", workflow.id, quoted.join(", "));
    let known: Vec<&str> = workflow.inputs.properties().map(|(name, _)| name.as_str()).collect();
    let hint = did_you_mean(first, known.iter().copied()).unwrap_or_else(|| match known.is_empty() {
        true => "it takes no parameters".to_owned(),
        false => format!("it declares {}", known.join(", ")),
    });
    Err(output.refuse(Exit::Usage, &message, Some(&hint)))
}

/// Says what is wrong with the parameters.
pub fn misgiven(problems: &[Problem], given: &Value, schema: &Schema, output: Output) -> Exit {
    let told: Vec<String> = problems.iter().map(told).collect();
    let hint = problems.iter().find_map(|problem| problem.hint.clone());
    let missing = problems.iter().find(|problem| problem.code == ProblemCode::MissingParameter);
    let give = missing.map(|problem| format!("give it with `--param {}=VALUE`", name(problem)));
    let as_json = || problems.iter().find_map(|problem| parameters::as_json(name(problem), given, schema));
    output.refuse(Exit::Usage, &told.join("; "), hint.or(give).or_else(as_json).as_deref())
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

/// A value that the project has put in the place of the workflow's, and where it says so.
fn overridden(one: &Overridden) -> Value {
    let at = one.source.position(one.span.start);
    json!({
        "field": one.field,
        "value": one.value,
        "before": one.before,
        "file": one.source.name,
        "line": at.line,
        "column": at.column,
    })
}

fn print(loaded: &Loaded, view: &PlanView, output: Output) {
    let report = &loaded.report;
    if output.is_json() {
        let objects = |list: &[Diagnostic]| list.iter().map(render::object).collect::<Vec<Value>>();
        let mut value = json!(view);
        value["diagnostics"] = Value::from(objects(&report.diagnostics));
        if !report.overridden.is_empty() {
            value["overridden"] = report.overridden.iter().map(overridden).collect();
        }
        value["notes"] = Value::from(objects(&report.notes));
        return output.json(&value);
    }
    let mut text = crate::plan::text(view, output.paint);
    for one in &report.overridden {
        let word = output.paint.title(&format!("{:12}", "Overridden"));
        let before = one.before.as_ref().map(|value| format!(" instead of {}", short(&value.to_string())));
        let shown =
            format!("{} is {}{}", one.field, short(&one.value.to_string()), before.unwrap_or_default());
        let at = one.source.position(one.span.start);
        let aside = output.paint.faint(&format!("[at {}:{}]", one.source.name, at.line));
        text += &format!("{word}  {shown} {aside}\n");
    }
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
