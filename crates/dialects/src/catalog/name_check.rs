//! Names that a source takes from its project: agents, tools, drivers, actions, roles and domains.
//!
//! Owns the diagnostics about names that the project does not define. Does not know where a project keeps them.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{expr::ExprSpan, suggest::find_closest_name};

use crate::{
    catalog::{CatalogKind, Project},
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::Spanned,
};

/// The maximum number of names in one hint.
const SHOWN: usize = 8;

/// A name and the place where a source uses it.
pub(crate) struct NameUse<'a> {
    pub name: &'a str,
    /// The file that uses it, which may be a file of overrides.
    pub source: &'a Arc<SourceFile>,
    /// The place of the value that holds it, perhaps with quotes or a prefix.
    pub span: ExprSpan,
}

impl<'a> NameUse<'a> {
    pub(crate) fn new(name: &Spanned<&'a str>, source: &'a Arc<SourceFile>) -> NameUse<'a> {
        NameUse { name: name.value, source, span: name.span }
    }

    /// The place of the name itself, unless escapes make its source text differ.
    fn name_span(&self) -> Option<ExprSpan> {
        let start = self.source.slice(self.span).rfind(self.name)?;
        let within = ExprSpan::new(start, start + self.name.len());
        Some(ExprSpan { start: self.span.start + within.start, end: self.span.start + within.end })
    }

    fn to_diagnostic(&self, code: Code, message: String) -> Diagnostic {
        Diagnostic::new(code, self.source, self.name_span().unwrap_or(self.span), message)
    }
}

/// Refuses each name that the project does not define. If it defines none of that kind, names cannot be checked, and
/// one warning says so.
pub(crate) fn check_names<'a>(
    sort: CatalogKind,
    uses: impl IntoIterator<Item = NameUse<'a>>,
    project: &dyn Project,
    sink: &mut DiagnosticSink,
) {
    let mut uses = uses.into_iter();
    let known: BTreeSet<String> = project.catalog_names(sort).into_iter().collect();
    if known.is_empty() {
        if let Some(first) = uses.next() {
            sink.push(diagnose_unchecked_name(sort, &first));
        }
        return;
    }
    for used in uses {
        if !is_defined(sort, &known, used.name) {
            sink.push(diagnose_unknown_name(Code::NameNotDefined, sort, &used, &known, sink));
        }
    }
}

/// Warns of each name that the project does not define, if it defines others of that kind. Agents run without the
/// missing item.
pub(crate) fn warn_unknown_names<'a>(
    sort: CatalogKind,
    uses: impl IntoIterator<Item = NameUse<'a>>,
    project: &dyn Project,
    sink: &mut DiagnosticSink,
) {
    let mut uses = uses.into_iter().peekable();
    if uses.peek().is_none() {
        return;
    }
    let known: BTreeSet<String> = project.catalog_names(sort).into_iter().collect();
    for used in uses.filter(|used| !known.is_empty() && !known.contains(used.name)) {
        sink.push(diagnose_unknown_name(Code::NotTold, sort, &used, &known, sink));
    }
}

/// True if a name is defined. A tool or an action may have its major version appended, unless another version is
/// defined.
fn is_defined(sort: CatalogKind, known: &BTreeSet<String>, name: &str) -> bool {
    // Names of folders and package paths may have a dash in place of the colon of an action's id.
    let dashed = |known: &String| sort == CatalogKind::Action && known.replace(':', "-") == name.replace(':', "-");
    if known.contains(name) || known.iter().any(dashed) {
        return true;
    }
    let Some((id, major)) =
        name.split_once('@').filter(|_| matches!(sort, CatalogKind::Tool | CatalogKind::Action | CatalogKind::Policy))
    else {
        return false;
    };
    let is_number = !major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit());
    let first = format!("{id}@");
    let of_other = known.range(first.clone()..).next().is_some_and(|other| other.starts_with(&first));
    is_number && known.contains(id) && !of_other
}

fn diagnose_unchecked_name(sort: CatalogKind, first: &NameUse<'_>) -> Diagnostic {
    let (one, many) = sort.singular_and_plural();
    let message = format!("the project defines no {many}, so the {one} `{}` cannot be checked", first.name);
    let diagnostic = first.to_diagnostic(Code::NameNotChecked, message);
    match sort {
        CatalogKind::Agent => diagnostic.with_hint(
            "define it before a run: `[agents.NAME]` in `skein.toml`, a resource of kind Agent, or `agents/NAME.md`",
        ),
        CatalogKind::Tool => diagnostic.with_hint("define it before a run: `.tools/ID/TOOL.md`"),
        CatalogKind::Action => diagnostic.with_hint("define it before a run: `.actions/ID/ACTION.md`"),
        CatalogKind::Server => diagnostic.with_hint("define it before a run: `[mcp.NAME]` in `skein.toml`"),
        CatalogKind::Policy => diagnostic.with_hint("define it before a run: `.policies/ID/POLICY.md`"),
        CatalogKind::Driver => diagnostic.with_hint("define it before a run: `.drivers/ID/DRIVER.md`"),
        _ => diagnostic,
    }
}

fn diagnose_unknown_name(
    code: Code,
    sort: CatalogKind,
    used: &NameUse<'_>,
    known: &BTreeSet<String>,
    sink: &DiagnosticSink,
) -> Diagnostic {
    let (one, many) = match sort {
        CatalogKind::Context => ("context module", "context modules"),
        sort => sort.singular_and_plural(),
    };
    let not_told = if code == Code::NotTold { ", so it is not passed to the agent" } else { "" };
    let message = format!("there is no {one} `{}` in the project{not_told}", used.name);
    let diagnostic = used.to_diagnostic(code, message);
    let near = || find_closest_name(used.name, known.iter().map(String::as_str));
    match if sink.is_full(code) { None } else { near() } {
        Some(near) => {
            let diagnostic = diagnostic.with_hint(format!("did you mean `{near}`?"));
            match used.name_span() {
                Some(place) => diagnostic.with_fix(place, near),
                None => diagnostic,
            }
        }
        None => {
            let versions = |name: &&String| name.split_once('@').is_some_and(|(id, _)| known.contains(id));
            let mut plain = known.iter().filter(|name| !versions(name));
            let shown: Vec<String> = plain.by_ref().take(SHOWN).map(|name| format!("`{name}`")).collect();
            let more = if plain.next().is_some() { " and others" } else { "" };
            diagnostic.with_hint(format!("its {many} are {}{more}", shown.join(", ")))
        }
    }
}
