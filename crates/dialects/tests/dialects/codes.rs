//! Checks that every code has a page with correct examples: the wrong example raises the code, and the right one does
//! not and has no errors.
//!
//! An example is a fenced block under `## Wrong` or `## Right`. The word after its language, if there is one, is its
//! format; `params=` holds the parameters of a run. Blocks beside it are the project: `file=` defines another file, and
//! `names=` a list of the agents, tools, actions, roles or domains of the project. A block of plain `text` is not run:
//! this file builds the examples that a page cannot contain.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, sync::Arc};

use serde_json::Value;
use skein_core::limits;
use skein_dialects::{
    CatalogKind, Code, Diagnostic, Dialect, Project, SourceFile, SourceReport, WorkflowNotFound, WorkflowReference,
    check_source, load_source, render,
};

/// Codes about other files than sources. Only the command line raises them, and its tests cover them.
const OF_THE_COMMAND_LINE: &[Code] = &[Code::BadConfiguration];

type Make = fn() -> Outcome;

/// Examples that a page cannot contain.
const MADE: &[(Code, Make)] = &[
    (Code::CannotRead, || read(Err("no such file".to_owned()))),
    (Code::TooLarge, || read(Ok(padded(limits::SOURCE_BYTES + 1)))),
    (Code::NotUtf8, || read(Ok(b"name: caf\xe9\n".to_vec()))),
    (Code::LargeSource, || read(Ok(padded(limits::SOURCE_BYTES_WARN + 1)))),
    (Code::CallsTooDeep, nested),
    (Code::TooBig, || read(Ok(many(limits::STEPS + 1)))),
    (Code::QuiteBig, || read(Ok(many(limits::STEPS_WARN + 1)))),
];

/// The result of an example.
struct Outcome {
    said: Vec<Diagnostic>,
    /// True if a run could start.
    runs: bool,
}

impl Outcome {
    fn of(report: SourceReport, params: Option<Value>) -> Outcome {
        let runs = report.definition.is_some();
        let bound = params.and_then(|params| report.bind(params));
        let refused = bound.and_then(Result::err).unwrap_or_default();
        let runs = runs && refused.is_empty();
        Outcome { said: [report.diagnostics, report.notes, refused].concat(), runs }
    }

    fn has(&self, code: Code) -> bool {
        self.said.iter().any(|diagnostic| diagnostic.code == code)
    }

    fn shown(&self) -> String {
        self.said.iter().map(|diagnostic| render::render_text(diagnostic, false)).collect::<Vec<_>>().join("\n")
    }
}

fn read(bytes: Result<Vec<u8>, String>) -> Outcome {
    Outcome::of(
        match load_source("workflow.yaml", bytes) {
            Ok(source) => check_source(source, &()),
            Err(diagnostic) => SourceReport::from_read_error(diagnostic),
        },
        None,
    )
}

const HEAD: &str = "name: nightly\nversion: \"1\"\ntimeout: 1h\nsteps:\n";
const STEP: &str = "{worker: CUSTOM, instructions: make, capabilities: [READ]}";

/// Builds a workflow of this size in bytes.
fn padded(size: usize) -> Vec<u8> {
    let mut text = format!("{HEAD}  build: {STEP}\n# ");
    text.push_str(&"x".repeat(size - text.len()));
    text.into_bytes()
}

/// Builds a workflow with this number of steps.
fn many(steps: usize) -> Vec<u8> {
    let mut text = HEAD.to_owned();
    for number in 0..steps {
        writeln!(text, "  s{number}: {STEP}").expect("a string can be written to");
    }
    text.into_bytes()
}

/// Builds workflows that call one another, one level deeper than the limit.
fn nested() -> Outcome {
    let depth = limits::CALL_DEPTH + 2;
    let call = |number: usize| match number {
        last if last == depth => format!("{HEAD}  build: {STEP}\n"),
        number => format!("{HEAD}  build: {{workflow: w{}.yaml}}\n", number + 1),
    };
    let files: BTreeMap<String, String> = (1..=depth).map(|n| (format!("w{n}.yaml"), call(n))).collect();
    let main = files["w1.yaml"].clone();
    Outcome::of(check_source(SourceFile::new("w1.yaml", main), &Around { files, ..Around::default() }), None)
}

const OVERRIDES: &str = ".skillmeat-workflow-overrides.yaml";

/// The project of an example.
#[derive(Default)]
struct Around {
    files: BTreeMap<String, String>,
    names: BTreeMap<CatalogKind, Vec<String>>,
}

impl Around {
    fn of(fences: &[Fence<'_>]) -> Around {
        let mut around = Around::default();
        for fence in fences {
            if let Some(file) = fence.option("file") {
                around.files.insert(file.to_owned(), fence.text.clone());
            }
            if let Some(sort) = fence.option("names") {
                let sort = match sort {
                    "agents" => CatalogKind::Agent,
                    "tools" => CatalogKind::Tool,
                    "actions" => CatalogKind::Action,
                    "roles" => CatalogKind::Role,
                    "domains" => CatalogKind::Domain,
                    "drivers" => CatalogKind::Driver,
                    "modules" => CatalogKind::Context,
                    "servers" => CatalogKind::Server,
                    _ => panic!("a project defines no {sort}"),
                };
                around.names.insert(sort, fence.text.lines().map(str::to_owned).collect());
            }
        }
        around
    }

    fn file(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.files.get(name).map(|text| SourceFile::new(name, text.as_str()))
    }
}

impl Project for Around {
    fn resolve_workflow(
        &self,
        _: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        let name = match reference {
            WorkflowReference::Path(path) => path.trim_start_matches("./").to_owned(),
            WorkflowReference::Id(id) => format!("{id}/WORKFLOW.md"),
        };
        let known = self.files.keys().cloned().collect();
        self.file(&name).ok_or_else(|| WorkflowNotFound { why: "the file is not there".to_owned(), known })
    }

