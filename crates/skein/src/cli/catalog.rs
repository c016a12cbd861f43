//! `skein catalog`: lists all entries that workflows of the project can name, their definitions, and their uses.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    catalog::{CatalogEntry, CatalogUse, CatalogUses},
    catalog_check,
    project::DiskProject,
};
use skein_core::suggest::find_closest_name;
use skein_dialects::{CatalogKind, Diagnostic, render};

use super::load::open_project;
use crate::{exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
pub struct CatalogArguments {
    /// Kind to list: workflows, agents, tools, drivers, actions, routines, skills, contexts, domains, governance, roles
    /// or secrets; default: all.
    kind: Option<String>,
    /// Name of the entry to show.
    name: Option<String>,
}

pub fn run(arguments: &CatalogArguments, output: CliOutput) -> Result<Exit, AppError> {
    let project = open_project()?;
    let sort = arguments.kind.as_deref().map(|kind| (kind, parse_kind(kind)));
    match (sort, arguments.name.as_deref()) {
        (None, _) => Ok(list_entries(&project, &CatalogKind::ALL, output)),
        (Some((_, Some(sort))), None) => Ok(list_entries(&project, &[sort], output)),
        (Some((_, Some(sort))), Some(name)) => show_entry(&project, &[sort], name, output),
        // A name alone is looked up in all kinds.
        (Some((name, None)), None) => show_entry(&project, &CatalogKind::ALL, name, output),
        (Some((kind, None)), Some(_)) => {
            let words = CatalogKind::ALL.iter().map(|sort| sort.singular_and_plural().1);
            let hint = find_closest_name(kind, words.clone()).map(|near| format!("did you mean `{near}`?"));
            let hint =
                hint.unwrap_or_else(|| format!("known kinds: {}", words.collect::<Vec<_>>().join(", ")));
            Err(AppError::new(AppErrorKind::Usage, &format!("unknown kind `{kind}`"), Some(&hint)))
        }
    }
}

fn parse_kind(word: &str) -> Option<CatalogKind> {
    CatalogKind::ALL
        .into_iter()
        .find(|sort| sort.singular_and_plural().0 == word || sort.singular_and_plural().1 == word)
}

fn list_entries(project: &DiskProject, sorts: &[CatalogKind], output: CliOutput) -> Exit {
    let uses = CatalogUses::collect_uses(project);
    let problems: Vec<Diagnostic> =
        sorts.iter().flat_map(|sort| catalog_check::check_kind(project, *sort)).collect();
    if output.is_json() {
        let entries = sorts.iter().flat_map(|sort| project.shelf(*sort).entries());
        let entries: Vec<Value> = entries.map(|entry| entry_to_json(entry, &uses, project)).collect();
        let problems: Vec<Value> = problems.iter().map(render::render_json).collect();
        output.print_json(&json!({"entries": entries, "problems": problems}));
        return Exit::Done;
    }
    let mut text = String::new();
    for sort in sorts {
        let entries = project.shelf(*sort).entries();
        if !entries.is_empty() {
            render_section(&mut text, *sort, entries, &uses, project, output);
        }
    }
    if text.is_empty() {
        let what = if let [only] = sorts { only.singular_and_plural().1 } else { "names" };
        text = format!("The project at {} defines no {what}.\n", project.root.display());
    }
    output.print_text(&text);
    output.print_diagnostics(&problems);
    Exit::Done
}

fn render_section(
    text: &mut String,
    sort: CatalogKind,
    entries: &[CatalogEntry],
    uses: &CatalogUses,
    project: &DiskProject,
    output: CliOutput,
) {
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{gap}{}", output.paint.title(sort.singular_and_plural().1));
    let rows: Vec<[String; 4]> = entries
        .iter()
        .map(|entry| {
            let version = entry.version.clone().unwrap_or_default();
            let used = match uses.find_uses(entry).len() {
                0 => "not used".to_owned(),
                1 => "used once".to_owned(),
                n => format!("used {n} times"),
            };
            [entry.name.clone(), version, entry.location(project), used]
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

fn show_entry(
    project: &DiskProject,
    sorts: &[CatalogKind],
    name: &str,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let found: Vec<&CatalogEntry> =
        sorts.iter().filter_map(|sort| project.shelf(*sort).find_newest(name)).collect();
    if found.is_empty() {
        return Err(refuse_missing(project, sorts, name));
    }
    let uses = CatalogUses::collect_uses(project);
    let wrong: Vec<Diagnostic> =
        found.iter().flat_map(|entry| catalog_check::check_entry(project, entry)).collect();
    if output.is_json() {
        let entries: Vec<Value> = found.iter().map(|entry| entry_to_json(entry, &uses, project)).collect();
        let problems: Vec<Value> = wrong.iter().map(render::render_json).collect();
        output.print_json(&json!({"entries": entries, "problems": problems}));
    } else {
        let shown: Vec<String> =
            found.iter().map(|entry| render_entry(entry, &uses, project, output)).collect();
        output.print_text(&shown.join("\n"));
        output.print_diagnostics(&wrong);
    }
    Ok(if wrong.iter().any(Diagnostic::is_error) { Exit::Invalid } else { Exit::Done })
}

fn refuse_missing(project: &DiskProject, sorts: &[CatalogKind], name: &str) -> AppError {
    let known: Vec<String> = sorts.iter().flat_map(|sort| project.shelf(*sort).known_names()).collect();
    let what = if let [only] = sorts { only.singular_and_plural().0 } else { "name" };
    let hint = find_closest_name(name, known.iter().map(String::as_str))
        .map(|near| format!("did you mean `{near}`?"));
    let hint = hint.unwrap_or_else(|| "`skein catalog` lists all entries".to_owned());
    AppError::new(AppErrorKind::Refused, &format!("there is no {what} `{name}` in the project"), Some(&hint))
}

fn render_entry(
    entry: &CatalogEntry,
    uses: &CatalogUses,
    project: &DiskProject,
    output: CliOutput,
) -> String {
    let version = entry.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let (sort, _) = entry.sort.singular_and_plural();
    let mut text = format!("{sort} {}{version}\n", output.paint.title(&entry.name));
    if let Some(about) = &entry.description {
        let _ = writeln!(text, "  {}", skein_app::plan::shorten_text(about));
    }
    let mut row = |title: &str, what: String| {
        let _ = writeln!(text, "  {}  {what}", output.paint.faint(&format!("{title:9}")));
    };
    row("described", format!("{}:{}", entry.location(project), entry.at.column));
    entry.kind.iter().for_each(|kind| row("kind", kind.clone()));
    for (sort, name) in &entry.names {
        row("names", format!("{} {name}", sort.singular_and_plural().0));
    }
    let all = uses.find_uses(entry);
    if all.is_empty() {
        row("used by", "nothing".to_owned());
    }
    all.into_iter().for_each(|used| row("used by", render_use(used)));
    text
}

fn render_use(used: &CatalogUse) -> String {
    let step = used.step.as_ref().map(|step| format!(", step {step}")).unwrap_or_default();
    format!("{} {}{step}  {}:{}", used.sort.singular_and_plural().0, used.by, used.file, used.line)
}

fn entry_to_json(entry: &CatalogEntry, uses: &CatalogUses, project: &DiskProject) -> Value {
    let used = |used: &&CatalogUse| json!({"sort": used.sort.singular_and_plural().0, "name": used.by, "step": used.step, "file": used.file, "line": used.line});
    let names: Vec<Value> = entry
        .names
        .iter()
        .map(|(sort, name)| json!({"sort": sort.singular_and_plural().0, "name": name}))
        .collect();
    json!({
        "sort": entry.sort.singular_and_plural().0,
        "name": entry.name,
        "also": entry.also,
        "version": entry.version,
        "kind": entry.kind,
        "description": entry.description,
        "file": project.display_path(&entry.path),
        "line": entry.at.line,
        "column": entry.at.column,
        "names": names,
        "used_by": uses.find_uses(entry).iter().map(used).collect::<Vec<_>>(),
    })
}
