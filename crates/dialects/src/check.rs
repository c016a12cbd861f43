//! Checks a source: reads it and all sources that it calls, runs the checks of the plan, and orders the diagnostics by
//! file.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use skein_core::{
    ids::StepId,
    ir::Workflow,
    plan::{
        self, Plan, PlanDefinition, PlanField, PlanProblem, ProblemCode, ProblemLocation, Severity, WorkflowLibrary,
    },
    terms::WorkflowTerms,
};

use crate::{
    agentcore, aip15,
    catalog::Project,
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile, SourcePosition},
    extensions::{checks, conflict_resolver},
    ioa,
    lowering::{DialectTerms, LoweredSource, OverriddenField},
    policy::{lowering, secret_access},
    source::{DetectedSource, Dialect, SourceMap, detect_dialect, load},
    swdl,
};

/// The result of checking a source.
#[derive(Debug)]
pub struct SourceReport {
    /// None for a source that is none of the four formats.
    pub dialect: Option<Dialect>,
    pub workflow: Option<Arc<Workflow>>,
    /// None if there is an error.
    pub definition: Option<Arc<PlanDefinition>>,
    /// Errors and warnings, of the source first, then of each source that it calls.
    pub diagnostics: Vec<Diagnostic>,
    /// Facts that are no warnings but useful to know before a run.
    pub notes: Vec<Diagnostic>,
    /// The values that the project's overrides replace.
    pub overridden: Vec<OverriddenField>,
    /// The map from the workflow back to the source.
    pub(crate) back: Option<(SourceMap, &'static DialectTerms)>,
}

impl SourceReport {
    /// The report of a source that could not be read.
    pub fn from_read_error(diagnostic: Diagnostic) -> SourceReport {
        SourceReport {
            dialect: None,
            workflow: None,
            definition: None,
            diagnostics: vec![diagnostic],
            notes: Vec::new(),
            overridden: Vec::new(),
            back: None,
        }
    }

