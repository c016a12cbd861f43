//! Tools and drivers of a project: which program does the work of a tool here.
//!
//! Owns the choice among drivers. A driver that cannot be used is passed over, and told why when none is left.

use std::{ffi::OsStr, path::PathBuf};

use skein_dialects::{Driver, DriverKind, Implements, Piece, Tool, driver, tool};
use skein_host::{crew, worker};

use crate::project::OnDisk;

/// The drivers of a project, read once.
#[derive(Debug)]
pub struct Drivers {
    all: Vec<Found>,
    /// Files that are no drivers, and why.
    unread: Vec<String>,
}

#[derive(Debug)]
struct Found {
    driver: Driver,
    /// The folder of its file.
    folder: PathBuf,
}

/// What a step wants of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub tool: &'a str,
    pub pinned: Option<&'a str>,
    /// The names of the inputs that it gives.
    pub inputs: &'a [&'a str],
}

impl Drivers {
    pub fn of(project: &OnDisk) -> Drivers {
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for path in project.drivers() {
            let shown = project.shown(&path);
            let read = project.source(&path).map_err(|wrong| wrong.message.clone());
            let read = read.and_then(|source| {
                driver(source).map_err(|wrong| wrong.first().map(told).unwrap_or_default())
            });
            match read {
                Ok(driver) => {
                    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
                    all.push(Found { driver, folder });
                }
                Err(why) => unread.push(format!("`{shown}` cannot be used: {why}")),
            }
        }
        all.sort_by(|a, b| a.driver.id.cmp(&b.driver.id));
        Drivers { all, unread }
    }

    /// The program that does the work of a tool, or why there is none.
    pub fn bind(&self, project: &OnDisk, wanted: Wanted<'_>) -> Result<crew::Tool, String> {
        let name = wanted.tool.rsplit('/').next().unwrap_or(wanted.tool);
        let Some(source) = skein_dialects::Project::tool(project, name) else {
            return Err(format!("there is no tool `{name}` here; `.tools/{name}/TOOL.md` would describe it"));
        };
        let path = project.root.join(&source.key);
        let tool = tool(source).map_err(|wrong| wrong.first().map(told).unwrap_or_default())?;
        let offers = |found: &Found, offer: &Implements| {
            let named = offer.tool.split('@').next() == Some(&tool.id)
                || found.folder.join(&offer.tool).canonicalize().is_ok_and(|file| file == path);
            named && offer.version.as_ref().is_none_or(|range| range.holds(&tool.version))
        };
        let candidates: Vec<(&Found, &Implements)> = self
            .all
            .iter()
            .filter_map(|found| Some((found, found.driver.implements.iter().find(|o| offers(found, o))?)))
            .collect();
        choose(&tool, wanted, &candidates).map_err(|mut why| {
            why.extend(self.unread.iter().cloned());
            if why.is_empty() {
                format!(
                    "no driver provides the tool `{name}`; a `.drivers/NAME/DRIVER.md` that names it in `implements` would"
                )
            } else {
                format!("no driver can provide the tool `{name}`: {}", why.join("; "))
            }
        })
    }
}

/// The best of the drivers that can be used, or why each cannot.
fn choose(
    tool: &Tool,
    wanted: Wanted<'_>,
    candidates: &[(&Found, &Implements)],
) -> Result<crew::Tool, Vec<String>> {
    let mut why = Vec::new();
    let mut usable = Vec::new();
    for (found, offer) in candidates {
        match usable_as(tool, wanted, found, offer) {
            Ok(program) => usable.push((*found, *offer, program)),
            Err(reason) => why.push(format!("`{}` {reason}", found.driver.id)),
        }
    }
    let preferred = |found: &Found| Some(&found.driver.id) == tool.default_implementation.as_ref();
    let cost = |found: &Found| found.driver.cost.unwrap_or(u64::MAX);
    usable.sort_by_key(|(found, ..)| (!preferred(found), cost(found), found.driver.id.clone()));
    let Some((found, offer, program)) = usable.into_iter().next() else { return Err(why) };
    let Driver { id, bin_args, exit_codes, timeout, .. } = &found.driver;
    Ok(crew::Tool {
        driver: id.clone(),
        command: [program].into_iter().chain(bin_args.iter().cloned()).collect(),
        arguments: offer.argv.iter().map(|argument| argument.iter().map(piece).collect()).collect(),
        inputs: tool.inputs.clone(),
        outputs: tool.outputs.clone(),
        exit_codes: exit_codes.clone(),
        limit: [*timeout, offer.timeout].into_iter().flatten().min(),
    })
}

/// The program of a driver that can be used for a step, or why it cannot.
fn usable_as(tool: &Tool, wanted: Wanted<'_>, found: &Found, offer: &Implements) -> Result<String, String> {
    let driver = &found.driver;
    if wanted.pinned.is_some_and(|pinned| pinned != driver.id) {
        return Err("is not the one that the step is pinned to".to_owned());
    }
    if tool.forbid.contains(&driver.id) {
        return Err("may not provide it, as the tool says".to_owned());
    }
    if !tool.require_kind.is_empty() && !tool.require_kind.contains(&driver.kind) {
        return Err(format!("is of the kind {}, which the tool does not allow", driver.kind.as_str()));
    }
    if driver.kind != DriverKind::Cli {
        return Err(format!("is of the kind {}, and this version runs only cli", driver.kind.as_str()));
    }
    if offer.maps {
        return Err("changes names by `mapping`, which this version does not".to_owned());
    }
    if let Some(input) =
        wanted.inputs.iter().find(|input| offer.drop_inputs.iter().any(|name| name == *input))
    {
        return Err(format!("does not take the input `{input}`"));
    }
    let fits = |needed: &[String], here: &str| needed.is_empty() || needed.iter().any(|one| one == here);
    if !fits(&driver.os, std::env::consts::OS) || !fits(&driver.arch, std::env::consts::ARCH) {
        return Err("is for another system".to_owned());
    }
    program(found)
}

/// A path is from the driver's own folder; a name is looked up where the engine finds programs.
fn program(found: &Found) -> Result<String, String> {
    let bin = found.driver.bin.as_deref().unwrap_or_default();
    let whole = if bin.contains('/') { found.folder.join(bin) } else { PathBuf::from(bin) };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = worker::find(whole.as_os_str(), OsStr::new(&path), &[]).map_err(|error| error.to_string());
    there.map_err(|why| format!("cannot be used: {why}"))?;
    Ok(whole.display().to_string())
}

fn piece(piece: &Piece) -> crew::Piece {
    match piece {
        Piece::Text(text) => crew::Piece::Text(text.clone()),
        Piece::Input { path, default } => crew::Piece::Input { path: path.clone(), default: default.clone() },
    }
}

/// A diagnostic in one line.
fn told(diagnostic: &skein_dialects::Diagnostic) -> String {
    let place = diagnostic.place();
    let at = place.source.position(place.span.start);
    format!("{}:{}:{}: {}", place.source.name, at.line, at.column, diagnostic.message)
}
