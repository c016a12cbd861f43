//! From a source to a definition: reads it and everything that it calls, lets the plan check the whole, and puts what
//! there is to say in the order of the files.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use skein_core::{
    ids::StepId,
    ir::Workflow,
    limits,
    plan::{self, At, Definition, Plan, Problem, ProblemCode, Severity},
};

use crate::{
    agentcore, aip15,
    code::Code,
    detect::{Dialect, detect},
    diagnostic::{Diagnostic, Misspelt, Sink},
    extension, govern, ioa, load,
    lowering::{Lowered, Overridden},
    places::Places,
    problem::Voice,
    project::Project,
    reveal, settle,
    source::{Position, Source},
    swdl,
};

/// Everything there is to say about a source.
#[derive(Debug)]
pub struct Report {
    /// None for a source that is none of the four formats.
    pub dialect: Option<Dialect>,
    pub workflow: Option<Arc<Workflow>>,
    /// There is one unless something is an error.
    pub definition: Option<Arc<Definition>>,
    /// Errors and warnings, of the source first, then of each source that it calls.
    pub diagnostics: Vec<Diagnostic>,
    /// What is neither wrong nor unwise, and good to know before a run.
    pub notes: Vec<Diagnostic>,
    /// What the project has put in the place of what the sources say.
    pub overridden: Vec<Overridden>,
    /// The way from the workflow back to the source.
    pub(crate) back: Option<(Places, &'static Voice)>,
}

impl Report {
    /// Of a source that could not even be read.
    pub fn unread(diagnostic: Diagnostic) -> Report {
        Report {
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

    /// Where a step of the source stands in it.
    pub fn position(&self, step: &StepId) -> Option<Position> {
        let node = self.back.as_ref()?.0.node(step)?;
        Some(node.source().position(node.mark().start))
    }

    /// The plan of a run with these parameters, or what is wrong with them. None if there is nothing to run.
    pub fn bind(&self, parameters: Value) -> Option<Result<Plan, Vec<Diagnostic>>> {
        let (definition, (places, voice)) = (self.definition.as_ref()?, self.back.as_ref()?);
        let told = |problems: Vec<Problem>| {
            problems.iter().map(|problem| voice.diagnostic(problem, places)).collect()
        };
        Some(definition.bind(parameters).map_err(told))
    }
}

/// Checks a source and all that it calls.
pub fn check(source: Arc<Source>, project: &dyn Project) -> Report {
    let mut files = Files { project, read: Vec::new(), numbers: BTreeMap::new() };
    files.add(source);
    let mut next = 0;
    while next < files.read.len() {
        let calls = files.read[next].file.as_mut().map(|file| std::mem::take(&mut file.calls));
        calls.unwrap_or_default().into_iter().for_each(|source| files.add(source));
        next += 1;
    }
    files.finish()
}

/// How often a source is read again. Each time, a misspelt field is read as what it was meant for, and those inside it
/// may be misspelt, too.
const AGAIN: usize = 3;

/// Reads one source by itself. A field that is misspelt is refused once, and then read as the one that was meant: what
/// only seems to be wrong because that one is missing is not told, and what is wrong inside it is.
fn read(source: &Arc<Source>, project: &dyn Project) -> (Sink, Option<Dialect>, Option<Lowered>) {
    let mut slips: Vec<Misspelt> = Vec::new();
    let mut again = 0..AGAIN;
    loop {
        let mut sink = Sink::new(source.clone());
        let (dialect, lowered) = read_as(&slips, &mut sink, project);
        if sink.misspelt.is_empty() || again.next().is_none() {
            return (sink, dialect, lowered);
        }
        slips.append(&mut sink.misspelt);
    }
}

fn read_as(slips: &[Misspelt], sink: &mut Sink, project: &dyn Project) -> (Option<Dialect>, Option<Lowered>) {
    let source = sink.source.clone();
    sink.extend(slips.iter().map(|slip| slip.refused.clone()));
    if let Some(diagnostic) = too_large(&source) {
        let stop = diagnostic.is_error();
        sink.push(diagnostic);
        if stop {
            return (None, None);
        }
    }
    let Some(mut detected) = detect(sink) else { return (None, None) };
    slips.iter().for_each(|slip| detected.tree.rename(slip.key, slip.meant));
    let dialect = detected.dialect;
    let mut lowered = match dialect {
        Dialect::AgentCore => agentcore::lower(detected.tree, sink, project),
        Dialect::Aip15 => aip15::lower(detected.tree, sink, project),
        Dialect::Ioa => ioa::lower(detected.tree, sink, project),
        Dialect::Swdl => swdl::lower(detected.tree, sink, project),
    };
    if let Some(lowered) = &mut lowered {
        extension::check(dialect, lowered, sink);
        govern::apply(dialect, lowered, project, sink);
        reveal::check(lowered, project, sink);
        let conflict = extension::conflict_of_all(dialect, lowered);
        if !settle::link(conflict.as_ref(), &mut lowered.workflow) {
            extension::warn_idle(dialect, lowered, sink);
        }
    }
    (Some(dialect), lowered)
}

/// What to say about a source that is larger than it may or should be.
pub(crate) fn too_large(source: &Arc<Source>) -> Option<Diagnostic> {
    let (size, most) = (source.text.len(), limits::SOURCE_BYTES_WARN);
    if size > limits::SOURCE_BYTES {
        return Some(load::too_large(source));
    }
    let message = format!("this file has {size} bytes, and over {most} is hard to follow");
    let hint = "split it into workflows that call one another";
    let span = skein_core::expr::Span::default();
    (size > most).then(|| Diagnostic::new(Code::LargeSource, source, span, message).hint(hint))
}

/// Files are those of the workflow that is run, so that those of one that is called are nobody's.
fn warn_of_files(called: &Workflow, source: &Arc<Source>, sink: &mut Sink) {
    if called.files_in.is_empty() && called.files_out.is_empty() {
        return;
    }
    let message = "where this workflow is called, its files are neither staged nor given back";
    let span = skein_core::expr::Span::default();
    let diagnostic = Diagnostic::new(Code::IgnoredField, source, span, message.to_owned());
    sink.push(diagnostic.hint("name them in the workflow that calls it, and pass on what it needs of them"));
}

/// A source that has been read.
struct Read {
    key: String,
    dialect: Option<Dialect>,
    sink: Sink,
    file: Option<File>,
}

struct File {
    workflow: Arc<Workflow>,
    places: Places,
    voice: &'static Voice,
    calls: Vec<Arc<Source>>,
    overridden: Vec<Overridden>,
}

struct Files<'a> {
    project: &'a dyn Project,
    read: Vec<Read>,
    numbers: BTreeMap<String, usize>,
}

impl Files<'_> {
    fn add(&mut self, source: Arc<Source>) {
        if self.numbers.contains_key(&source.key) {
            return;
        }
        self.numbers.insert(source.key.clone(), self.read.len());
        let key = source.key.clone();
        let (mut sink, dialect, lowered) = read(&source, self.project);
        if let Some(lowered) = lowered.as_ref().filter(|_| !self.read.is_empty()) {
            warn_of_files(&lowered.workflow, &source, &mut sink);
        }
        let file = lowered.map(|lowered| {
            let Lowered { workflow, mut places, voice, calls, overridden, .. } = lowered;
            places.said(sink.starts());
            File { workflow: Arc::new(workflow), places, voice, calls, overridden }
        });
        self.read.push(Read { key, dialect, sink, file });
    }