    pub fn is_valid(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// Returns the position of a step in the source.
    pub fn step_position(&self, step: &StepId) -> Option<SourcePosition> {
        let node = self.back.as_ref()?.0.step_node(step)?;
        Some(node.source().position(node.first_line_span().start))
    }

    /// Returns the plan of a run with these parameters, or the problems with them. None if the source has errors.
    pub fn bind(&self, parameters: Value) -> Option<Result<Plan, Vec<Diagnostic>>> {
        let (definition, (places, terms)) = (self.definition.as_ref()?, self.back.as_ref()?);
        let diagnose = |problems: Vec<PlanProblem>| {
            problems.iter().map(|problem| terms.diagnose_problem(problem, places)).collect()
        };
        Some(definition.bind_with_terms(parameters, &terms.words).map_err(diagnose))
    }
}

/// Checks a source and all sources that it calls.
pub fn check_source(source: Arc<SourceFile>, project: &dyn Project) -> SourceReport {
    let mut files = SourceChecker { project, read: Vec::new(), numbers: BTreeMap::new() };
    files.add_source(source);
    let mut next = 0;
    while next < files.read.len() {
        let calls = files.read[next].file.as_mut().map(|file| std::mem::take(&mut file.calls));
        calls.unwrap_or_default().into_iter().for_each(|source| files.add_source(source));
        next += 1;
    }
    files.into_report()
}

/// Reads one source by itself.
fn read_source(
    source: &Arc<SourceFile>,
    project: &dyn Project,
) -> (DiagnosticSink, Option<Dialect>, Option<LoweredSource>) {
    let mut sink = DiagnosticSink::new(source.clone());
    if let Some(diagnostic) = load::diagnose_size(source) {
        let stop = diagnostic.is_error();
        sink.push(diagnostic);
        if stop {
            return (sink, None, None);
        }
    }
    let Some(DetectedSource { dialect, tree }) = detect_dialect(&mut sink) else { return (sink, None, None) };
    let mut lowered = match dialect {
        Dialect::AgentCore => agentcore::lower(tree, &mut sink, project),
        Dialect::Aip15 => aip15::lower(tree, &mut sink, project),
        Dialect::Ioa => ioa::lower(tree, &mut sink, project),
        Dialect::Swdl => swdl::lower(tree, &mut sink, project),
    };
    if let Some(lowered) = &mut lowered {
        check_lowered(dialect, lowered, project, &mut sink);
    }
    (sink, Some(dialect), lowered)
}

/// Checks a lowered source beside the project's policies and secrets, and links the resolvers of conflicts.
fn check_lowered(dialect: Dialect, lowered: &mut LoweredSource, project: &dyn Project, sink: &mut DiagnosticSink) {
    checks::check_extensions(dialect, lowered, sink);
    lowering::apply_policies(dialect, lowered, project, sink);
    secret_access::check_secret_access(lowered, project, sink);
    let conflict = checks::find_conflict_resolver(dialect, lowered);
    if !conflict_resolver::link_resolvers(conflict.as_ref(), &mut lowered.workflow) {
        checks::warn_unused_resolver(dialect, lowered, sink);
    }
}

/// Warns of files in a called workflow: only those of the workflow that is run are staged and collected.
fn warn_of_files(called: &Workflow, source: &Arc<SourceFile>, sink: &mut DiagnosticSink) {
    if called.files_in.is_empty() && called.files_out.is_empty() {
        return;
    }
    let message = "when this workflow is called, its files are neither staged nor collected";
    let span = skein_core::expr::ExprSpan::default();
    let diagnostic = Diagnostic::new(Code::IgnoredField, source, span, message.to_owned());
    sink.push(diagnostic.with_hint("declare them in the workflow that calls it, and pass them on as inputs"));
}

/// A source that has been read.
struct CheckedSource {
    dialect: Option<Dialect>,
    sink: DiagnosticSink,
    file: Option<SourceWorkflow>,
}

struct SourceWorkflow {
    workflow: Arc<Workflow>,
    places: SourceMap,
    terms: &'static DialectTerms,
    calls: Vec<Arc<SourceFile>>,
    overridden: Vec<OverriddenField>,
}

struct SourceChecker<'a> {
    project: &'a dyn Project,
    read: Vec<CheckedSource>,
    numbers: BTreeMap<String, usize>,
}

impl WorkflowLibrary for SourceChecker<'_> {
    fn find_workflow(&self, name: &str) -> Option<Arc<Workflow>> {
        self.find_file(Some(name)).map(|file| file.workflow.clone())
    }

    fn workflow_names(&self) -> Vec<String> {
        self.numbers.keys().cloned().collect()
    }

    fn workflow_terms(&self, name: Option<&str>) -> &'static WorkflowTerms {
        self.find_file(name).map_or(&WorkflowTerms::IR, |file| &file.terms.words)
    }
}

