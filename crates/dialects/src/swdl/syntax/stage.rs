//! One stage, of each of the three types.

use skein_core::{ids::StepId, time::Millis};

use super::{Declared, Input, StageContext, StagePolicy, flag, id, is_plain, length, plain, plains, words};
use crate::{
    border::{CALL, call},
    code::Code,
    common::waits_for,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    swdl::defaults::{ARTIFACTS, GATE_KINDS, HANDOFF_FORMATS, ON_TIMEOUT, OnTimeout, STAGE_TYPES, StageType},
    xskein::{Extra, OwnSkein},
    yaml::Node,
};

#[derive(Debug)]
pub(in crate::swdl) struct Stage<'a> {
    pub id: StepId,
    pub node: Node<'a>,
    pub name: Option<&'a str>,
    pub description: Option<&'a str>,
    pub depends_on: Vec<StepId>,
    pub condition: Option<Given<'a>>,
    pub does: Does<'a>,
    pub policy: StagePolicy<'a>,
    pub ui: Option<Given<'a>>,
    pub skein: OwnSkein,
}

/// What a stage does.
#[derive(Debug)]
pub(in crate::swdl) enum Does<'a> {
    Agent(Box<Asked<'a>>),
    /// Another workflow does it, by `x-skein.call`.
    Call(Box<Called<'a>>),
    Gate(Box<GateDef<'a>>),
    FanOut {
        source: Option<Given<'a>>,
        template: Option<(Node<'a>, Box<Asked<'a>>)>,
    },
    /// Its type is none, which has been reported.
    Unclear,
}

/// The workflow that a stage calls, what it is given and what it must give.
#[derive(Debug)]
pub(in crate::swdl) struct Called<'a> {
    pub workflow: Given<'a>,
    pub inputs: Vec<Input<'a>>,
    /// None if nothing can be said about what is declared.
    pub outputs: Option<Vec<Declared<'a>>>,
}

/// What an agent is asked to do, in a stage or for each item of one.
#[derive(Debug, Default)]
pub(in crate::swdl) struct Asked<'a> {
    pub roles: Roles<'a>,
    pub inputs: Vec<Input<'a>>,
    /// None if nothing can be said about what is declared.
    pub outputs: Option<Vec<Declared<'a>>>,
    pub context: Option<Box<StageContext<'a>>>,
    pub handoff: Handoff<'a>,
    /// Of an item.
    pub policy: StagePolicy<'a>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct Roles<'a> {
    /// The name of the agent, without `agent:`.
    pub agent: Option<(Given<'a>, &'a str)>,
    pub model: Option<&'a str>,
    pub instructions: Option<Given<'a>>,
    pub tools: Vec<(Given<'a>, &'a str)>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct Handoff<'a> {
    pub format: Option<&'static str>,
    pub include_run_log: Option<bool>,
    pub summary_prompt: Option<Given<'a>>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct GateDef<'a> {
    pub approvers: Vec<&'a str>,
    pub timeout: Option<Millis>,
    pub on_timeout: OnTimeout,
    pub message: Option<Given<'a>>,
}

/// The fields that only mean something in a stage of one type.
const OF_TYPE: &[(&str, StageType)] = &[
    ("roles", StageType::Agent),
    ("inputs", StageType::Agent),
    ("outputs", StageType::Agent),
    ("context", StageType::Agent),
    ("handoff", StageType::Agent),
    ("gate", StageType::Gate),
    ("fan_out", StageType::FanOut),
];

impl<'a> Stage<'a> {
    pub fn read(item: Given<'a>, sink: &mut Sink) -> Option<Stage<'a>> {
        let node = item.node;
        let mut fields = Fields::of(node, "a stage", sink)?;
        let id = id(fields.required("id", sink), sink).and_then(|id| StepId::new(id).ok());
        let name = words(fields.required("name", sink), sink);
        let description = super::text(fields.optional("description"), sink);
        let depends_on = waits_for(fields.optional("depends_on"), sink);
        let depends_on = depends_on.into_iter().map(|name| name.value).collect();
        let condition = fields.optional("condition").filter(|given| is_scalar(*given, sink));
        let (does, fans_out) = Does::read(&mut fields, sink);
        let policy = fields
            .optional("error_policy")
            .map_or_else(StagePolicy::default, |given| StagePolicy::read(given, sink));
        let ui = fields.optional("ui");
        let own: &[&str] = if matches!(does, Does::Call(_) | Does::Unclear) { &[CALL] } else { &[] };
        let is_gate = matches!(does, Does::Gate(_));
        let extra = Extra { on_error: fans_out, quorum: is_gate, own, ..Extra::default() };
        let skein = OwnSkein::read(fields.optional("x-skein"), extra, sink);
        refuse_context_policy(&mut fields, sink);
        fields.finish(sink);
        Some(Stage { id: id?, node, name, description, depends_on, condition, does, policy, ui, skein })
    }
}

/// The first draft of the format had its own block for modules.
fn refuse_context_policy(fields: &mut Fields<'_>, sink: &mut Sink) {
    if let Some(field) = fields.field("context_policy") {
        fields.optional("context_policy");
        let message = "`context_policy` is not a field any more";
        let diagnostic = Diagnostic::new(Code::RemovedField, field.value.source(), field.key_span, message);
        sink.push(diagnostic.hint("write `context`, with `modules` in it"));
    }
}

/// A condition is text, or a plain `true` or `false`.
fn is_scalar(given: Given<'_>, sink: &mut Sink) -> bool {
    if given.node.raw().is_none() {
        sink.push(given.wrong("an expression, such as `\"${{ parameters.deep == true }}\"`"));
    }
    given.node.raw().is_some()
}

impl<'a> Does<'a> {
    /// What it does, and whether it says that it is a fan-out.
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> (Does<'a>, bool) {
        let given = fields.optional("type");
        let ty = match given {
            Some(given) => given.one_of(STAGE_TYPES, sink).map(|word| word.value),
            None => Some(of_block(fields, sink).unwrap_or_default()),
        };
        let Some(ty) = ty else {
            for (name, _) in OF_TYPE {
                fields.optional(name);
            }
            return (Does::Unclear, true);
        };
        refuse_others(fields, ty, given, sink);
        let does = match ty {
            StageType::Agent => match call(block(fields), sink) {
                Some(workflow) => Does::Call(Box::new(Called::read(workflow, fields, sink))),
                None => Does::Agent(Box::new(Asked::read(fields, sink))),
            },
            StageType::Gate => {
                let gate = fields.required("gate", sink);
                let gate = gate.and_then(|given| GateDef::read(given, sink));
                Does::Gate(Box::new(gate.unwrap_or_default()))
            }
            StageType::FanOut => match fields.required("fan_out", sink) {
                Some(given) => read_fan_out(given, sink),
                None => Does::FanOut { source: None, template: None },
            },
        };
        (does, ty == StageType::FanOut)
    }
}

/// The type of a stage that does not say it, if it has the block of another type than the usual one and nothing else
/// to do. That it must say it is told.
fn of_block(fields: &Fields<'_>, sink: &mut Sink) -> Option<StageType> {
    let mut blocks = OF_TYPE.iter().filter(|(_, of)| *of != StageType::Agent);
    let (name, ty) = blocks.find(|(name, _)| fields.field(name).is_some())?;
    if fields.field("roles").is_some() || call(block(fields), sink).is_some() {
        return None;
    }
    let field = fields.field(name)?;
    let message = format!("a stage with `{name}` must say that it is one of that type");
    let diagnostic = Diagnostic::new(Code::MissingField, field.value.source(), field.key_span, message);
    sink.push(diagnostic.hint(format!("add `type: {name}`")));
    Some(*ty)
}

fn block<'a>(fields: &Fields<'a>) -> Option<Given<'a>> {
    fields.node().get("x-skein").map(|node| Given::new("x-skein", node))
}

/// The fields that only mean something where an agent does the stage.
const OF_AGENT: &[&str] = &["roles", "context", "handoff"];

impl<'a> Called<'a> {
    fn read(workflow: Given<'a>, fields: &mut Fields<'a>, sink: &mut Sink) -> Called<'a> {
        for name in OF_AGENT {
            let Some(field) = fields.field(name) else { continue };
            fields.optional(name);
            let message = format!("a stage that calls another workflow has no `{name}`");
            let diagnostic =
                Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
            let (source, mark) = (workflow.node.source(), workflow.node.mark());
            sink.push(diagnostic.also_in(source, mark, "it calls a workflow because of this"));
        }
        Called {
            workflow,
            inputs: Input::all(fields.optional("inputs"), sink),
            outputs: Declared::outputs(fields.optional("outputs"), sink),
        }
    }
}

