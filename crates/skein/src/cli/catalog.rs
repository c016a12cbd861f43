//! `skein catalog`: lists all entries that workflows of the project can name, their definitions, and their uses.

use std::fmt::Write;

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    plan::shorten_text,
    project::catalog::{CatalogEntry, CatalogListing, CatalogUse},
    workflows,
};
use skein_dialects::{CatalogKind, Diagnostic};

use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct CatalogArguments {
    /// Kind to list: workflows, agents, tools, drivers, actions, routines, skills, contexts, domains, governance, roles
    /// or secrets; default: all.
    kind: Option<String>,
    /// Name of the entry to show.
    name: Option<String>,
}

pub(super) fn run(arguments: &CatalogArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let listing = workflows::list_catalog(app, arguments.kind.as_deref(), arguments.name.as_deref())?;
    if output.is_json() {
        output.print_json(&listing.to_json());
    } else {
        output.print_text(&render_listing(&listing, output));
        output.print_diagnostics(&listing.problems);
    }
    let invalid = listing.is_of_name() && listing.problems.iter().any(Diagnostic::is_error);
    Ok(if invalid { Exit::Invalid } else { Exit::Done })
}

fn render_listing(listing: &CatalogListing, output: CliOutput) -> String {
    if listing.is_of_name() {
        let entries = listing.kinds.iter().flat_map(|kind| listing.entries(*kind));
        let shown: Vec<String> = entries.map(|entry| render_entry(entry, listing, output)).collect();
        return shown.join("\n");
    }
    let mut text = String::new();
    for kind in listing.kinds.iter().filter(|kind| !listing.entries(**kind).is_empty()) {
        render_section(&mut text, *kind, listing, output);
    }
    if text.is_empty() {
        let what = if let [only] = listing.kinds[..] { only.singular_and_plural().1 } else { "names" };
        text = format!("The project at {} defines no {what}.\n", listing.project.root.display());
    }
    text
}

fn render_section(text: &mut String, kind: CatalogKind, listing: &CatalogListing, output: CliOutput) {
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{gap}{}", output.paint.title(kind.singular_and_plural().1));
    let rows: Vec<[String; 4]> = listing
        .entries(kind)
        .into_iter()
        .map(|entry| {
            let version = entry.version.clone().unwrap_or_default();
            let used = match listing.uses.find_uses(entry).len() {
                0 => "not used".to_owned(),
                1 => "used once".to_owned(),
                n => format!("used {n} times"),
            };
            [entry.name.clone(), version, entry.location(&listing.project), used]
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

fn render_entry(entry: &CatalogEntry, listing: &CatalogListing, output: CliOutput) -> String {
    let version = entry.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let (kind, _) = entry.sort.singular_and_plural();
    let mut text = format!("{kind} {}{version}\n", output.paint.title(&entry.name));
    if let Some(description) = &entry.description {
        let _ = writeln!(text, "  {}", shorten_text(description));
    }
    let mut row = |title: &str, cell: String| {
        let _ = writeln!(text, "  {}  {cell}", output.paint.faint(&format!("{title:9}")));
    };
    row("described", format!("{}:{}", entry.location(&listing.project), entry.at.column));
    entry.kind.iter().for_each(|kind| row("kind", kind.clone()));
    for (kind, name) in &entry.names {
        row("names", format!("{} {name}", kind.singular_and_plural().0));
    }
    let all = listing.uses.find_uses(entry);
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
