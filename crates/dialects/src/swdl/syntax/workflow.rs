//! The workflow as a whole: its header, its configuration, its stages, its hooks and their surroundings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use skein_core::{ir::HookTiming, time::Millis};

use crate::{
    diagnostics::{Code, DiagnosticSink},
    extensions::{ExtensionBlock, WORKFLOW_BLOCK_FIELDS},
    fields::{FieldReader, FieldTable, FieldValue, ForeignKey, UnloweredSteps, check_variable},
    lowering::call_contract::CallContract,
    source::yaml::{YamlField, YamlNode},
    swdl::{
        defaults::HOOKS,
        syntax::{
            StageContext, SwdlDeclaration, SwdlStage, WORKFLOW_CONTEXT_FIELDS, policy::WorkflowPolicy, read_duration,
            read_id, read_non_empty_text, read_plain_text, read_plain_texts, read_text,
        },
    },
};

/// A whole source file.
#[derive(Debug)]
pub(in crate::swdl) struct SwdlWorkflow<'a> {
    pub about: SwdlHeader<'a>,
    pub config: SwdlConfig<'a>,
    pub context: StageContext<'a>,
    /// None if some stage has no usable id.
    pub stages: Option<UnloweredSteps<SwdlStage<'a>>>,
    pub policy: WorkflowPolicy<'a>,
    pub hooks: Vec<HookDef<'a>>,
    /// Unknown fields, kept for other programs.
    pub others: BTreeMap<String, Value>,
    pub skein: ExtensionBlock,
    /// Only outputs: the format has its own field for the inputs of a workflow.
    pub border: CallContract<'a>,
}

/// The `workflow` block.
#[derive(Debug, Default)]
pub(in crate::swdl) struct SwdlHeader<'a> {
    pub id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub version: Option<&'a str>,
    pub description: Option<&'a str>,
    pub author: Option<&'a str>,
    pub tags: Vec<&'a str>,
    pub ui: Option<FieldValue<'a>>,
}

/// The `config` block.
#[derive(Debug, Default)]
pub(in crate::swdl) struct SwdlConfig<'a> {
    /// None if the declarations are unknown.
    pub parameters: Option<Vec<SwdlDeclaration<'a>>>,
    pub timeout: Option<Millis>,
    pub env: Vec<(&'a str, FieldValue<'a>)>,
}

const WORKFLOW_FIELDS: FieldTable =
    FieldTable::open(&["workflow", "context", "x-skein", "error_policy", "config", "stages", "hooks"])
        .with_explanations(explain_workflow_id);

impl<'a> SwdlWorkflow<'a> {
    pub(crate) fn read(root: YamlNode<'a>, sink: &mut DiagnosticSink) -> Option<SwdlWorkflow<'a>> {
        let mut fields = FieldReader::from_node(root, "a workflow", WORKFLOW_FIELDS, sink)?;
        let about = match root.get(WORKFLOW_ID) {
            Some(_) => fields.optional("workflow"),
            None => fields.required("workflow", sink),
        };
        let (context, block) = (fields.optional("context"), fields.optional("x-skein"));
        let policy = fields.optional("error_policy");
        let config = fields.optional("config");
        let mut workflow = SwdlWorkflow {
            about: about.and_then(|given| SwdlHeader::read(given, sink)).unwrap_or_default(),
            config: match config {
                Some(given) => SwdlConfig::read(given, sink).unwrap_or_default(),
                None => SwdlConfig { parameters: Some(Vec::new()), ..SwdlConfig::default() },
            },
            context: context.map(|given| StageContext::read(given, WORKFLOW_CONTEXT_FIELDS, sink)).unwrap_or_default(),
            stages: fields.required("stages", sink).and_then(|given| read_stages(given, sink)),
            policy: policy.map(|given| WorkflowPolicy::read(given, sink)).unwrap_or_default(),
            hooks: fields.optional("hooks").map(|given| HookDef::read_all(given, sink)).unwrap_or_default(),
            others: BTreeMap::new(),
            skein: block.map_or_else(ExtensionBlock::default, |given| {
                ExtensionBlock::read(given, WORKFLOW_BLOCK_FIELDS.with_unread(&["output"]), sink)
            }),
            border: CallContract { input: None, ..CallContract::read(block, sink) },
        };
        workflow.others = fields.unknown_fields().map(|field| (field.key.to_owned(), field.value.to_json())).collect();
        fields.finish(sink);
        Some(workflow)
    }
}

/// The only header of the first draft of the format.
const WORKFLOW_ID: &str = "workflow_id";

fn explain_workflow_id(key: &str) -> Option<ForeignKey> {
    (key == WORKFLOW_ID).then(|| ForeignKey::Refused {
        code: Code::RemovedField,
        message: "`workflow_id` is not a field any more".to_owned(),
        hint: "write `workflow`, with `id` and `name` in it".to_owned(),
    })
}

const HEADER_FIELDS: &[&str] = &["id", "name", "version", "description", "author", "tags", "ui"];

impl<'a> SwdlHeader<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<SwdlHeader<'a>> {
        let mut fields = FieldReader::from_node(given.node, "`workflow`", HEADER_FIELDS, sink)?;
        let about = SwdlHeader {
            id: read_id(fields.required("id", sink), sink),
            name: read_non_empty_text(fields.required("name", sink), sink),
            version: read_non_empty_text(fields.optional("version"), sink),
            description: read_text(fields.optional("description"), sink),
            author: read_text(fields.optional("author"), sink),
            tags: read_plain_texts(fields.optional("tags"), sink),
            ui: fields.optional("ui"),
        };
        fields.finish(sink);
        Some(about)
    }
}

