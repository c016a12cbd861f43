//! The workflow as a whole: who it is, its configuration, its stages and what surrounds them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use skein_core::time::Millis;

use super::{
    Declared, HookDef, Stage, StageContext, id, length, plains, policy::WorkflowPolicy, text, words,
};
use crate::{
    border::Border,
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given, Unlowered},
    variable::check_variable,
    xskein::{Extra, Level, XSkein},
    yaml::{Field, Node},
};

/// A whole source.
#[derive(Debug)]
pub(in crate::swdl) struct Workflow<'a> {
    pub about: About<'a>,
    pub config: Config<'a>,
    pub context: StageContext<'a>,
    /// None if some stage has no id that can be used.
    pub stages: Option<Unlowered<Stage<'a>>>,
    pub policy: WorkflowPolicy<'a>,
    pub hooks: Vec<HookDef<'a>>,
    /// What stands beside the known fields, kept for whoever put it there.
    pub others: BTreeMap<String, Value>,
    pub skein: XSkein,
    /// Of which the format has what a workflow takes.
    pub border: Border<'a>,
}

/// The `workflow` block.
#[derive(Debug, Default)]
pub(in crate::swdl) struct About<'a> {
    pub id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub version: Option<&'a str>,
    pub description: Option<&'a str>,
    pub author: Option<&'a str>,
    pub tags: Vec<&'a str>,
    pub ui: Option<Given<'a>>,
}

/// The `config` block.
#[derive(Debug, Default)]
pub(in crate::swdl) struct Config<'a> {
    /// None if nothing can be said about what is declared.
    pub parameters: Option<Vec<Declared<'a>>>,
    pub timeout: Option<Millis>,
    pub env: Vec<(&'a str, Given<'a>)>,
}

impl<'a> Workflow<'a> {
    pub fn read(root: Node<'a>, sink: &mut Sink) -> Option<Workflow<'a>> {
        let mut fields = Fields::of(root, "a workflow", sink)?;
        let about = match refuse_workflow_id(&mut fields, sink) {
            true => fields.optional("workflow"),
            false => fields.required("workflow", sink),
        };
        let (context, block) = (fields.optional("context"), fields.optional("x-skein"));
        let policy = fields.optional("error_policy");
        let config = fields.optional("config");
        let mut workflow = Workflow {
            about: about.and_then(|given| About::read(given, sink)).unwrap_or_default(),
            config: match config {
                Some(given) => Config::read(given, sink).unwrap_or_default(),
                None => Config { parameters: Some(Vec::new()), ..Config::default() },
            },
            context: context
                .map(|given| StageContext::read(given, "global_modules", sink))
                .unwrap_or_default(),
            stages: fields.required("stages", sink).and_then(|given| read_stages(given, sink)),
            policy: policy.map(|given| WorkflowPolicy::read(given, sink)).unwrap_or_default(),
            hooks: fields.optional("hooks").map(|given| HookDef::all(given, sink)).unwrap_or_default(),
            others: BTreeMap::new(),
            border: Border { input: None, ..Border::read(block, sink) },
            skein: block.map_or_else(XSkein::default, |given| {
                let extra = Extra { own: &["output"], ..Extra::default() };
                XSkein::read(given, Level::Workflow, extra, sink)
            }),
        };
        let others = root.fields().into_iter().flatten().filter(|field| !fields.knows(field.key));
        workflow.others = others.map(|field| (field.key.to_owned(), field.value.json())).collect();
        fields.finish_open(sink);
        Some(workflow)
    }
}

/// The first draft of the format had an id and nothing else. Says whether this has one.
fn refuse_workflow_id(fields: &mut Fields<'_>, sink: &mut Sink) -> bool {
    let Some(field) = fields.field("workflow_id") else { return false };
    fields.optional("workflow_id");
    let message = "`workflow_id` is not a field any more";
    let diagnostic = Diagnostic::new(Code::RemovedField, field.value.source(), field.key_span, message);
    sink.push(diagnostic.hint("write `workflow`, with `id` and `name` in it"));
    true
}

impl<'a> About<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<About<'a>> {
        let mut fields = Fields::of(given.node, "`workflow`", sink)?;
        let about = About {
            id: id(fields.required("id", sink), sink),
            name: words(fields.required("name", sink), sink),
            version: words(fields.optional("version"), sink),
            description: text(fields.optional("description"), sink),
            author: text(fields.optional("author"), sink),
            tags: plains(fields.optional("tags"), sink),
            ui: fields.optional("ui"),
        };
        fields.finish(sink);
        Some(about)
    }
}

impl<'a> Config<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<Config<'a>> {
        let mut fields = Fields::of(given.node, "`config`", sink)?;
        let config = Config {
            parameters: Declared::parameters(fields.optional("parameters"), sink),
            timeout: length(fields.optional("timeout"), sink),
            env: fields.optional("env").map(|given| read_env(given, sink)).unwrap_or_default(),
        };
        fields.finish(sink);
        Some(config)
    }
}

/// Variables that workers get. Their names are those of an environment.
fn read_env<'a>(given: Given<'a>, sink: &mut Sink) -> Vec<(&'a str, Given<'a>)> {
    let Some(fields) = given.node.fields() else {
        sink.push(given.wrong("a mapping of variables by name"));
        return Vec::new();
    };
    let mut env = Vec::new();
    for field in fields {
        let Field { key: name, key_span, value: node } = field;
        if check_variable(name, node, key_span, sink) && Given::new(name, node).text(sink).is_some() {
            env.push((name, Given::new(name, node)));
        }
    }
    env
}

fn read_stages<'a>(given: Given<'a>, sink: &mut Sink) -> Option<Unlowered<Stage<'a>>> {
    let Some(items) = given.node.items() else {
        let diagnostic = given.wrong("a list of stages");
        sink.push(match given.node.fields().is_some() {
            true => diagnostic.hint("start each stage with `- id:`"),
            false => diagnostic,
        });
        return None;
    };
    if items.len() == 0 {
        let message = "a workflow needs at least one stage";
        sink.push(Diagnostic::new(Code::NoSteps, given.node.source(), given.node.mark(), message));
        return None;
    }
    let count = items.len();
    let mut stages = Vec::with_capacity(count);
    stages.extend(items.filter_map(|node| Stage::read(Given::new(given.name, node), sink).map(Box::new)));
    (stages.len() == count).then(|| without_twins(stages, sink))
}

/// Reports each id that is there already, and leaves its stage out: the first counts.
fn without_twins<'a>(stages: Unlowered<Stage<'a>>, sink: &mut Sink) -> Unlowered<Stage<'a>> {
    let mut firsts: HashMap<&skein_core::ids::StepId, Node<'a>> = HashMap::with_capacity(stages.len());
    let mut twins = BTreeSet::new();
    for (number, stage) in stages.iter().enumerate() {
        let at = stage.node.get("id").unwrap_or(stage.node);
        if let Some(first) = firsts.get(&stage.id) {
            let message = format!("two stages are called `{}`", stage.id);
            let diagnostic = Diagnostic::new(Code::DuplicateName, at.source(), at.mark(), message);
            sink.push(diagnostic.label("again here").also_in(first.source(), first.mark(), "first here"));
            twins.insert(number);
        } else {
            firsts.insert(&stage.id, at);
        }
    }
    if twins.is_empty() {
        return stages;
    }
    let kept = stages.into_iter().enumerate().filter(|(number, _)| !twins.contains(number));
    kept.map(|(_, stage)| stage).collect()
}
