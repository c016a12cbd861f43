//! From a source to a definition: reads it and everything that it calls, lets the plan check the whole, and puts what
//! there is to say in the order of the files.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    ir::Workflow,
    limits,
    plan::{self, Definition, Problem, Severity},
};

use crate::{
    agentcore,
    code::Code,
    detect::{Dialect, detect},
    diagnostic::{Diagnostic, Sink},
    ioa,
    lowering::Lowered,
    places::Places,
    problem::{self, Vocabulary},
    project::Project,
    source::Source,
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
}

impl Report {
    pub fn is_valid(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
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

/// Reads one source by itself.
fn read(sink: &mut Sink, project: &dyn Project) -> (Option<Dialect>, Option<Lowered>) {
    let source = sink.source.clone();
    if let Some(diagnostic) = too_large(&source) {
        let stop = diagnostic.is_error();
        sink.push(diagnostic);
        if stop {
            return (None, None);
        }
    }
    let Some(detected) = detect(sink) else { return (None, None) };
    let dialect = detected.dialect;
    let lowered = match dialect {
        Dialect::AgentCore => agentcore::lower(detected.tree, sink, project),
        Dialect::Ioa => ioa::lower(detected.tree, sink, project),
        Dialect::Aip15 | Dialect::Swdl => None,
    };
    (Some(dialect), lowered)
}

fn too_large(source: &Arc<Source>) -> Option<Diagnostic> {
    let size = source.text.len();
    let (code, most) = match size {
        size if size > limits::SOURCE_BYTES => (Code::TooLarge, limits::SOURCE_BYTES),
        size if size > limits::SOURCE_BYTES_WARN => (Code::LargeSource, limits::SOURCE_BYTES_WARN),
        _ => return None,
    };
    let message = format!("this file has {size} bytes, more than {most}");
    let hint = "split it into workflows that call one another";
    Some(Diagnostic::new(code, source, skein_core::expr::Span::default(), message).hint(hint))
}

/// A source that has been read.
struct Read {
    name: String,
    dialect: Option<Dialect>,
    sink: Sink,
    file: Option<File>,
}

struct File {
    workflow: Arc<Workflow>,
    places: Places,
    words: Vocabulary,
    calls: Vec<Arc<Source>>,
}

struct Files<'a> {
    project: &'a dyn Project,
    read: Vec<Read>,
    numbers: BTreeMap<String, usize>,
}

impl Files<'_> {
    fn add(&mut self, source: Arc<Source>) {
        if self.numbers.contains_key(&source.name) {
            return;
        }
        self.numbers.insert(source.name.clone(), self.read.len());
        let name = source.name.clone();
        let mut sink = Sink::new(source);
        let (dialect, lowered) = read(&mut sink, self.project);
        let file = lowered.map(|lowered| {
            let Lowered { workflow, places, words, calls, .. } = lowered;
            File { workflow: Arc::new(workflow), places, words, calls }
        });
        self.read.push(Read { name, dialect, sink, file });
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
                .filter_map(|read| read.file.as_ref().map(|file| (read.name.clone(), file.workflow.clone())));
            let library: BTreeMap<String, Arc<Workflow>> = called.collect();
            let checked = plan::check(root, &library);
            definition = checked.definition;
            self.tell(&checked.problems);
        }
        let errors = self.read.iter().any(|read| read.sink.has_errors());
        let all = self.read.into_iter().flat_map(|read| read.sink.finish());
        let (notes, diagnostics) = all.partition(|diagnostic| diagnostic.severity == Severity::Note);
        Report { dialect, workflow, definition: definition.filter(|_| !errors), diagnostics, notes }
    }

    fn tell(&mut self, problems: &[Problem]) {
        let broken =
            self.read.iter().any(|read| read.sink.has_errors()) || problems.iter().any(Problem::is_error);
        for problem in problems {
            // What is unwise in a source that is wrong may only be a part of what is wrong.
            if broken && !problem.is_error() {
                continue;
            }
            let number = problem.at.workflow.as_ref().and_then(|name| self.numbers.get(name)).copied();
            let read = &mut self.read[number.unwrap_or(0)];
            if let Some(file) = &read.file {
                read.sink.push(problem::diagnostic(problem, &file.places, file.words));
            }
        }
    }
}
