//! Names that a source takes from the project around it: its agents, tools, roles and domains.
//!
//! Owns what is said about a name that the project does not define. Refuses to know where a project keeps them.

use std::collections::BTreeSet;

use skein_core::closest::closest;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    project::{Project, Sort},
    read::Spanned,
};

/// As many names as are worth reading in one line.
const SHOWN: usize = 8;

/// Refuses each name that the project does not define. Where it defines none of that sort, nothing can be said about
/// any, and that is said once.
pub(crate) fn check<'a>(
    sort: Sort,
    uses: impl IntoIterator<Item = Spanned<&'a str>>,
    project: &dyn Project,
    sink: &mut Sink,
) {
    let mut uses = uses.into_iter();
    let known: BTreeSet<String> = project.names(sort).into_iter().collect();
    if known.is_empty() {
        if let Some(first) = uses.next() {
            sink.push(unchecked(sort, &first, sink));
        }
        return;
    }
    for name in uses {
        if !known.contains(name.value) {
            sink.push(unknown(sort, &name, &known, sink));
        }
    }
}

fn unchecked(sort: Sort, first: &Spanned<&str>, sink: &Sink) -> Diagnostic {
    let (one, many) = words(sort);
    let message = format!("the project defines no {many}, so the {one} `{}` cannot be checked", first.value);
    let diagnostic = Diagnostic::new(Code::NameNotChecked, &sink.source, first.span, message);
    match sort {
        Sort::Agent => diagnostic.hint(
            "define it before a run: `[agents.NAME]` in `skein.toml`, a resource of kind Agent, or `agents/NAME.md`",
        ),
        Sort::Tool | Sort::Role | Sort::Domain => diagnostic,
    }
}

fn unknown(sort: Sort, name: &Spanned<&str>, known: &BTreeSet<String>, sink: &Sink) -> Diagnostic {
    let (one, many) = words(sort);
    let message = format!("there is no {one} `{}` in the project", name.value);
    let diagnostic = Diagnostic::new(Code::NameNotDefined, &sink.source, name.span, message);
    let near = || closest(name.value, known.iter().map(String::as_str));
    match if sink.is_full(Code::NameNotDefined) { None } else { near() } {
        Some(near) => diagnostic.hint(format!("did you mean `{near}`?")).fix(name.span, near),
        None => {
            let shown: Vec<String> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
            let more = if known.len() > SHOWN { " and others" } else { "" };
            diagnostic.hint(format!("its {many} are {}{more}", shown.join(", ")))
        }
    }
}

fn words(sort: Sort) -> (&'static str, &'static str) {
    match sort {
        Sort::Agent => ("agent", "agents"),
        Sort::Tool => ("tool", "tools"),
        Sort::Role => ("role", "roles"),
        Sort::Domain => ("domain", "domains"),
    }
}
