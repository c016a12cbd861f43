//! Which driver does the work of a tool here, and why the others do not.
//!
//! Owns the six phases of a choice: who offers it, who can, who may, who is asked for, who is best, and how it is called.
//! What was found out about a driver is found out once. Refuses to run anything but what a driver asks to be checked by.

mod bind;
mod capable;
mod choose;
mod offers;
mod wants;

use std::{cell::RefCell, collections::BTreeMap, path::PathBuf};

use serde::Serialize;
use skein_dialects::{Driver, DriverKind, Implements, Project, Sort, Tool, driver, tool};
use skein_host::crew;

use offers::Offers;
pub use wants::Resolutions;

use crate::{catalog::Entry, config::Config, project::OnDisk};

/// The drivers of a project, read once.
#[derive(Debug)]
pub struct Resolver<'a> {
    project: &'a OnDisk,
    config: &'a Config,
    all: Vec<Found>,
    offers: Offers,
    /// Files that are no drivers, and why.
    unread: Vec<String>,
    /// What was found out about drivers, by id.
    capable: RefCell<BTreeMap<String, Result<(), String>>>,
}

#[derive(Debug)]
struct Found {
    driver: Driver,
    /// The folder of its file.
    folder: PathBuf,
}

/// What a step wants done.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// A tool, or an action that tools implement.
    pub sort: Sort,
    pub name: &'a str,
    pub pinned: Option<&'a str>,
    /// The names of the inputs that it gives.
    pub inputs: &'a [&'a str],
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Resolution {
    /// None: nobody can do it.
    pub driver: Option<Chosen>,
    pub passed_over: Vec<PassedOver>,
    /// Why nobody can, as a code and in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    #[serde(skip)]
    pub bound: Option<crew::Tool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chosen {
    pub id: String,
    pub tool: String,
    pub kind: &'static str,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    pub id: String,
    pub phase: Phase,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Candidates,
    Capability,
    Policy,
    Pin,
    Rank,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub code: &'static str,
    pub message: String,
}

/// A driver that offers a tool.
#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    tool: &'a Tool,
    found: &'a Found,
    offer: &'a Implements,
}

impl Candidate<'_> {
    fn passed(&self, phase: Phase, why: String) -> PassedOver {
        PassedOver { id: self.found.driver.id.clone(), phase, why }
    }

    fn cost(&self) -> f64 {
        self.offer.cost.or(self.found.driver.cost).unwrap_or_default()
    }

    fn kind(&self) -> DriverKind {
        self.found.driver.kind
    }
}

impl<'a> Resolver<'a> {
    pub fn of(project: &'a OnDisk) -> Resolver<'a> {
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for entry in project.shelf(Sort::Driver).entries() {
            let read = project.source(&entry.path).map_err(|wrong| wrong.message.clone());
            let read = read.and_then(|source| driver(source).map_err(|wrong| told(&wrong)));
            match read {
                Ok(driver) => {
                    let folder = entry.path.parent().map(PathBuf::from).unwrap_or_default();
                    all.push(Found { driver, folder });
                }
                Err(why) => unread.push(format!("`{}` cannot be used: {why}", project.shown(&entry.path))),
            }
        }
        all.sort_by(|a, b| a.driver.id.cmp(&b.driver.id));
        let offers = Offers::of(&all);
        Resolver { project, config: &project.config, all, offers, unread, capable: RefCell::default() }
    }

    /// Who does it, and why.
    pub fn resolve(&self, wanted: Wanted<'_>) -> Resolution {
        let tools = match self.tools(wanted) {
            Ok(tools) => tools,
            Err(refused) => {
                return Resolution {
                    driver: None,
                    passed_over: Vec::new(),
                    refused: Some(refused),
                    bound: None,
                };
            }
        };
        let mut passed_over = Vec::new();
        let able =
            tools.iter().flat_map(|(tool, path)| self.candidates(tool, path, wanted, &mut passed_over));
        let able: Vec<Candidate<'_>> = able.collect();
        let able = self.keep(able, &mut passed_over);
        let able = choose::pinned(able, wanted.pinned, &mut passed_over);
        match choose::best(able, &mut passed_over) {
            Some((candidate, why)) => {
                let chosen = Chosen {
                    id: candidate.found.driver.id.clone(),
                    tool: candidate.tool.id.clone(),
                    kind: candidate.kind().as_str(),
                    why,
                };
                let bound = bind::bind(candidate, self.config);
                Resolution { driver: Some(chosen), passed_over, refused: None, bound: Some(bound) }
            }
            None => {
                let refused = Some(self.refusal(wanted, &passed_over));
                Resolution { driver: None, passed_over, refused, bound: None }
            }
        }
    }

    /// The tool that is named, or those that implement the action; with their files.
    fn tools(&self, wanted: Wanted<'_>) -> Result<Vec<(Tool, PathBuf)>, Refused> {
        let shelf = self.project.shelf(Sort::Tool);
        let refused = |message: String| Refused { code: "no_route", message };
        let entries: Vec<&Entry> = match wanted.sort {
            Sort::Action => shelf.naming(Sort::Action, wanted.name).collect(),
            _ => shelf.find(wanted.name).into_iter().collect(),
        };
        if entries.is_empty() {
            let name = wanted.name;
            return Err(refused(match wanted.sort {
                Sort::Action => format!(
                    "no tool here implements the action `{name}`; a `.tools/ID/TOOL.md` with `implements: {name}` would"
                ),
                _ => {
                    let name = name.rsplit('/').next().unwrap_or(name);
                    format!("there is no tool `{name}` here; `.tools/{name}/TOOL.md` would describe it")
                }
            }));
        }
        let read = |entry: &Entry| {
            let source = self.project.source(&entry.path).map_err(|wrong| refused(wrong.message.clone()))?;
            let tool = tool(source, self.project as &dyn Project).map_err(|wrong| refused(told(&wrong)))?;
            Ok((tool, entry.path.clone()))
        };
        entries.into_iter().map(read).collect()
    }

    fn refusal(&self, wanted: Wanted<'_>, passed_over: &[PassedOver]) -> Refused {
        let (one, _) = wanted.sort.words();
        let mut why: Vec<String> =
            passed_over.iter().map(|passed| format!("`{}` {}", passed.id, passed.why)).collect();
        why.extend(self.unread.iter().cloned());
        let name = wanted.name;
        if let Some(pinned) = wanted.pinned {
            let own = passed_over.iter().find(|passed| passed.id == pinned);
            let message = match own {
                Some(passed) => format!("the step is pinned to the driver `{pinned}`, which {}", passed.why),
                None => format!(
                    "the step is pinned to the driver `{pinned}`, and no such driver provides the {one} `{name}`"
                ),
            };
            return Refused { code: "pinned_provider_unavailable", message };
        }
        let message = match why.is_empty() {
            true => format!(
                "no driver provides the {one} `{name}`; a `.drivers/NAME/DRIVER.md` that names it in `implements` would"
            ),
            false => format!("no driver can provide the {one} `{name}`: {}", why.join("; ")),
        };
        Refused { code: "no_route", message }
    }
}

/// The first of some diagnostics, in one line.
fn told(diagnostics: &[skein_dialects::Diagnostic]) -> String {
    let Some(diagnostic) = diagnostics.first() else { return String::new() };
    let place = diagnostic.place();
    let at = place.source.position(place.span.start);
    format!("{}:{}:{}: {}", place.source.name, at.line, at.column, diagnostic.message)
}
