//! The workflows of a project: loaded by path or name, listed, shown, drawn and planned.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use serde_json::{Value, json};
use skein_core::{
    ir::{Schema, StepKindSpec, Workflow},
    plan::{Plan, PlanField, PlanProblem, ProblemCode},
    suggest::did_you_mean,
    view::{GraphView, build_graph},
};
use skein_dialects::{CatalogKind, Diagnostic, Dialect, OverriddenField, Project, SourceReport, check_source, render};
use skein_host::{
    executor::is_repository,
    workspace::{ROOT_PARAMETER, has_files, with_root_parameter},
};

use crate::{
    app::App,
    app_error::AppError,
    plan::PlanView,
    prepare::{agent_config, probe, resolve::ToolResolutions, run_inputs},
    project::{
        DiskProject,
        catalog::{self, CatalogListing},
        config,
    },
};

/// A workflow and its parameters.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// A file, or the name of a workflow of the project.
    pub workflow: String,
    /// Parameters as `name=value`, each parsed by its declared type.
    pub parameters: Vec<String>,
    /// A file with a JSON object of parameters.
    pub parameter_file: Option<PathBuf>,
}

/// A workflow that was found, and the project that it is used in.
#[derive(Debug)]
pub(crate) struct LoadedWorkflow {
    pub project: DiskProject,
    pub report: SourceReport,
}

/// Finds a workflow by path or name and checks it.
pub(crate) fn load_workflow(app: &App, text: &str) -> Result<LoadedWorkflow, AppError> {
    let project = app.open_project()?;
    let path = find_workflow_file(&project, text)?;
    if let Some(warning) = other_project_warning(&project, &path) {
        app.warn(&warning);
    }
    let source = project.read_workflow_source(&path)?;
    Ok(LoadedWorkflow { report: check_source(source, &project), project })
}

/// Finds the file of a workflow by path or name.
fn find_workflow_file(project: &DiskProject, text: &str) -> Result<PathBuf, AppError> {
    project.locate_workflow(text).map_err(|missing| {
        let hint = did_you_mean(text, missing.known.iter().map(String::as_str));
        let message = format!("there is no workflow `{text}`: {}", missing.why);
        AppError::refused(message).with_optional_hint(hint)
    })
}

/// Returns a warning for a workflow in another project, whose configuration is not read.
pub(crate) fn other_project_warning(project: &DiskProject, file: &Path) -> Option<String> {
    let other = DiskProject::find_other_root(&project.root, file)?;
    Some(format!(
        "`{}` is not read, because the project is `{}`; to use the other one, add `--project {}`",
        project.display_path(&other.join(config::NAME)),
        project.root.display(),
        project.display_path(&other)
    ))
}

/// A workflow in the list of a project.
#[derive(Debug, Serialize)]
pub struct WorkflowListEntry {
    pub name: String,
    #[serde(rename = "file")]
    pub path: String,
    pub dialect: Option<&'static str>,
    pub version: Option<String>,
    pub description: Option<String>,
    pub valid: bool,
}

/// Lists the workflows of the project.
pub fn list_workflows(app: &App) -> Result<Vec<WorkflowListEntry>, AppError> {
    let project = app.open_project()?;
    let entries = project.workflows().iter().map(|named| {
        let report = project.read_source(&named.path).ok().map(|source| check_source(source, &project));
        let workflow = report.as_ref().and_then(|report| report.workflow.as_deref());
        WorkflowListEntry {
            name: named.name.clone(),
            path: project.display_path(&named.path),
            dialect: report.as_ref().and_then(|report| report.dialect).map(Dialect::as_str),
            version: workflow.and_then(|workflow| workflow.version.clone()),
            description: workflow.and_then(|workflow| workflow.description.clone()),
            valid: report.as_ref().is_some_and(SourceReport::is_valid),
        }
    });
    Ok(entries.collect())
}

/// Lists the catalog entries of a kind, or of all kinds, or finds those with a name. A word that is no kind is a name.
pub fn list_catalog(app: &App, kind: Option<&str>, name: Option<&str>) -> Result<CatalogListing, AppError> {
    catalog::list_catalog(app.open_project()?, kind, name)
}

/// A valid workflow, as it is written.
#[derive(Debug, Serialize)]
pub struct WorkflowDescription {
    pub dialect: &'static str,
    pub workflow: Arc<Workflow>,
}

/// Describes a workflow with its inputs, outputs and steps.
pub fn describe_workflow(app: &App, text: &str) -> Result<WorkflowDescription, AppError> {
    let report = load_workflow(app, text)?.report;
    match (&report.workflow, report.dialect, report.is_valid()) {
        (Some(workflow), Some(dialect), true) => {
            Ok(WorkflowDescription { dialect: dialect.as_str(), workflow: workflow.clone() })
        }
        _ => Err(AppError::invalid_source(report.diagnostics)),
    }
}

/// Returns the graph of the steps of a workflow.
pub fn graph_workflow(app: &App, text: &str) -> Result<GraphView, AppError> {
    let report = load_workflow(app, text)?.report;
    match &report.definition {
        Some(definition) => Ok(build_graph(definition, None)),
        None => Err(AppError::invalid_source(report.diagnostics)),
    }
}