    /// Plans what was read. Where some of it could not be, nothing can be said about the whole.
    fn finish(mut self) -> Report {
        let dialect = self.read[0].dialect;
        let workflow = self.read[0].file.as_ref().map(|file| file.workflow.clone());
        let mut definition = None;
        if let Some(root) = workflow.clone().filter(|_| self.read.iter().all(|read| read.file.is_some())) {
            let called = self
                .read
                .iter()
                .filter_map(|read| read.file.as_ref().map(|file| (read.key.clone(), file.workflow.clone())));
            let library: BTreeMap<String, Arc<Workflow>> = called.collect();
            let checked = plan::check(root, &library);
            definition = checked.definition;
            self.tell(&checked.problems);
        }
        let errors = self.read.iter().any(|read| read.sink.has_errors());
        let files = self.read.iter_mut().filter_map(|read| read.file.as_mut());
        let overridden = files.flat_map(|file| std::mem::take(&mut file.overridden)).collect();
        let back = self.read[0].file.take().map(|file| (file.places, file.voice));
        let all = self.read.into_iter().flat_map(|read| read.sink.finish());
        let (notes, diagnostics) = all.partition(|diagnostic| diagnostic.severity == Severity::Note);
        let definition = definition.filter(|_| !errors);
        Report { dialect, workflow, definition, diagnostics, notes, overridden, back }
    }

    fn tell(&mut self, problems: &[Problem]) {
        let broken = self.read.iter().any(|read| read.sink.has_errors())
            || problems.iter().any(|problem| self.is_error(problem));
        // Decided before any is told: only what could not be read leads to others.
        let follows: Vec<bool> = problems.iter().map(|problem| self.follows(problem)).collect();
        for (problem, _) in problems.iter().zip(follows).filter(|(_, follows)| !follows) {
            // What is unwise in a source that is wrong may only be a part of what is wrong.
            if broken && !self.is_error(problem) {
                continue;
            }
            let number = self.number(problem);
            let read = &mut self.read[number];
            match &read.file {
                // The sink counts by itself, and says the sum of both.
                Some(file) if problem.more > 0 => read.sink.count(file.voice.code(problem), problem.more),
                Some(file) => read.sink.push(file.voice.diagnostic(problem, &file.places)),
                None => {}
            }
        }
    }

    /// Whether a problem may only be there because what it is about, or one in the same list, could not be read, or is not
    /// written at all.
    fn follows(&self, problem: &Problem) -> bool {
        let Read { sink, file: Some(file), .. } = &self.read[self.number(problem)] else { return false };
        // A timeout that nobody wrote is the format's, and as long as the run's is enough.
        if problem.code == ProblemCode::StepOutlivesRun && file.places.written(&problem.at).is_none() {
            return true;
        }
        let order = matches!(problem.code, ProblemCode::NotBefore | ProblemCode::ArtifactNotBefore);
        let waits = order.then(|| At { field: "after".to_owned(), ..problem.at.clone() });
        let causes = problem.related.iter().map(|(at, _)| at).chain(&waits);
        let causes = causes.filter_map(|at| file.places.written(at)).map(|node| (node, node.span()));
        let mut parts = file.places.artifacts_until(&problem.at).into_iter().chain(causes);
        sink.has_errors() && parts.any(|(node, span)| sink.has_error_in(node.source(), span))
    }

    /// The source that a problem is in.
    fn number(&self, problem: &Problem) -> usize {
        problem.at.workflow.as_ref().and_then(|name| self.numbers.get(name)).copied().unwrap_or(0)
    }

    fn is_error(&self, problem: &Problem) -> bool {
        let file = self.read[self.number(problem)].file.as_ref();
        file.map_or(problem.is_error(), |file| file.voice.is_error(problem))
    }
}