    fn catalog_names(&self, sort: CatalogKind) -> Vec<String> {
        self.names.get(&sort).cloned().unwrap_or_default()
    }

    fn find_tool(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.file(&format!(".tools/{name}/TOOL.md"))
    }

    fn find_action(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.file(&format!(".actions/{}/ACTION.md", name.replace(':', "-")))
    }

    fn find_tools_for(&self, action: &str) -> Vec<Arc<SourceFile>> {
        let tools = self.files.keys().filter(|name| name.ends_with("/TOOL.md"));
        let says = |source: &Arc<SourceFile>| source.text.contains(&format!("implements: {action}\n"));
        tools.filter_map(|name| self.file(name)).filter(says).collect()
    }

    fn secret_sources(&self) -> Vec<Arc<SourceFile>> {
        self.file("SECRETS.md").into_iter().collect()
    }

    fn find_policy(&self, name: &str) -> Option<Arc<SourceFile>> {
        self.file(&format!(".policies/{name}/POLICY.md"))
    }

    fn override_source(&self) -> Option<Arc<SourceFile>> {
        self.file(OVERRIDES)
    }
}

/// One fenced block.
struct Fence<'a> {
    info: &'a str,
    text: String,
}

impl<'a> Fence<'a> {
    fn language(&self) -> &'a str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        self.info.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// True if it is the example itself, and not a part of its project.
    fn is_main(&self) -> bool {
        self.option("file").is_none() && self.option("names").is_none()
    }

    fn dialect(&self) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| self.info.split_whitespace().any(|word| word == dialect.as_str()))
    }
}

/// A page and its parts.
struct Page<'a> {
    title: &'a str,
    wrong: Vec<Fence<'a>>,
    right: Vec<Fence<'a>>,
}

impl<'a> Page<'a> {
    fn of(code: Code) -> Page<'a> {
        let text = code.page();
        let title = text.lines().next().and_then(|line| line.strip_prefix(&format!("# {code}: ")));
        let title = title.unwrap_or_else(|| panic!("the page of {code} has no title"));
        let part = |name: &str| {
            let (_, after) = text.split_once(&format!("\n## {name}\n")).unwrap_or_else(|| {
                panic!("the page of {code} has no part `{name}`");
            });
            fences(after.split("\n## ").next().unwrap_or_default())
        };
        Page { title, wrong: part("Wrong"), right: part("Right") }
    }
}

fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let inside = lines.by_ref().take_while(|line| *line != "```");
        let text = inside.fold(String::new(), |text, line| text + line + "\n");
        found.push(Fence { info, text });
    }
    found
}

/// Runs an example. None if it is only shown.
fn run(fences: &[Fence<'_>]) -> Option<Outcome> {
    let main = fences.iter().find(|fence| fence.is_main()).expect("there is an example");
    if main.language() == "text" {
        return None;
    }
    let name = if main.language() == "markdown" { "WORKFLOW.md" } else { "workflow.yaml" };
    let report = check_source(SourceFile::new(name, main.text.as_str()), &Around::of(fences));
    if let (Some(wanted), Some(found)) = (main.dialect(), report.dialect) {
        assert_eq!(wanted, found, "{}", main.text);
    }
    let params = main.option("params").map(|params| serde_json::from_str(params).expect("they are JSON"));
    Some(Outcome::of(report, params))
}

/// Returns an error about the page of a code.
fn wrong_with(code: Code) -> Option<String> {
    let page = Page::of(code);
    if OF_THE_COMMAND_LINE.contains(&code) {
        let shown = !page.wrong.is_empty() && !page.right.is_empty();
        return (!shown).then(|| "it shows no examples".to_owned());
    }
    let made = MADE.iter().find(|(made, _)| *made == code).map(|(_, make)| make());
    let wrong = match (run(&page.wrong), made) {
        (Some(_), Some(_)) => return Some("the example can be run, and is made as well".to_owned()),
        (None, None) => return Some("the example is only shown, and nothing makes it".to_owned()),
        (wrong, made) => wrong.or(made)?,
    };
    if !wrong.has(code) {
        return Some(format!("what is wrong does not raise it:\n{}", wrong.shown()));
    }
    let Some(right) = run(&page.right) else { return Some("what is right is only shown".to_owned()) };
    let errors = right.said.iter().any(Diagnostic::is_error) || !right.runs;
    (errors || right.has(code)).then(|| format!("what is right is not:\n{}", right.shown()))
}

#[test]
fn every_page_tells_the_truth() {
    let untrue: Vec<String> =
        Code::ALL.iter().filter_map(|code| Some(format!("{code}: {}", wrong_with(*code)?))).collect();
    assert!(untrue.is_empty(), "{}", untrue.join("\n\n"));
}

#[test]
fn the_list_of_codes_is_complete() {
    let mut text = "# Codes\n\nEverything that Skein says about a source has a code. Each has a page with an example \
                    that is wrong and one that is\nright; `skein explain SK0101` prints it.\n\n| code | | |\n|---|---|---|\n"
        .to_owned();
    for code in Code::ALL {
        let (title, severity) = (Page::of(*code).title, code.severity());
        writeln!(text, "| [{code}]({code}.md) | {severity} | {title} |").expect("a string can be written to");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/codes/README.md");
    skein_testkit::files::assert_file(&path, &text);
}

#[test]
fn no_page_is_left_over() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/codes");
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let name = entry.expect("a folder can be listed").file_name().into_string().expect("names are text");
        let code = name.trim_end_matches(".md").parse::<Code>();
        assert!(name == "README.md" || code.is_ok(), "{name} is the page of no code");
    }
}