/// Refuses the fields of other types of stage.
fn refuse_others(fields: &mut Fields<'_>, ty: StageType, given: Option<Given<'_>>, sink: &mut Sink) {
    let name = |ty| STAGE_TYPES.iter().find(|(_, known)| *known == ty).map_or("", |(name, _)| name);
    for (field_name, of) in OF_TYPE.iter().filter(|(_, of)| *of != ty) {
        let Some(field) = fields.field(field_name) else { continue };
        fields.optional(field_name);
        let message = format!("a stage of the type `{}` has no `{field_name}`", name(ty));
        let diagnostic = Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
        let hint = match (ty, of) {
            (StageType::FanOut, StageType::Agent) => {
                format!("what each item needs is in `fan_out.stage_template`; move `{field_name}` there")
            }
            (_, of) => format!("it would be one of `type: {}`", name(*of)),
        };
        let diagnostic = diagnostic.hint(hint);
        sink.push(match given {
            Some(ty) => diagnostic.also_in(ty.node.source(), ty.node.mark(), "its type is here"),
            None => diagnostic,
        });
    }
}

/// The fan-out itself: a list, and what is done for each of its items.
fn read_fan_out<'a>(given: Given<'a>, sink: &mut Sink) -> Does<'a> {
    let Some(mut fields) = Fields::of(given.node, "`fan_out`", sink) else {
        return Does::FanOut { source: None, template: None };
    };
    let source = fields.required("source", sink);
    let template = fields.required("stage_template", sink).and_then(|given| {
        let mut fields = Fields::of(given.node, "a stage template", sink)?;
        let mut asked = Asked::read(&mut fields, sink);
        if let Some(given) = fields.optional("error_policy") {
            asked.policy = StagePolicy::read_item(given, sink);
        }
        refuse_context_policy(&mut fields, sink);
        fields.finish(sink);
        Some((given.node, Box::new(asked)))
    });
    fields.finish(sink);
    Does::FanOut { source, template }
}

