//! A DRIVER.md: which program does the work of a tool, and how it is called.
//!
//! Owns the fields of AIP-30 that say so. Refuses to know whether the program is there.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::time::Millis;

use super::{
    argument::{Argument, argument},
    defaults::{DESCRIPTION_CHARS, DRIVER_KINDS, NAME_CHARS},
    policy,
    range::Range,
    tool::{id, texts},
};
use crate::{
    code::Code,
    detect::front_matter,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    source::Source,
};

/// How a driver reaches what does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriverKind {
    Builtin,
    Sdk,
    Http,
    Mcp,
    Cli,
}

impl DriverKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DriverKind::Builtin => "builtin",
            DriverKind::Sdk => "sdk",
            DriverKind::Http => "http",
            DriverKind::Mcp => "mcp",
            DriverKind::Cli => "cli",
        }
    }
}

/// A driver as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Driver {
    pub id: String,
    pub kind: DriverKind,
    /// The program of a `cli` driver, and the arguments that come first.
    pub bin: Option<String>,
    pub bin_args: Vec<String>,
    /// What an exit status means, as an error code.
    pub exit_codes: BTreeMap<i32, String>,
    pub implements: Vec<Implements>,
    /// What a call costs, to choose by.
    pub cost: Option<u64>,
    pub timeout: Option<Millis>,
    /// The systems and machines that it needs one of. Empty: any.
    pub os: Vec<String>,
    pub arch: Vec<String>,
}

/// A tool that a driver provides.
#[derive(Debug, Clone, PartialEq)]
pub struct Implements {
    /// Its id, or the path of its file.
    pub tool: String,
    /// The versions of it. None: any.
    pub version: Option<Range>,
    pub argv: Vec<Argument>,
    pub timeout: Option<Millis>,
    /// Inputs that it does not take.
    pub drop_inputs: Vec<String>,
    /// Whether names would have to be changed on the way.
    pub maps: bool,
}

/// Reads a DRIVER.md.
pub fn driver(source: Arc<Source>) -> Result<Driver, Vec<Diagnostic>> {
    let mut sink = Sink::new(source);
    let read = front_matter(&mut sink).and_then(|tree| {
        let fields = Fields::of(tree.root(), "a driver", &mut sink)?;
        Driver::read(fields, &mut sink)
    });
    match read {
        Some(driver) if !sink.has_errors() => Ok(driver),
        _ => Err(sink.finish()),
    }
}

/// What is kept for others and not looked at here.
const KEPT: &[&str] = &[
    "install",
    "version_check",
    "auth",
    "network",
    "runner",
    "region",
    "policy_tags",
    "retry_override",
    "health_check",
    "examples",
    "tags",
    "metadata",
];

impl Driver {
    fn read(mut fields: Fields<'_>, sink: &mut Sink) -> Option<Driver> {
        let name = fields.required("name", sink);
        name.and_then(|given| policy::short_text(given, NAME_CHARS, sink));
        let id = fields.required("id", sink).and_then(|given| id(given, sink));
        let description = fields.required("description", sink);
        description.and_then(|given| policy::short_text(given, DESCRIPTION_CHARS, sink));
        fields.required("version", sink).and_then(|given| policy::version(given, sink));
        let kind = fields.required("kind", sink).and_then(|given| given.one_of(DRIVER_KINDS, sink));
        let bin = match kind.as_ref().map(|kind| kind.value) {
            Some(DriverKind::Cli) => fields.required("bin", sink),
            _ => fields.optional("bin"),
        };
        let bin = bin.and_then(|given| given.words(sink));
        let bin_args = fields.optional("bin_args").map(|given| texts(given, sink)).unwrap_or_default();
        let exit_codes = fields.optional("output").map(|given| exit_codes(given, sink)).unwrap_or_default();
        let implements = fields.required("implements", sink).map(|given| implements(given, sink));
        let cost = fields.optional("cost_override").and_then(|given| cost(given, sink));
        let timeout = fields.optional("timeout_override_ms").and_then(|given| given.millis(1, sink));
        let (os, arch) = fields.optional("requires").map(|given| requires(given, sink)).unwrap_or_default();
        fields.allow(KEPT);
        fields.finish(sink);
        Some(Driver {
            id: id?.to_owned(),
            kind: kind?.value,
            bin: bin.map(|text| text.value.to_owned()),
            bin_args,
            exit_codes,
            implements: implements?,
            cost,
            timeout: timeout.map(|length| length.value),
            os,
            arch,
        })
    }
}