impl SourceChecker<'_> {
    /// Returns the workflow of the source with this key; the root for none.
    fn find_file(&self, name: Option<&str>) -> Option<&SourceWorkflow> {
        let number = name.map_or(Some(0), |name| self.numbers.get(name).copied())?;
        self.read[number].file.as_ref()
    }

    fn add_source(&mut self, source: Arc<SourceFile>) {
        if self.numbers.contains_key(&source.key) {
            return;
        }
        self.numbers.insert(source.key.clone(), self.read.len());
        let (mut sink, dialect, lowered) = read_source(&source, self.project);
        if let Some(lowered) = lowered.as_ref().filter(|_| !self.read.is_empty()) {
            warn_of_files(&lowered.workflow, &source, &mut sink);
        }
        let file = lowered.map(|lowered| {
            let LoweredSource { workflow, mut places, terms, calls, overridden, .. } = lowered;
            places.set_reported(sink.label_starts());
            SourceWorkflow { workflow: Arc::new(workflow), places, terms, calls, overridden }
        });
        self.read.push(CheckedSource { dialect, sink, file });
    }

    /// Plans the workflows that were read. If any source could not be read, the plan is skipped.
    fn into_report(mut self) -> SourceReport {
        let dialect = self.read[0].dialect;
        let workflow = self.read[0].file.as_ref().map(|file| file.workflow.clone());
        let mut definition = None;
        if let Some(root) = workflow.clone().filter(|_| self.read.iter().all(|read| read.file.is_some())) {
            let checked = plan::check_workflow(root, &self);
            definition = checked.definition;
            self.report_problems(&checked.problems);
        }
        let errors = self.read.iter().any(|read| read.sink.has_errors());
        let files = self.read.iter_mut().filter_map(|read| read.file.as_mut());
        let overridden = files.flat_map(|file| std::mem::take(&mut file.overridden)).collect();
        let back = self.read[0].file.take().map(|file| (file.places, file.terms));
        let all = self.read.into_iter().flat_map(|read| read.sink.into_diagnostics());
        let (notes, diagnostics) = all.partition(|diagnostic| diagnostic.severity == Severity::Note);
        let definition = definition.filter(|_| !errors);
        SourceReport { dialect, workflow, definition, diagnostics, notes, overridden, back }
    }

    fn report_problems(&mut self, problems: &[PlanProblem]) {
        let broken = self.read.iter().any(|read| read.sink.has_errors())
            || problems.iter().any(|problem| self.is_error(problem));
        // Computed before any problem is reported: only read errors count as causes.
        let follows: Vec<bool> = problems.iter().map(|problem| self.is_consequence(problem)).collect();
        for (problem, _) in problems.iter().zip(follows).filter(|(_, follows)| !follows) {
            // In a source with errors, a warning may be a consequence of an error.
            if broken && !self.is_error(problem) {
                continue;
            }
            let number = self.source_index(problem);
            let read = &mut self.read[number];
            match &read.file {
                // The sink keeps its own count and reports the sum.
                Some(file) if problem.more > 0 => {
                    read.sink.count_omitted(file.terms.problem_code(problem), problem.more)
                }
                Some(file) => read.sink.push(file.terms.diagnose_problem(problem, &file.places)),
                None => {}
            }
        }
    }

    /// True if a problem may only be a consequence of a read error in its field or in an item of the same list, or if
    /// its field is not written at all.
    fn is_consequence(&self, problem: &PlanProblem) -> bool {
        let CheckedSource { sink, file: Some(file), .. } = &self.read[self.source_index(problem)] else {
            return false;
        };
        // A timeout that the source does not set is the format's default; the run's timeout limits it anyway.
        if problem.code == ProblemCode::StepOutlivesRun && file.places.find_node(&problem.at).is_none() {
            return true;
        }
        let order = matches!(problem.code, ProblemCode::NotBefore | ProblemCode::ArtifactNotBefore);
        let waits = order.then(|| ProblemLocation { field: PlanField::After.into(), ..problem.at.clone() });
        let causes = problem.related.iter().map(|(at, _)| at).chain(&waits);
        let causes = causes.filter_map(|at| file.places.find_node(at)).map(|node| (node, node.span()));
        let mut parts = file.places.find_artifacts_until(&problem.at).into_iter().chain(causes);
        sink.has_errors() && parts.any(|(node, span)| sink.has_error_in(node.source(), span))
    }

    /// The source that a problem is in.
    fn source_index(&self, problem: &PlanProblem) -> usize {
        problem.at.workflow.as_ref().and_then(|name| self.numbers.get(name)).copied().unwrap_or(0)
    }

    fn is_error(&self, problem: &PlanProblem) -> bool {
        let file = self.read[self.source_index(problem)].file.as_ref();
        file.map_or(problem.is_error(), |file| file.terms.is_error(problem))
    }
}
