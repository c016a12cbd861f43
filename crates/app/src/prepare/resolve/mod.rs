//! Resolution of tools: the choice of the driver that provides a tool, with the reasons against the others.
//!
//! Owns the six phases of a choice: candidates, capability, policy, pin, rank, and binding. The result of a capability
//! check is reused. Runs only the programs that a driver declares for checks.

mod bind;
mod capability;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Serialize;
use skein_core::{
    ir::{Step, StepKindSpec, WorkSpec, WorkerSpec},
    plan::Plan,
};
use skein_dialects::{
    Aip15Driver, Aip15Tool, CatalogKind, DriverKind, ImplementedTool, Project, read_driver, read_tool,
};
use skein_host::run_settings::ToolSettings;

use crate::{
    app_error::UnusableReason,
    project::{DiskProject, catalog::CatalogEntry, config::ProjectConfig},
};

/// The drivers of a project, read once.
#[derive(Debug)]
pub(crate) struct DriverResolver<'a> {
    project: &'a DiskProject,
    config: &'a ProjectConfig,
    all: Vec<LoadedDriver>,
    offers: DriverOffers,
    /// Invalid driver files, with the reason.
    unread: Vec<String>,
    /// Results of capability checks, by the id of the driver.
    capable: RefCell<BTreeMap<String, Result<(), UnusableReason>>>,
}

#[derive(Debug)]
struct LoadedDriver {
    driver: Aip15Driver,
    /// The folder of its file.
    folder: PathBuf,
}

/// A step's request for a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverRequest<'a> {
    /// A tool, or an action that tools implement.
    pub sort: CatalogKind,
    pub name: &'a str,
    pub pinned: Option<&'a str>,
    /// The names of the inputs that the step passes.
    pub inputs: &'a [&'a str],
}