impl<'a> Stage<'a> {
    /// What its agent is asked, or that of each item.
    pub fn asked(&self) -> Option<&Asked<'a>> {
        match &self.does {
            Does::Agent(asked) => Some(asked),
            Does::FanOut { template, .. } => template.as_ref().map(|(_, asked)| &**asked),
            Does::Call(_) | Does::Gate(_) | Does::Unclear => None,
        }
    }
}

impl<'a> Asked<'a> {
    fn read(fields: &mut Fields<'a>, sink: &mut Sink) -> Asked<'a> {
        let context = fields.optional("context");
        Asked {
            roles: fields.required("roles", sink).map(|given| Roles::read(given, sink)).unwrap_or_default(),
            inputs: Input::all(fields.optional("inputs"), sink),
            outputs: Declared::outputs(fields.optional("outputs"), sink),
            context: context.map(|given| Box::new(StageContext::read(given, "modules", sink))),
            handoff: fields.optional("handoff").map(|given| Handoff::read(given, sink)).unwrap_or_default(),
            policy: StagePolicy::default(),
        }
    }
}

impl<'a> Roles<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Roles<'a> {
        let mut roles = Roles::default();
        let Some(mut fields) = Fields::of(given.node, "`roles`", sink) else { return roles };
        if let Some(primary) = fields.required("primary", sink) {
            roles.read_primary(primary, sink);
        }
        let tools = fields.optional("tools").and_then(|given| given.list(sink)).unwrap_or_default();
        let tools = tools.into_iter().filter_map(|item| read_tool(item, sink).map(|tool| (item, tool)));
        roles.tools = tools.collect();
        fields.finish(sink);
        roles
    }