const CONFIG_FIELDS: &[&str] = &["parameters", "timeout", "env"];

impl<'a> SwdlConfig<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<SwdlConfig<'a>> {
        let fields = FieldReader::from_node(given.node, "`config`", CONFIG_FIELDS, sink)?;
        let config = SwdlConfig {
            parameters: SwdlDeclaration::read_parameters(fields.optional("parameters"), sink),
            timeout: read_duration(fields.optional("timeout"), sink),
            env: fields.optional("env").map(|given| read_env(given, sink)).unwrap_or_default(),
        };
        fields.finish(sink);
        Some(config)
    }
}

/// Reads the environment variables of workers and checks their names.
fn read_env<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<(&'a str, FieldValue<'a>)> {
    let Some(fields) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of variables by name"));
        return Vec::new();
    };
    let mut env = Vec::new();
    for field in fields {
        let YamlField { key: name, key_span, value: node } = field;
        if check_variable(name, node, key_span, sink) && FieldValue::new(name, node).read_text(sink).is_some() {
            env.push((name, FieldValue::new(name, node)));
        }
    }
    env
}

fn read_stages<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<UnloweredSteps<SwdlStage<'a>>> {
    let Some(items) = given.node.items() else {
        let diagnostic = given.diagnose_type("a list of stages");
        sink.push(match given.node.fields().is_some() {
            true => diagnostic.with_hint("start each stage with `- id:`"),
            false => diagnostic,
        });
        return None;
    };
    if items.len() == 0 {
        let message = "a workflow needs at least one stage";
        sink.push(given.diagnose(Code::NoSteps, message));
        return None;
    }
    let count = items.len();
    let mut stages = Vec::with_capacity(count);
    stages.extend(items.filter_map(|node| SwdlStage::read(FieldValue::new(given.name, node), sink).map(Box::new)));
    (stages.len() == count).then(|| drop_duplicate_stages(stages, sink))
}

/// Reports each duplicate id and drops its stage: the first counts.
fn drop_duplicate_stages<'a>(
    stages: UnloweredSteps<SwdlStage<'a>>,
    sink: &mut DiagnosticSink,
) -> UnloweredSteps<SwdlStage<'a>> {
    let mut firsts: HashMap<&skein_core::ids::StepId, YamlNode<'a>> = HashMap::with_capacity(stages.len());
    let mut twins = BTreeSet::new();
    for (number, stage) in stages.iter().enumerate() {
        let at = stage.node.get("id").unwrap_or(stage.node);
        if let Some(first) = firsts.get(&stage.id) {
            let message = format!("two stages are called `{}`", stage.id);
            let diagnostic = at.diagnose(Code::DuplicateName, message);
            sink.push(diagnostic.with_label("again here").with_related_in(
                first.source(),
                first.first_line_span(),
                "first here",
            ));
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

/// The actions at one of those times.
#[derive(Debug)]
pub(in crate::swdl) struct HookDef<'a> {
    pub when: HookTiming,
    pub notify: Option<NotifyDef<'a>>,
    pub run: Option<FieldValue<'a>>,
}

#[derive(Debug)]
pub(in crate::swdl) struct NotifyDef<'a> {
    pub channel: &'a str,
    pub message: Option<FieldValue<'a>>,
}

const HOOKS_FIELDS: &[&str] = &["on_start", "on_complete", "on_failure"];
const HOOK_FIELDS: &[&str] = &["notify", "run"];

impl<'a> HookDef<'a> {
    pub(crate) fn read_all(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<HookDef<'a>> {
        let Some(fields) = FieldReader::from_node(given.node, "`hooks`", HOOKS_FIELDS, sink) else {
            return Vec::new();
        };
        let mut hooks = Vec::new();
        for (name, when) in HOOKS {
            let given = fields.optional(name);
            hooks.extend(given.and_then(|given| HookDef::read(given, *when, sink)));
        }
        fields.finish(sink);
        hooks
    }

    fn read(given: FieldValue<'a>, when: HookTiming, sink: &mut DiagnosticSink) -> Option<HookDef<'a>> {
        let fields = FieldReader::from_node(given.node, "a hook", HOOK_FIELDS, sink)?;
        let (notify, run) = (fields.optional("notify"), fields.optional("run"));
        fields.finish(sink);
        let hook = HookDef {
            when,
            notify: notify.and_then(|given| NotifyDef::read(given, sink)),
            run: run.filter(|given| given.read_non_empty_text(sink).is_some()),
        };
        if notify.is_none() && run.is_none() {
            let message = format!("`{}` does nothing", given.name);
            let diagnostic = given.diagnose(Code::NoValue, message);
            sink.push(diagnostic.with_hint("give it `notify`, `run` or both"));
        }
        Some(hook)
    }
}

const NOTIFY_FIELDS: &[&str] = &["channel", "message"];

impl<'a> NotifyDef<'a> {
    /// Reads a channel, or a channel and a message.
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<NotifyDef<'a>> {
        if given.node.fields().is_none() {
            return Some(NotifyDef { channel: read_plain_text(Some(given), sink)?, message: None });
        }
        let mut fields = FieldReader::from_node(given.node, "`notify`", NOTIFY_FIELDS, sink)?;
        let channel = read_plain_text(fields.required("channel", sink), sink);
        let message = fields.optional("message").filter(|given| given.read_non_empty_text(sink).is_some());
        fields.finish(sink);
        Some(NotifyDef { channel: channel?, message })
    }
}