/// The result of a resolution.
#[derive(Debug, Clone, Serialize)]
pub struct ToolResolution {
    /// None: no driver can provide it.
    pub driver: Option<ChosenDriver>,
    pub passed_over: Vec<PassedOverDriver>,
    /// The reason why no driver can, as a code and a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<ResolutionRefusal>,
    #[serde(skip)]
    pub bound: Option<ToolSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChosenDriver {
    pub id: String,
    pub tool: String,
    pub kind: &'static str,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOverDriver {
    pub id: String,
    pub phase: ResolutionPhase,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionPhase {
    Candidates,
    Capability,
    Policy,
    Pin,
    Rank,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolutionRefusal {
    pub code: &'static str,
    pub message: String,
}

/// A driver that offers a tool.
#[derive(Debug, Clone, Copy)]
struct DriverCandidate<'a> {
    tool: &'a Aip15Tool,
    found: &'a LoadedDriver,
    offer: &'a ImplementedTool,
}

impl DriverCandidate<'_> {
    fn pass_over(&self, phase: ResolutionPhase, why: String) -> PassedOverDriver {
        PassedOverDriver { id: self.found.driver.id.clone(), phase, why }
    }

    fn cost(&self) -> f64 {
        self.offer.cost.or(self.found.driver.cost).unwrap_or_default()
    }

    fn kind(&self) -> DriverKind {
        self.found.driver.kind
    }
}

impl<'a> DriverResolver<'a> {
    pub(crate) fn load(project: &'a DiskProject) -> DriverResolver<'a> {
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for entry in project.shelf(CatalogKind::Driver).entries() {
            let read = project.read_source(&entry.path).map_err(|wrong| wrong.message.clone());
            let read = read.and_then(|source| read_driver(source).map_err(|wrong| describe_diagnostics(&wrong)));
            match read {
                Ok(driver) => {
                    let folder = entry.path.parent().map(PathBuf::from).unwrap_or_default();
                    all.push(LoadedDriver { driver, folder });
                }
                Err(why) => unread.push(format!("`{}` cannot be used: {why}", project.display_path(&entry.path))),
            }
        }
        all.sort_by(|a, b| a.driver.id.cmp(&b.driver.id));
        let offers = DriverOffers::from_drivers(&all);
        DriverResolver { project, config: &project.config, all, offers, unread, capable: RefCell::default() }
    }

    /// Chooses the driver for a request, with the reasons.
    pub(crate) fn resolve_tool(&self, wanted: DriverRequest<'_>) -> ToolResolution {
        let tools = match self.load_tools(wanted) {
            Ok(tools) => tools,
            Err(refused) => {
                return ToolResolution { driver: None, passed_over: Vec::new(), refused: Some(refused), bound: None };
            }
        };
        let mut passed_over = Vec::new();
        let able = tools.iter().flat_map(|(tool, path)| self.find_candidates(tool, path, wanted, &mut passed_over));
        let able: Vec<DriverCandidate<'_>> = able.collect();
        let able = self.keep_usable(able, &mut passed_over);
        let able = keep_pinned(able, wanted.pinned, &mut passed_over);
        match choose_best(able, &mut passed_over) {
            Some((candidate, why)) => {
                let chosen = ChosenDriver {
                    id: candidate.found.driver.id.clone(),
                    tool: candidate.tool.id.clone(),
                    kind: candidate.kind().as_str(),
                    why,
                };
                let bound = bind::bind_tool(candidate, self.config);
                ToolResolution { driver: Some(chosen), passed_over, refused: None, bound: Some(bound) }
            }
            None => {
                let refused = Some(self.build_refusal(wanted, &passed_over));
                ToolResolution { driver: None, passed_over, refused, bound: None }
            }
        }
    }

    /// Loads the named tool, or the tools that implement the action, with their files.
    fn load_tools(&self, wanted: DriverRequest<'_>) -> Result<Vec<(Aip15Tool, PathBuf)>, ResolutionRefusal> {
        let shelf = self.project.shelf(CatalogKind::Tool);
        let refused = |message: String| ResolutionRefusal { code: "no_route", message };
        let entries: Vec<&CatalogEntry> = match wanted.sort {
            CatalogKind::Action => shelf.find_referring(CatalogKind::Action, wanted.name).collect(),
            _ => shelf.find_newest(wanted.name).into_iter().collect(),
        };
        if entries.is_empty() {
            let name = wanted.name;
            return Err(refused(match wanted.sort {
                CatalogKind::Action => format!(
                    "no tool here implements the action `{name}`; add a `.tools/ID/TOOL.md` with `implements: {name}`"
                ),
                _ => {
                    let name = name.rsplit('/').next().unwrap_or(name);
                    format!("there is no tool `{name}`; define it in `.tools/{name}/TOOL.md`")
                }
            }));
        }
        let read = |entry: &CatalogEntry| {
            let source = self.project.read_source(&entry.path).map_err(|wrong| refused(wrong.message.clone()))?;
            let tool = read_tool(source, self.project as &dyn Project)
                .map_err(|wrong| refused(describe_diagnostics(&wrong)))?;
            Ok((tool, entry.path.clone()))
        };
        entries.into_iter().map(read).collect()
    }

    fn build_refusal(&self, wanted: DriverRequest<'_>, passed_over: &[PassedOverDriver]) -> ResolutionRefusal {
        let (one, _) = wanted.sort.singular_and_plural();
        let mut why: Vec<String> = passed_over.iter().map(|passed| format!("`{}` {}", passed.id, passed.why)).collect();
        why.extend(self.unread.iter().cloned());
        let name = wanted.name;
        if let Some(pinned) = wanted.pinned {
            let own = passed_over.iter().find(|passed| passed.id == pinned);
            let message = match own {
                Some(passed) => format!("the step is pinned to the driver `{pinned}`, which {}", passed.why),
                None => format!(
                    "the step is pinned to the driver `{pinned}`, but no such driver provides the {one} `{name}`"
                ),
            };
            return ResolutionRefusal { code: "pinned_provider_unavailable", message };
        }
        let message = match why.is_empty() {
            true => format!(
                "no driver provides the {one} `{name}`; add a `.drivers/NAME/DRIVER.md` that names it in `implements`"
            ),
            false => format!("no driver can provide the {one} `{name}`: {}", why.join("; ")),
        };
        ResolutionRefusal { code: "no_route", message }
    }
}

/// Returns the first of some diagnostics, in one line.
fn describe_diagnostics(diagnostics: &[skein_dialects::Diagnostic]) -> String {
    let Some(diagnostic) = diagnostics.first() else { return String::new() };
    let place = diagnostic.primary_label();
    let at = place.source.position(place.span.start);
    format!("{}:{}:{}: {}", place.source.name, at.line, at.column, diagnostic.message)
}

/// The indexes of a driver and of an entry of its `implements`.
type OfferIndex = (usize, usize);

/// Entries by the tool that they name: by its id, or by the path of its file.
#[derive(Debug, Default)]
struct DriverOffers {
    by_id: BTreeMap<String, Vec<(Option<String>, OfferIndex)>>,
    by_path: BTreeMap<PathBuf, Vec<OfferIndex>>,
}

impl DriverOffers {
    fn from_drivers(all: &[LoadedDriver]) -> DriverOffers {
        let mut offers = DriverOffers::default();
        for (number, found) in all.iter().enumerate() {
            for (entry, offer) in found.driver.implements.iter().enumerate() {
                offers.add_offer(&offer.tool, &found.folder, (number, entry));
            }
        }
        offers
    }

