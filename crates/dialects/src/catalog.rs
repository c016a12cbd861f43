//! Names that a source takes from the project around it: its agents, tools, drivers, actions, roles and domains.
//!
//! Owns what is said about a name that the project does not define. Refuses to know where a project keeps them.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{closest::closest, expr::Span};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    project::{Project, Sort},
    read::Spanned,
    source::Source,
};

/// As many names as are worth reading in one line.
const SHOWN: usize = 8;

/// A name where a source uses it.
pub(crate) struct Use<'a> {
    pub name: &'a str,
    /// The file that it stands in, which may be one of overrides.
    pub source: &'a Arc<Source>,
    /// The value that it stands in, perhaps with quotes or with its sort before it.
    pub span: Span,
}

impl<'a> Use<'a> {
    pub fn new(name: &Spanned<&'a str>, source: &'a Arc<Source>) -> Use<'a> {
        Use { name: name.value, source, span: name.span }
    }

    /// The name itself, unless it is written otherwise than it reads.
    fn place(&self) -> Option<Span> {
        let start = self.source.slice(self.span).rfind(self.name)?;
        let within = Span::new(start, start + self.name.len());
        Some(Span { start: self.span.start + within.start, end: self.span.start + within.end })
    }

    fn diagnostic(&self, code: Code, message: String) -> Diagnostic {
        Diagnostic::new(code, self.source, self.place().unwrap_or(self.span), message)
    }
}

/// Refuses each name that the project does not define. Where it defines none of that sort, nothing can be said about
/// any, and that is said once.
pub(crate) fn check<'a>(
    sort: Sort,
    uses: impl IntoIterator<Item = Use<'a>>,
    project: &dyn Project,
    sink: &mut Sink,
) {
    let mut uses = uses.into_iter();
    let known: BTreeSet<String> = project.names(sort).into_iter().collect();
    if known.is_empty() {
        if let Some(first) = uses.next() {
            sink.push(unchecked(sort, &first));
        }
        return;
    }
    for used in uses {
        if !defines(sort, &known, used.name) {
            sink.push(unknown(Code::NameNotDefined, sort, &used, &known, sink));
        }
    }
}

/// Warns of each name that the project does not define, where it defines others of that sort: agents are not told what
/// is not there, and work all the same.
pub(crate) fn advise<'a>(
    sort: Sort,
    uses: impl IntoIterator<Item = Use<'a>>,
    project: &dyn Project,
    sink: &mut Sink,
) {
    let mut uses = uses.into_iter().peekable();
    if uses.peek().is_none() {
        return;
    }
    let known: BTreeSet<String> = project.names(sort).into_iter().collect();
    for used in uses.filter(|used| !known.is_empty() && !known.contains(used.name)) {
        sink.push(unknown(Code::NotTold, sort, &used, &known, sink));
    }
}

/// Whether a name is known; of a tool or an action also with its major version, if that is not known to be another.
fn defines(sort: Sort, known: &BTreeSet<String>, name: &str) -> bool {
    // A folder and a path of a package cannot always hold the colon of an action's id.
    let dashed = |known: &String| sort == Sort::Action && known.replace(':', "-") == name.replace(':', "-");
    if known.contains(name) || known.iter().any(dashed) {
        return true;
    }
    let Some((id, major)) =
        name.split_once('@').filter(|_| matches!(sort, Sort::Tool | Sort::Action | Sort::Policy))
    else {
        return false;
    };
    let is_number = !major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit());
    let first = format!("{id}@");
    let of_other = known.range(first.clone()..).next().is_some_and(|other| other.starts_with(&first));
    is_number && known.contains(id) && !of_other
}

fn unchecked(sort: Sort, first: &Use<'_>) -> Diagnostic {
    let (one, many) = sort.words();
    let message = format!("the project defines no {many}, so the {one} `{}` cannot be checked", first.name);
    let diagnostic = first.diagnostic(Code::NameNotChecked, message);
    match sort {
        Sort::Agent => diagnostic.hint(
            "define it before a run: `[agents.NAME]` in `skein.toml`, a resource of kind Agent, or `agents/NAME.md`",
        ),
        Sort::Tool => diagnostic.hint("define it before a run: `.tools/ID/TOOL.md`"),
        Sort::Action => diagnostic.hint("define it before a run: `.actions/ID/ACTION.md`"),
        Sort::Server => diagnostic.hint("define it before a run: `[mcp.NAME]` in `skein.toml`"),
        Sort::Policy => diagnostic.hint("define it before a run: `.policies/ID/POLICY.md`"),
        Sort::Driver => diagnostic.hint("define it before a run: `.drivers/ID/DRIVER.md`"),
        _ => diagnostic,
    }
}

fn unknown(code: Code, sort: Sort, used: &Use<'_>, known: &BTreeSet<String>, sink: &Sink) -> Diagnostic {
    let (one, many) = match sort {
        Sort::Context => ("context module", "context modules"),
        sort => sort.words(),
    };
    let not_told = if code == Code::NotTold { ", so its agent is not told of it" } else { "" };
    let message = format!("there is no {one} `{}` in the project{not_told}", used.name);
    let diagnostic = used.diagnostic(code, message);
    let near = || closest(used.name, known.iter().map(String::as_str));
    match if sink.is_full(code) { None } else { near() } {
        Some(near) => {
            let diagnostic = diagnostic.hint(format!("did you mean `{near}`?"));
            match used.place() {
                Some(place) => diagnostic.fix(place, near),
                None => diagnostic,
            }
        }
        None => {
            let versions = |name: &&String| name.split_once('@').is_some_and(|(id, _)| known.contains(id));
            let mut plain = known.iter().filter(|name| !versions(name));
            let shown: Vec<String> = plain.by_ref().take(SHOWN).map(|name| format!("`{name}`")).collect();
            let more = if plain.next().is_some() { " and others" } else { "" };
            diagnostic.hint(format!("its {many} are {}{more}", shown.join(", ")))
        }
    }
}