    /// An agent by its reference alone, or with a model and instructions.
    fn read_primary(&mut self, given: Given<'a>, sink: &mut Sink) {
        if given.node.fields().is_none() {
            self.agent = read_agent(given, sink);
            return;
        }
        let Some(mut fields) = Fields::of(given.node, "the primary role", sink) else { return };
        self.agent = fields.required("artifact", sink).and_then(|given| read_agent(given, sink));
        self.model = plain(fields.optional("model"), sink);
        self.instructions = fields.optional("instructions").filter(|given| given.text(sink).is_some());
        fields.finish(sink);
    }
}

/// A reference to something that an agent may use, such as `skill:search`.
fn read_tool<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let text = plain(Some(given), sink)?;
    if text.split_once(':').is_some_and(|(sort, name)| ARTIFACTS.contains(&sort) && is_plain(name)) {
        return Some(text);
    }
    let message = format!("`{text}` is not a reference to an artifact");
    let listed: Vec<String> = ARTIFACTS.iter().map(|sort| format!("`{sort}:NAME`")).collect();
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
    sink.push(diagnostic.hint(format!("write {}", listed.join(" or "))));
    None
}

/// A reference to the agent that does a stage; its name.
fn read_agent<'a>(given: Given<'a>, sink: &mut Sink) -> Option<(Given<'a>, &'a str)> {
    let agent = ARTIFACTS[0];
    let text = plain(Some(given), sink)?;
    match text.split_once(':') {
        Some((sort, name)) if sort == agent && !name.is_empty() => return Some((given, name)),
        _ => {}
    }
    let message = format!("`{text}` is not a reference to an agent");
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
    sink.push(match text.contains(':') {
        true => diagnostic.hint(format!("an agent does a stage; write `{agent}:NAME`")),
        false => diagnostic
            .hint(format!("write `{agent}:{text}`"))
            .fix(given.span(), format!("\"{agent}:{text}\"")),
    });
    None
}

impl<'a> Handoff<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Handoff<'a> {
        let Some(mut fields) = Fields::of(given.node, "`handoff`", sink) else { return Handoff::default() };
        let format = fields.optional("format").and_then(|given| given.one_of(HANDOFF_FORMATS, sink));
        let handoff = Handoff {
            format: format.map(|word| word.value),
            include_run_log: flag(fields.optional("include_run_log"), sink),
            summary_prompt: fields.optional("summary_prompt").filter(|given| given.words(sink).is_some()),
        };
        fields.finish(sink);
        handoff
    }
}

impl<'a> GateDef<'a> {
    fn read(given: Given<'a>, sink: &mut Sink) -> Option<GateDef<'a>> {
        let mut fields = Fields::of(given.node, "a gate", sink)?;
        if let Some(given) = fields.optional("kind") {
            given.one_of(GATE_KINDS, sink);
        }
        let on_timeout = fields.optional("on_timeout").and_then(|given| given.one_of(ON_TIMEOUT, sink));
        let gate = GateDef {
            approvers: plains(fields.optional("approvers"), sink),
            timeout: length(fields.optional("timeout"), sink),
            on_timeout: on_timeout.map(|word| word.value).unwrap_or_default(),
            message: fields.optional("message").filter(|given| given.text(sink).is_some()),
        };
        fields.finish(sink);
        Some(gate)
    }
}