    fn add_offer(&mut self, named: &str, folder: &Path, place: OfferIndex) {
        if named.ends_with(".md") {
            // A path that does not exist names no tool.
            if let Ok(path) = folder.join(named).canonicalize() {
                self.by_path.entry(path).or_default().push(place);
            }
            return;
        }
        // A reference into a package ends with the id.
        let last = named.rsplit('/').next().unwrap_or(named);
        let (id, major) = last.split_once('@').map_or((last, None), |(id, major)| (id, Some(major.to_owned())));
        self.by_id.entry(id.to_owned()).or_default().push((major, place));
    }

    /// Returns the entries for a tool, in the order of the drivers.
    fn find_offers(&self, tool: &Aip15Tool, path: &Path) -> BTreeSet<OfferIndex> {
        let own = tool.version.split('.').next();
        let fits = |major: &Option<String>| major.is_none() || major.as_deref() == own;
        let by_id = self.by_id.get(&tool.id).into_iter().flatten().filter(|(major, _)| fits(major));
        let by_path = path.canonicalize().ok().and_then(|path| self.by_path.get(&path));
        by_id.map(|(_, place)| *place).chain(by_path.into_iter().flatten().copied()).collect()
    }
}

/// A tool or an action, and the driver that a step is pinned to.
type ResolutionKey = (CatalogKind, String, Option<String>);

/// The resolutions of a plan, by the tool or action.
#[derive(Debug, Default)]
pub(crate) struct ToolResolutions(BTreeMap<ResolutionKey, ToolResolution>);

impl ToolResolutions {
    pub(crate) fn resolve_plan(plan: &Plan, project: &DiskProject) -> ToolResolutions {
        let mut wants: BTreeMap<ResolutionKey, BTreeSet<&str>> = BTreeMap::new();
        for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
            add_wanted(step, &mut wants);
        }
        if wants.is_empty() {
            return ToolResolutions::default();
        }
        let resolver = DriverResolver::load(project);
        let resolve = |(key, inputs): (ResolutionKey, BTreeSet<&str>)| {
            let inputs: Vec<&str> = inputs.into_iter().collect();
            let wanted = DriverRequest { sort: key.0, name: &key.1, pinned: key.2.as_deref(), inputs: &inputs };
            let found = resolver.resolve_tool(wanted);
            (key, found)
        };
        ToolResolutions(wants.into_iter().map(resolve).collect())
    }

    /// Returns the resolution of a worker; none if it is not a tool.
    pub(crate) fn find_resolution(&self, worker: &WorkerSpec) -> Option<&ToolResolution> {
        self.0.get(&worker_key(worker)?)
    }
}

fn worker_key(worker: &WorkerSpec) -> Option<ResolutionKey> {
    match worker {
        WorkerSpec::Tool { tool, pinned } => Some((CatalogKind::Tool, tool.clone(), pinned.clone())),
        WorkerSpec::Action { action, pinned } => Some((CatalogKind::Action, action.clone(), pinned.clone())),
        _ => None,
    }
}

fn add_wanted<'a>(step: &'a Step, wants: &mut BTreeMap<ResolutionKey, BTreeSet<&'a str>>) {
    let mut one = |work: &WorkSpec, inputs: &'a [skein_core::ir::InputBinding]| {
        if let Some(key) = worker_key(&work.worker) {
            wants.entry(key).or_default().extend(inputs.iter().map(|binding| &*binding.name));
        }
    };
    if let StepKindSpec::Work(work) = &step.kind {
        one(work, &step.inputs);
    }
    if let Some(undo) = &step.undo {
        one(&undo.work, &undo.inputs);
    }
}

impl DriverResolver<'_> {
    /// First phase: finds the drivers that offer this tool in this version, for the inputs of this step.
    fn find_candidates<'t>(
        &'t self,
        tool: &'t Aip15Tool,
        path: &Path,
        wanted: DriverRequest<'_>,
        passed_over: &mut Vec<PassedOverDriver>,
    ) -> Vec<DriverCandidate<'t>> {
        let mut found = Vec::new();
        for (number, entry) in self.offers.find_offers(tool, path) {
            let driver = &self.all[number];
            let candidate = DriverCandidate { tool, found: driver, offer: &driver.driver.implements[entry] };
            match find_mismatch(candidate, wanted) {
                Some(why) => passed_over.push(candidate.pass_over(ResolutionPhase::Candidates, why)),
                None => found.push(candidate),
            }
        }
        found
    }

    /// Second and third phase: keeps the drivers that work here, and that the policy allows.
    fn keep_usable<'t>(
        &self,
        candidates: Vec<DriverCandidate<'t>>,
        passed_over: &mut Vec<PassedOverDriver>,
    ) -> Vec<DriverCandidate<'t>> {
        let mut kept = Vec::new();
        for candidate in candidates {
            if let Err(why) = self.check_capable(candidate) {
                passed_over.push(candidate.pass_over(ResolutionPhase::Capability, why.to_string()));
            } else if let Some(why) = self.find_policy_conflict(candidate.found) {
                passed_over.push(candidate.pass_over(ResolutionPhase::Policy, why));
            } else {
                kept.push(candidate);
            }
        }
        kept
    }

    fn find_policy_conflict(&self, found: &LoadedDriver) -> Option<String> {
        let (driver, policy) = (&found.driver, &self.config.drivers);
        let has = |tag: &&String| driver.policy_tags.contains(tag);
        if let Some(tag) = policy.forbid_tags.iter().find(has) {
            return Some(format!("has the policy tag `{tag}`, which `[drivers]` in skein.toml forbids"));
        }
        if let Some(tag) = policy.require_tags.iter().find(|tag| !has(tag)) {
            return Some(format!("lacks the policy tag `{tag}`, which `[drivers]` in skein.toml requires"));
        }
        let anywhere = driver.regions.is_empty() || driver.regions.iter().any(|region| region == "global");
        let here = driver.regions.iter().any(|region| policy.regions.contains(region));
        (!policy.regions.is_empty() && !anywhere && !here).then(|| {
            format!("works in {}, and skein.toml allows only {}", driver.regions.join(", "), policy.regions.join(", "))
        })
    }
}

