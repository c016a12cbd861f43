//! `skein plan`: shows what a run would do.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    agent_config,
    app_error::{AppError, AppErrorKind},
    enforcement, parameters,
    plan::{PlanView, shorten_text},
    project::DiskProject,
    resolve::ToolResolutions,
};
use skein_core::{
    ir::{Schema, StepKindSpec, Workflow},
    plan::{Plan, PlanProblem, ProblemCode},
    suggest::did_you_mean,
};
use skein_dialects::{CatalogKind, Diagnostic, OverriddenField, render};
use skein_host::{
    executor::is_repository,
    workspace::{ROOT_PARAMETER, has_files, with_root_parameter},
};

use super::load::{LoadedWorkflow, load_workflow};
use crate::{exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
#[group(skip)]
pub struct PlanArguments {
    /// File, or name of a workflow of the project.
    pub workflow: String,
    /// Parameter, parsed by its declared type.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// File with a JSON object of parameters.
    #[arg(long = "params", value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn run(arguments: &PlanArguments, output: CliOutput) -> Result<Exit, AppError> {
    let (loaded, view) = build_plan_view(arguments, output)?;
    print_plan(&loaded, &view, output);
    Ok(Exit::Done)
}

fn build_plan_view(
    arguments: &PlanArguments,
    output: CliOutput,
) -> Result<(LoadedWorkflow, PlanView), AppError> {
    let (loaded, plan) = bind_workflow(arguments, |_| Ok(None), output)?;
    let enforced = enforcement::machine_enforcement();
    // If no tools are defined at all, one warning reports that instead of one for every step.
    let found = match loaded.project.shelf(CatalogKind::Tool).entries() {
        [] => ToolResolutions::default(),
        _ => ToolResolutions::resolve_plan(&plan, &loaded.project),
    };
    let mut view =
        PlanView::from_plan(&plan, &agent_config::resolve_agents(&plan, &loaded.project), &found, enforced);
    view.no_worktrees = check_worktrees(&plan, &loaded.project.root);
    Ok((loaded, view))
}

/// Returns the reason why steps cannot have the worktrees that they request.
fn check_worktrees(plan: &Plan, project: &Path) -> Option<String> {
    let mut steps = plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let wanted = steps.any(|step| matches!(&step.kind, StepKindSpec::Work(work) if work.isolation.worktree));
    (wanted && !is_repository(project))
        .then(|| "not available: the project is not in a git repository".to_owned())
}

/// Loads the named workflow and binds the given parameters. A workflow with files gets the folder of its files.
pub fn bind_workflow(
    arguments: &PlanArguments,
    root: impl FnOnce(&DiskProject) -> Result<Option<PathBuf>, AppError>,
    output: CliOutput,
) -> Result<(LoadedWorkflow, Plan), AppError> {
    let loaded = load_workflow(&arguments.workflow, output)?;
    let report = &loaded.report;
    let Some(definition) = &report.definition else {
        return Err(AppError::invalid_source(report.diagnostics.clone()));
    };
    let schema = &definition.root().workflow.inputs;
    let given = parameters::read_parameters(&arguments.parameters, arguments.file.as_deref(), schema)
        .map_err(|why| AppError::new(AppErrorKind::Usage, &why, None))?;
    let given = match has_files(&definition.root().workflow) {
        true => add_files_root(given, root(&loaded.project)?, schema),
        false => given,
    };
    let plan =
        definition.bind(given.clone()).map_err(|problems| refuse_parameters(&problems, &given, schema))?;
    refuse_undeclared(&given, &definition.root().workflow)?;
    Ok((loaded, plan))
}

/// Adds the folder of the files to the parameters. Without a run, it is added only if the schema requires it.
fn add_files_root(given: Value, root: Option<PathBuf>, schema: &Schema) -> Value {
    let needed = schema.required_properties().any(|name| name == ROOT_PARAMETER);
    match root.or_else(|| needed.then(|| PathBuf::from("the run's own folder"))) {
        Some(root) => (*with_root_parameter(&given, &root)).clone(),
        None => given,
    }
}

/// Refuses parameters that the workflow does not declare, unless it takes any.
fn refuse_undeclared(given: &Value, workflow: &Workflow) -> Result<(), AppError> {
    let names = given.as_object().into_iter().flat_map(|given| given.keys());
    let undeclared: Vec<&String> =
        names.filter(|name| !parameters::accepts_parameter(&workflow.inputs, name)).collect();
    let Some(first) = undeclared.first() else { return Ok(()) };
    let quoted: Vec<String> = undeclared.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("workflow `{}` declares no parameter {}", workflow.id, quoted.join(", "));
    let known: Vec<&str> = workflow.inputs.properties().map(|(name, _)| name.as_str()).collect();
    let hint = did_you_mean(first, known.iter().copied()).unwrap_or_else(|| match known.is_empty() {
        true => "it takes no parameters".to_owned(),
        false => format!("it declares {}", known.join(", ")),
    });
    Err(AppError::new(AppErrorKind::Usage, &message, Some(&hint)))
}

/// Reports problems with the parameters.
pub fn refuse_parameters(problems: &[PlanProblem], given: &Value, schema: &Schema) -> AppError {
    let told: Vec<String> = problems.iter().map(describe_problem).collect();
    let hint = problems.iter().find_map(|problem| problem.hint.clone());
    let missing = problems.iter().find(|problem| problem.code == ProblemCode::MissingParameter);
    let give = missing.map(|problem| format!("set it with `--param {}=VALUE`", parameter_name(problem)));
    let as_json = || {
        problems.iter().find_map(|problem| parameters::suggest_json(parameter_name(problem), given, schema))
    };
    AppError::new(AppErrorKind::Usage, &told.join("; "), hint.or(give).or_else(as_json).as_deref())
}

/// Describes a problem. A value of the wrong type is reported with the name of its parameter.
fn describe_problem(problem: &PlanProblem) -> String {
    match (problem.code, parameter_name(problem)) {
        (ProblemCode::BadParameter, name) if !name.is_empty() => {
            format!("the parameter `{name}`: {}", problem.message)
        }
        _ => problem.message.clone(),
    }
}

/// Returns the parameter that a problem is about, or a value within it.
fn parameter_name(problem: &PlanProblem) -> &str {
    problem.at.field.strip_prefix("parameters.").unwrap_or_default()
}

/// Returns a value that the project has put in the place of the workflow's, and the place of its definition.
fn override_to_json(one: &OverriddenField) -> Value {
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

fn print_plan(loaded: &LoadedWorkflow, view: &PlanView, output: CliOutput) {
    let report = &loaded.report;
    if output.is_json() {
        let objects = |list: &[Diagnostic]| list.iter().map(render::render_json).collect::<Vec<Value>>();
        let mut value = json!(view);
        value["diagnostics"] = Value::from(objects(&report.diagnostics));
        if !report.overridden.is_empty() {
            value["overridden"] = report.overridden.iter().map(override_to_json).collect();
        }
        value["notes"] = Value::from(objects(&report.notes));
        return output.print_json(&value);
    }
    let mut text = crate::plan_text::render_plan(view, output.paint);
    for one in &report.overridden {
        let word = output.paint.title(&format!("{:12}", "Overridden"));
        let before =
            one.before.as_ref().map(|value| format!(" instead of {}", shorten_text(&value.to_string())));
        let shown = format!(
            "{} is {}{}",
            one.field,
            shorten_text(&one.value.to_string()),
            before.unwrap_or_default()
        );
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
        let place = note.primary_label();
        let position = place.source.position(place.span.start);
        let aside = format!("[{} at {}:{}]", note.code, place.source.name, position.line);
        text += &format!("{word}  {} {}\n", note.message, output.paint.faint(&aside));
    }
    output.print_text(&text);
}