/// The plan of a workflow, and the findings about its source.
#[derive(Debug)]
pub struct PlannedWorkflow {
    pub view: PlanView,
    pub diagnostics: Vec<Diagnostic>,
    /// Fields of the workflow that the project replaced.
    pub overridden: Vec<OverriddenField>,
    pub notes: Vec<Diagnostic>,
}

/// Plans a run, without running anything.
pub fn plan_workflow(app: &App, request: &PlanRequest) -> Result<PlannedWorkflow, AppError> {
    let (loaded, plan) = bind_workflow(app, request, |_| Ok(None))?;
    let enforced = probe::machine_enforcement();
    // If no tools are defined at all, one warning reports that instead of one for every step.
    let found = match loaded.project.shelf(CatalogKind::Tool).entries() {
        [] => ToolResolutions::default(),
        _ => ToolResolutions::resolve_plan(&plan, &loaded.project),
    };
    let agents = agent_config::resolve_agents(&plan, &loaded.project);
    let mut view = PlanView::from_plan(&plan, &agents, &found, enforced);
    view.no_worktrees = check_worktrees(&plan, &loaded.project.root);
    let SourceReport { diagnostics, overridden, notes, .. } = loaded.report;
    Ok(PlannedWorkflow { view, diagnostics, overridden, notes })
}

impl PlannedWorkflow {
    pub fn to_json(&self) -> Value {
        let objects = |list: &[Diagnostic]| list.iter().map(render::render_json).collect::<Vec<Value>>();
        let mut value = json!(self.view);
        value["diagnostics"] = Value::from(objects(&self.diagnostics));
        if !self.overridden.is_empty() {
            value["overridden"] = self.overridden.iter().map(override_to_json).collect();
        }
        value["notes"] = Value::from(objects(&self.notes));
        value
    }
}

/// Returns a value that the project has put in the place of the workflow's, and the place of its definition.
fn override_to_json(field: &OverriddenField) -> Value {
    let at = field.source.position(field.span.start);
    json!({
        "field": field.field,
        "value": field.value,
        "before": field.before,
        "file": field.source.name,
        "line": at.line,
        "column": at.column,
    })
}

/// Returns the reason why steps cannot have the worktrees that they request.
fn check_worktrees(plan: &Plan, project: &Path) -> Option<String> {
    let mut steps = plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let wanted = steps.any(|step| matches!(&step.kind, StepKindSpec::Work(work) if work.isolation.worktree));
    (wanted && !is_repository(project)).then(|| "not available: the project is not in a git repository".to_owned())
}

/// Loads the named workflow and binds the given parameters. A workflow with files gets the folder of its files.
pub(crate) fn bind_workflow(
    app: &App,
    request: &PlanRequest,
    files_root: impl FnOnce(&DiskProject) -> Result<Option<PathBuf>, AppError>,
) -> Result<(LoadedWorkflow, Plan), AppError> {
    let loaded = load_workflow(app, &request.workflow)?;
    let report = &loaded.report;
    let Some(definition) = &report.definition else {
        return Err(AppError::invalid_source(report.diagnostics.clone()));
    };
    let schema = &definition.root().workflow.inputs;
    let given = run_inputs::read_parameters(&request.parameters, request.parameter_file.as_deref(), schema)?;
    let given = match has_files(&definition.root().workflow) {
        true => add_files_root(given, files_root(&loaded.project)?, schema),
        false => given,
    };
    let (principal, now) = (loaded.project.current_principal(), loaded.project.now());
    let plan = definition
        .bind_for(given.clone(), &principal, now)
        .map_err(|problems| refuse_parameters(&problems, &given, schema))?;
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
        names.filter(|name| !run_inputs::accepts_parameter(&workflow.inputs, name)).collect();
    let Some(first) = undeclared.first() else { return Ok(()) };
    let quoted: Vec<String> = undeclared.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("workflow `{}` declares no parameter {}", workflow.id, quoted.join(", "));
    let known: Vec<&str> = workflow.inputs.properties().map(|(name, _)| name.as_str()).collect();
    let hint = did_you_mean(first, known.iter().copied()).unwrap_or_else(|| match known.is_empty() {
        true => "it takes no parameters".to_owned(),
        false => format!("it declares {}", known.join(", ")),
    });
    Err(AppError::usage(message).with_hint(hint))
}

/// Reports problems with the parameters.
pub(crate) fn refuse_parameters(problems: &[PlanProblem], given: &Value, schema: &Schema) -> AppError {
    let messages: Vec<String> = problems.iter().map(describe_problem).collect();
    let hint = problems.iter().find_map(|problem| problem.hint.clone());
    let missing = problems.iter().find(|problem| problem.code == ProblemCode::MissingParameter);
    let give = missing.map(|problem| format!("set it with `--param {}=VALUE`", parameter_name(problem)));
    let as_json =
        || problems.iter().find_map(|problem| run_inputs::suggest_json(&parameter_name(problem), given, schema));
    AppError::usage(messages.join("; ")).with_optional_hint(hint.or(give).or_else(as_json))
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
fn parameter_name(problem: &PlanProblem) -> String {
    problem.at.field.strip_prefix(PlanField::Parameters).unwrap_or_default().to_string()
}
