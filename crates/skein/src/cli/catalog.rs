//! `skein catalog`: everything that a workflow of the project can name, where it is described, and who uses it.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use skein_core::closest::closest;
use skein_dialects::{Diagnostic, Sort, render};

use super::load::open_project;
use crate::{
    catalog::{Entry, Use, Uses},
    described,
    exit::Exit,
    output::Output,
    project::OnDisk,
};

#[derive(Debug, Args)]
pub struct Arguments {
    /// What to list: workflows, agents, tools, drivers, actions, routines, skills, contexts, domains, governance, roles
    /// or secrets. All of them if it is left out.
    kind: Option<String>,
    /// What to show, by its name.
    name: Option<String>,
}

pub fn run(arguments: &Arguments, output: Output) -> Exit {
    let project = match open_project(output) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let sort = arguments.kind.as_deref().map(|kind| (kind, sort(kind)));
    match (sort, arguments.name.as_deref()) {
        (None, _) => list(&project, &Sort::ALL, output),
        (Some((_, Some(sort))), None) => list(&project, &[sort], output),
        (Some((_, Some(sort))), Some(name)) => show(&project, &[sort], name, output),
        // A name alone is looked up in every sort.
        (Some((name, None)), None) => show(&project, &Sort::ALL, name, output),
        (Some((kind, None)), Some(_)) => {
            let words = Sort::ALL.iter().map(|sort| sort.words().1);
            let hint = closest(kind, words.clone()).map(|near| format!("did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!("there are {}", words.collect::<Vec<_>>().join(", ")));
            output.refuse(Exit::Usage, &format!("a catalog holds no `{kind}`"), Some(&hint))
        }
    }
}

fn sort(word: &str) -> Option<Sort> {
    Sort::ALL.into_iter().find(|sort| sort.words().0 == word || sort.words().1 == word)
}

fn list(project: &OnDisk, sorts: &[Sort], output: Output) -> Exit {
    let uses = Uses::of(project);
    let problems: Vec<Diagnostic> =
        sorts.iter().flat_map(|sort| described::problems(project, *sort)).collect();
    if output.is_json() {
        let entries = sorts.iter().flat_map(|sort| project.shelf(*sort).entries());
        let entries: Vec<Value> = entries.map(|entry| object(entry, &uses, project)).collect();
        let problems: Vec<Value> = problems.iter().map(render::object).collect();
        output.json(&json!({"entries": entries, "problems": problems}));
        return Exit::Done;
    }
    let mut text = String::new();
    for sort in sorts {
        let entries = project.shelf(*sort).entries();
        if !entries.is_empty() {
            section(&mut text, *sort, entries, &uses, project, output);
        }
    }
    if text.is_empty() {
        let what = if let [only] = sorts { only.words().1 } else { "names" };
        text = format!("The project at {} defines no {what}.\n", project.root.display());
    }
    output.text(&text);
    output.diagnostics(&problems);
    Exit::Done
}

fn section(text: &mut String, sort: Sort, entries: &[Entry], uses: &Uses, project: &OnDisk, output: Output) {
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{gap}{}", output.paint.title(sort.words().1));
    let rows: Vec<[String; 4]> = entries
        .iter()
        .map(|entry| {
            let version = entry.version.clone().unwrap_or_default();
            let used = match uses.get(entry).len() {
                0 => "not used".to_owned(),
                1 => "used once".to_owned(),
                n => format!("used {n} times"),
            };
            [entry.name.clone(), version, entry.place(project), used]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (names, versions, places) = (width(0), width(1), width(2));
    for [name, version, place, used] in &rows {
        let name = output.paint.name(&format!("{name:names$}"));
        let line = format!("  {name}  {version:versions$}  {place:places$}  {}", output.paint.faint(used));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn show(project: &OnDisk, sorts: &[Sort], name: &str, output: Output) -> Exit {
    let found: Vec<&Entry> = sorts.iter().filter_map(|sort| project.shelf(*sort).find(name)).collect();
    if found.is_empty() {
        return missing(project, sorts, name, output);
    }
    let uses = Uses::of(project);
    let wrong: Vec<Diagnostic> = found.iter().flat_map(|entry| described::check(project, entry)).collect();
    if output.is_json() {
        let entries: Vec<Value> = found.iter().map(|entry| object(entry, &uses, project)).collect();
        let problems: Vec<Value> = wrong.iter().map(render::object).collect();
        output.json(&json!({"entries": entries, "problems": problems}));
    } else {
        let shown: Vec<String> = found.iter().map(|entry| one(entry, &uses, project, output)).collect();
        output.text(&shown.join("\n"));
        output.diagnostics(&wrong);
    }
    if wrong.iter().any(Diagnostic::is_error) { Exit::Invalid } else { Exit::Done }
}

fn missing(project: &OnDisk, sorts: &[Sort], name: &str, output: Output) -> Exit {
    let known: Vec<String> = sorts.iter().flat_map(|sort| project.shelf(*sort).names()).collect();
    let what = if let [only] = sorts { only.words().0 } else { "name" };
    let hint = closest(name, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
    let hint = hint.unwrap_or_else(|| "`skein catalog` lists what there is".to_owned());
    output.refuse(Exit::Refused, &format!("there is no {what} `{name}` in the project"), Some(&hint))
}

fn one(entry: &Entry, uses: &Uses, project: &OnDisk, output: Output) -> String {
    let version = entry.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let (sort, _) = entry.sort.words();
    let mut text = format!("{sort} {}{version}\n", output.paint.title(&entry.name));
    if let Some(about) = &entry.description {
        let _ = writeln!(text, "  {}", crate::plan::short(about));
    }
    let mut row = |title: &str, what: String| {
        let _ = writeln!(text, "  {}  {what}", output.paint.faint(&format!("{title:9}")));
    };
    row("described", format!("{}:{}", entry.place(project), entry.at.column));
    entry.kind.iter().for_each(|kind| row("kind", kind.clone()));
    for (sort, name) in &entry.names {
        row("names", format!("{} {name}", sort.words().0));
    }
    let all = uses.get(entry);
    if all.is_empty() {
        row("used by", "nothing".to_owned());
    }
    all.into_iter().for_each(|used| row("used by", user(used)));
    text
}

fn user(used: &Use) -> String {
    let step = used.step.as_ref().map(|step| format!(", step {step}")).unwrap_or_default();
    format!("{} {}{step}  {}:{}", used.sort.words().0, used.by, used.file, used.line)
}

fn object(entry: &Entry, uses: &Uses, project: &OnDisk) -> Value {
    let used = |used: &&Use| json!({"sort": used.sort.words().0, "name": used.by, "step": used.step, "file": used.file, "line": used.line});
    let names: Vec<Value> =
        entry.names.iter().map(|(sort, name)| json!({"sort": sort.words().0, "name": name})).collect();
    json!({
        "sort": entry.sort.words().0,
        "name": entry.name,
        "also": entry.also,
        "version": entry.version,
        "kind": entry.kind,
        "description": entry.description,
        "file": project.shown(&entry.path),
        "line": entry.at.line,
        "column": entry.at.column,
        "names": names,
        "used_by": uses.get(entry).iter().map(used).collect::<Vec<_>>(),
    })
}