fn implements(given: Given<'_>, sink: &mut Sink) -> Vec<Implements> {
    let items = given.list(sink).unwrap_or_default();
    if items.is_empty() {
        let message = "a driver implements at least one tool";
        sink.push(Diagnostic::new(Code::TooFew, given.node.source(), given.node.mark(), message));
    }
    items.into_iter().filter_map(|item| implementation(item, sink)).collect()
}

fn implementation(given: Given<'_>, sink: &mut Sink) -> Option<Implements> {
    let mut fields = Fields::of(given.node, "an entry of `implements`", sink)?;
    let tool = fields.required("tool", sink).and_then(|given| given.words(sink));
    let version = fields.optional("version").and_then(|given| range(given, sink));
    let timeout = fields.optional("timeout_override_ms").and_then(|given| given.millis(1, sink));
    let narrowing = fields.optional("schema_narrowing");
    let drop_inputs = narrowing.map(|given| drops(given, sink)).unwrap_or_default();
    let mapping = fields.optional("mapping");
    let maps = mapping.is_some_and(|given| given.node.fields().is_some_and(|fields| fields.len() > 0));
    let cli = fields.optional("metadata").and_then(|given| given.node.get("cli"));
    let argv = cli.and_then(|cli| cli.get("argv")).map(|node| argv(Given { name: "argv", node }, sink));
    fields.allow(&["cost_override", "retry_override"]);
    fields.finish(sink);
    Some(Implements {
        tool: tool?.value.to_owned(),
        version,
        argv: argv.unwrap_or_default(),
        timeout: timeout.map(|length| length.value),
        drop_inputs,
        maps,
    })
}

fn range(given: Given<'_>, sink: &mut Sink) -> Option<Range> {
    let range = given.node.raw().and_then(Range::parse);
    if range.is_none() {
        sink.push(given.wrong("a range of versions, such as `^1.0.0`"));
    }
    range
}

fn argv(given: Given<'_>, sink: &mut Sink) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for item in given.list(sink).unwrap_or_default() {
        let Some(text) = item.node.raw() else {
            sink.push(item.wrong("text"));
            continue;
        };
        match argument(text) {
            Ok(read) => arguments.push(read),
            Err(why) => {
                let message = format!("this argument cannot be filled in: {why}");
                let (source, span) = (item.node.source(), item.node.mark());
                sink.push(Diagnostic::new(Code::BadExpression, source, span, message));
            }
        }
    }
    arguments
}

fn drops(given: Given<'_>, sink: &mut Sink) -> Vec<String> {
    let Some(mut fields) = Fields::of(given.node, "`schema_narrowing`", sink) else { return Vec::new() };
    let inputs = fields.optional("drop_inputs");
    fields.allow(&["drop_outputs"]);
    fields.finish(sink);
    inputs.map(|given| texts(given, sink)).unwrap_or_default()
}