fn find_mismatch(candidate: DriverCandidate<'_>, wanted: DriverRequest<'_>) -> Option<String> {
    let DriverCandidate { tool, found, offer } = candidate;
    if offer.version.as_ref().is_some_and(|range| !range.contains(&tool.version)) {
        return Some(format!("is for other versions of the tool than {}", tool.version));
    }
    if tool.forbid.contains(&found.driver.id) {
        return Some("is forbidden by the tool".to_owned());
    }
    let kind = found.driver.kind;
    if !tool.require_kind.is_empty() && !tool.require_kind.contains(&kind) {
        return Some(format!("is of the kind {}, which the tool does not allow", kind.as_str()));
    }
    let dropped = |input: &&&str| offer.drop_inputs.iter().any(|name| name == **input);
    wanted.inputs.iter().find(dropped).map(|input| format!("does not take the input `{input}`"))
}

/// Fourth phase: keeps the driver that the step is pinned to.
fn keep_pinned<'t>(
    candidates: Vec<DriverCandidate<'t>>,
    pinned: Option<&str>,
    passed_over: &mut Vec<PassedOverDriver>,
) -> Vec<DriverCandidate<'t>> {
    let Some(pinned) = pinned else { return candidates };
    let (kept, other): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| one.found.driver.id == pinned);
    let why = format!("is not `{pinned}`, which the step is pinned to");
    passed_over.extend(other.iter().map(|one| one.pass_over(ResolutionPhase::Pin, why.clone())));
    kept
}

/// Fifth phase: chooses the best driver. Returns it with the reason.
fn choose_best<'t>(
    mut candidates: Vec<DriverCandidate<'t>>,
    passed_over: &mut Vec<PassedOverDriver>,
) -> Option<(DriverCandidate<'t>, String)> {
    let preferred = |one: &DriverCandidate<'_>| one.tool.default_implementation.as_ref() == Some(&one.found.driver.id);
    let order = |a: &DriverCandidate<'_>, b: &DriverCandidate<'_>| {
        let kind = |one: &DriverCandidate<'_>| one.kind();
        (preferred(b).cmp(&preferred(a)))
            .then(a.cost().total_cmp(&b.cost()))
            .then(kind(a).cmp(&kind(b)))
            .then(a.found.driver.id.cmp(&b.found.driver.id))
            .then(a.tool.id.cmp(&b.tool.id))
    };
    candidates.sort_by(order);
    let mut rest = candidates.into_iter();
    let first = rest.next()?;
    let rest: Vec<DriverCandidate<'_>> = rest.collect();
    passed_over.extend(rest.iter().map(|one| {
        let why = format!("comes after `{}`: {}", first.found.driver.id, explain_ranking(&first, one, preferred));
        one.pass_over(ResolutionPhase::Rank, why)
    }));
    let why =
        rest.first().map_or("it is the only usable one".to_owned(), |next| explain_ranking(&first, next, preferred));
    Some((first, why))
}

/// Returns the reason why one driver ranks before another.
fn explain_ranking(
    first: &DriverCandidate<'_>,
    next: &DriverCandidate<'_>,
    preferred: impl Fn(&DriverCandidate<'_>) -> bool,
) -> String {
    if preferred(first) != preferred(next) {
        return "the tool prefers it".to_owned();
    }
    if first.cost().total_cmp(&next.cost()).is_ne() {
        return format!("it costs {} per call, and the other {}", first.cost(), next.cost());
    }
    let kind = |kind: DriverKind| kind.as_str();
    if first.kind() != next.kind() {
        return format!("the kind {} comes before {}", kind(first.kind()), kind(next.kind()));
    }
    "it is first by name".to_owned()
}