/// Error codes by exit status. How the output is written is always the same here, so the rest is let be.
fn exit_codes(given: Given<'_>, sink: &mut Sink) -> BTreeMap<i32, String> {
    let codes = given.node.get("exit_codes").filter(|node| !node.is_null());
    let Some(node) = codes else { return BTreeMap::new() };
    let given = Given { name: "exit_codes", node };
    let mut found = BTreeMap::new();
    let Some(fields) = node.fields() else {
        sink.push(given.wrong("a mapping of exit statuses and error codes"));
        return found;
    };
    for field in fields {
        let status = field.key.parse::<i32>().ok().filter(|status| (1..=255).contains(status));
        match (status, field.value.raw()) {
            (Some(status), Some(code)) => drop(found.insert(status, code.to_owned())),
            _ => sink.push(given.wrong("a mapping of exit statuses from 1 to 255 and error codes")),
        }
    }
    found
}

fn cost(given: Given<'_>, sink: &mut Sink) -> Option<u64> {
    let mut fields = Fields::of(given.node, "`cost_override`", sink)?;
    let units = fields.optional("cost_units_per_call").and_then(|given| given.whole(0..=u32::MAX, sink));
    fields.allow(&["cost_class", "currency"]);
    fields.finish(sink);
    units.map(|units| u64::from(units.value))
}

fn requires(given: Given<'_>, sink: &mut Sink) -> (Vec<String>, Vec<String>) {
    let Some(mut fields) = Fields::of(given.node, "`requires`", sink) else { return Default::default() };
    let (os, arch) = (fields.optional("os"), fields.optional("arch"));
    fields.allow(&["min_disk_mb", "min_memory_mb"]);
    fields.finish(sink);
    let mut list = |given: Option<Given<'_>>| given.map(|given| texts(given, sink)).unwrap_or_default();
    (list(os), list(arch))
}

#[cfg(test)]
mod tests {
    use super::{super::argument::Piece, *};

    fn read(more: &str) -> Result<Driver, Vec<String>> {
        let text = format!(
            "---\nname: Desk\nid: desk\ndescription: Does it.\nversion: 1.0.0\n{more}\n---\nProse.\n"
        );
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        driver(Source::new("DRIVER.md", text)).map_err(said)
    }

    #[test]
    fn a_driver_says_how_its_program_is_called() {
        let driver = read(
            "kind: cli\nbin: ./desk.sh\nbin_args: [--json]\ntimeout_override_ms: 900\n\
             output: {exit_codes: {3: not_found, \"4\": rate_limited}}\n\
             implements:\n  - tool: weigh\n    version: ^1\n    metadata: {cli: {argv: [weigh, \"${input.what}\"]}}\n",
        )
        .unwrap();
        assert_eq!((driver.kind, driver.bin.as_deref()), (DriverKind::Cli, Some("./desk.sh")));
        assert_eq!(driver.exit_codes, [(3, "not_found".to_owned()), (4, "rate_limited".to_owned())].into());
        assert_eq!(driver.timeout, Some(Millis(900)));
        let offer = &driver.implements[0];
        assert!(offer.version.as_ref().is_some_and(|range| range.holds("1.4.0")));
        let what = Piece::Input { path: vec!["what".into()], default: None };
        assert_eq!(offer.argv, [vec![Piece::Text("weigh".into())], vec![what]]);
    }

    #[test]
    fn what_is_wrong_with_a_driver_is_said() {
        for (more, says) in [
            ("kind: cli\nimplements: [{tool: a}]", "a driver needs `bin`"),
            ("kind: cli\nbin: a\nimplements: []", "at least one tool"),
            ("kind: grpc\nimplements: [{tool: a}]", "`kind` cannot be `grpc`"),
            ("kind: http\nimplements: [{tool: a, version: one}]", "`version` is a range of versions"),
            (
                "kind: cli\nbin: a\nimplements: [{tool: a, metadata: {cli: {argv: [\"${env.X}\"]}}}]",
                "names no input",
            ),
            ("kind: cli\nbin: a\noutput: {exit_codes: {0: fine}}\nimplements: [{tool: a}]", "from 1 to 255"),
        ] {
            let said = read(more).unwrap_err();
            assert!(said.iter().any(|one| one.contains(says)), "{more}: {said:?}");
        }
    }
}
