//! One stage, of each of the three types.

use skein_core::{ids::StepId, ir::HandoffFormat, time::Millis};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::{STEP_BLOCK_FIELDS, STEP_ONLY_FIELDS, StepExtensionBlock},
    fields::{FieldReader, FieldTable, FieldValue, ForeignKey, read_dependencies},
    lowering::call_contract::{CALL, read_call},
    source::yaml::YamlNode,
    swdl::{
        defaults::{ARTIFACTS, GATE_KINDS, HANDOFF_FORMATS, ON_TIMEOUT, STAGE_TYPES, StageType, SwdlOnTimeout},
        syntax::{
            STAGE_CONTEXT_FIELDS, StageContext, StagePolicy, SwdlDeclaration, SwdlInput, is_plain_name, read_bool,
            read_duration, read_id, read_non_empty_text, read_plain_text, read_plain_texts,
        },
    },
};

#[derive(Debug)]
pub(in crate::swdl) struct SwdlStage<'a> {
    pub id: StepId,
    pub node: YamlNode<'a>,
    pub name: Option<&'a str>,
    pub description: Option<&'a str>,
    pub depends_on: Vec<StepId>,
    pub condition: Option<FieldValue<'a>>,
    pub does: SwdlStageKind<'a>,
    pub policy: StagePolicy<'a>,
    pub ui: Option<FieldValue<'a>>,
    pub skein: StepExtensionBlock,
}

/// The work of a stage.
#[derive(Debug)]
pub(in crate::swdl) enum SwdlStageKind<'a> {
    Agent(Box<SwdlAgentTask<'a>>),
    /// A call of another workflow, by `x-skein.call`.
    Call(Box<SwdlCall<'a>>),
    Gate(Box<GateDef<'a>>),
    FanOut {
        source: Option<FieldValue<'a>>,
        template: Option<(YamlNode<'a>, Box<SwdlAgentTask<'a>>)>,
    },
    /// A stage of invalid type; that has been reported.
    Unclear,
}

/// The workflow that a stage calls, its inputs and its outputs.
#[derive(Debug)]
pub(in crate::swdl) struct SwdlCall<'a> {
    pub workflow: FieldValue<'a>,
    pub inputs: Vec<SwdlInput<'a>>,
    /// None if the declarations are unknown.
    pub outputs: Option<Vec<SwdlDeclaration<'a>>>,
}

/// The task of an agent, in a stage or for each item of one.
#[derive(Debug, Default)]
pub(in crate::swdl) struct SwdlAgentTask<'a> {
    pub roles: StageRoles<'a>,
    pub inputs: Vec<SwdlInput<'a>>,
    /// None if the declarations are unknown.
    pub outputs: Option<Vec<SwdlDeclaration<'a>>>,
    pub context: Option<Box<StageContext<'a>>>,
    pub handoff: StageHandoff<'a>,
    /// The policy of an item.
    pub policy: StagePolicy<'a>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct StageRoles<'a> {
    /// The name of the agent, without `agent:`.
    pub agent: Option<(FieldValue<'a>, &'a str)>,
    pub model: Option<&'a str>,
    pub instructions: Option<FieldValue<'a>>,
    pub tools: Vec<(FieldValue<'a>, &'a str)>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct StageHandoff<'a> {
    pub format: Option<HandoffFormat>,
    pub include_run_log: Option<bool>,
    pub summary_prompt: Option<FieldValue<'a>>,
}

#[derive(Debug, Default)]
pub(in crate::swdl) struct GateDef<'a> {
    pub approvers: Vec<&'a str>,
    pub timeout: Option<Millis>,
    pub on_timeout: SwdlOnTimeout,
    pub message: Option<FieldValue<'a>>,
}

/// The fields that are only valid in a stage of one type.
const OF_TYPE: &[(&str, StageType)] = &[
    ("roles", StageType::Agent),
    ("inputs", StageType::Agent),
    ("outputs", StageType::Agent),
    ("context", StageType::Agent),
    ("handoff", StageType::Agent),
    ("gate", StageType::Gate),
    ("fan_out", StageType::FanOut),
];

/// The fields of an agent's task, in a stage or in the template of a fan-out.
const TASK_FIELDS: &[&str] = &["context", "roles", "inputs", "outputs", "handoff"];
const STAGE_FIELDS: FieldTable = FieldTable::closed(&[
    "id", "name", "description", "depends_on", "condition", "type", "gate", "fan_out", "error_policy", "ui", "x-skein",
])
.with_more(&[TASK_FIELDS])
.with_explanations(explain_context_policy);
const TEMPLATE_FIELDS: FieldTable =
    FieldTable::closed(TASK_FIELDS).with_more(&[&["error_policy"]]).with_explanations(explain_context_policy);

/// The `x-skein` block of a stage. Only an agent's stage can be a call instead.
fn block_table(ty: Option<StageType>) -> FieldTable {
    match ty {
        Some(StageType::Agent) => STEP_BLOCK_FIELDS.with_unread(&[CALL]),
        Some(StageType::Gate) => STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["quorum"]]),
        Some(StageType::FanOut) => STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["on_error"]]),
        None => STEP_BLOCK_FIELDS.with_more(&[STEP_ONLY_FIELDS, &["on_error"]]).with_unread(&[CALL]),
    }
}

impl<'a> SwdlStage<'a> {
    pub(crate) fn read(item: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<SwdlStage<'a>> {
        let node = item.node;
        let mut fields = FieldReader::from_node(node, "a stage", STAGE_FIELDS, sink)?;
        let id = read_id(fields.required("id", sink), sink).and_then(|id| StepId::new(id).ok());
        let name = read_non_empty_text(fields.required("name", sink), sink);
        let description = super::read_text(fields.optional("description"), sink);
        let depends_on = read_dependencies(fields.optional("depends_on"), sink);
        let depends_on = depends_on.into_iter().map(|name| name.value).collect();
        let condition = fields.optional("condition").filter(|given| check_scalar(*given, sink));
        let ty = read_stage_type(&fields, sink);
        let block = fields.optional("x-skein");
        let skein = StepExtensionBlock::read(block, block_table(ty), sink);
        let does = SwdlStageKind::read(ty, block, &mut fields, sink);
        let policy =
            fields.optional("error_policy").map_or_else(StagePolicy::default, |given| StagePolicy::read(given, sink));
        let ui = fields.optional("ui");
        fields.finish(sink);
        Some(SwdlStage { id: id?, node, name, description, depends_on, condition, does, policy, ui, skein })
    }
}

/// Explains `context_policy`, the block for modules in the first draft of the format.
fn explain_context_policy(key: &str) -> Option<ForeignKey> {
    (key == "context_policy").then(|| ForeignKey::Refused {
        code: Code::RemovedField,
        message: "`context_policy` is not a field any more".to_owned(),
        hint: "write `context`, with `modules` in it".to_owned(),
    })
}

/// Checks that a condition is text, or a plain `true` or `false`.
fn check_scalar(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> bool {
    if given.node.raw_text().is_none() {
        sink.push(given.diagnose_type("an expression, such as `\"${{ parameters.deep == true }}\"`"));
    }
    given.node.raw_text().is_some()
}

impl<'a> SwdlStageKind<'a> {
    /// Reads the work of a stage.
    fn read(
        ty: Option<StageType>,
        block: Option<FieldValue<'a>>,
        fields: &mut FieldReader<'a>,
        sink: &mut DiagnosticSink,
    ) -> SwdlStageKind<'a> {
        let Some(ty) = ty else { return SwdlStageKind::Unclear };
        refuse_other_types(fields, ty, sink);
        match ty {
            StageType::Agent => match read_call(block, sink) {
                Some(workflow) => SwdlStageKind::Call(Box::new(SwdlCall::read(workflow, fields, sink))),
                None => SwdlStageKind::Agent(Box::new(SwdlAgentTask::read(fields, sink))),
            },
            StageType::Gate => {
                let gate = fields.required("gate", sink);
                let gate = gate.and_then(|given| GateDef::read(given, sink));
                SwdlStageKind::Gate(Box::new(gate.unwrap_or_default()))
            }
            StageType::FanOut => match fields.required("fan_out", sink) {
                Some(given) => read_fan_out(given, sink),
                None => SwdlStageKind::FanOut { source: None, template: None },
            },
        }
    }
}

/// Reads the type of a stage. None if it is invalid; that has been reported.
fn read_stage_type(fields: &FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<StageType> {
    match fields.optional("type") {
        Some(given) => given.read_one_of(STAGE_TYPES, sink).map(|word| word.value),
        None => Some(infer_stage_type(fields, sink).unwrap_or_default()),
    }
}

/// Infers the type of a stage without `type` from the block of another type than the default. Returns None if the stage
/// also has other work. Reports that `type` is missing.
fn infer_stage_type(fields: &FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<StageType> {
    let mut blocks = OF_TYPE.iter().filter(|(_, of)| *of != StageType::Agent);
    let (name, ty) = blocks.find(|(name, _)| fields.field(name).is_some())?;
    if fields.field("roles").is_some() || read_call(fields.optional("x-skein"), sink).is_some() {
        return None;
    }
    let field = fields.field(name)?;
    let message = format!("a stage with `{name}` needs `type: {name}`");
    let diagnostic = Diagnostic::new(Code::MissingField, field.value.source(), field.key_span, message);
    sink.push(diagnostic.with_hint(format!("add `type: {name}`")));
    Some(*ty)
}

/// The fields that are only valid if an agent does the stage.
const OF_AGENT: &[&str] = &["roles", "context", "handoff"];

impl<'a> SwdlCall<'a> {
    fn read(workflow: FieldValue<'a>, fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> SwdlCall<'a> {
        for name in OF_AGENT {
            let Some(field) = fields.field(name) else { continue };
            let message = format!("a stage that calls a workflow cannot have `{name}`");
            let diagnostic = Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
            let (source, mark) = (workflow.node.source(), workflow.node.first_line_span());
            sink.push(diagnostic.with_related_in(source, mark, "it calls a workflow because of this"));
        }
        SwdlCall {
            workflow,
            inputs: SwdlInput::read_all(fields.optional("inputs"), sink),
            outputs: SwdlDeclaration::read_outputs(fields.optional("outputs"), sink),
        }
    }
}

/// Refuses the fields of other types of stage.
fn refuse_other_types(fields: &FieldReader<'_>, ty: StageType, sink: &mut DiagnosticSink) {
    let given = fields.optional("type");
    let name = |ty| STAGE_TYPES.iter().find(|(_, known)| *known == ty).map_or("", |(name, _)| name);
    for (field_name, of) in OF_TYPE.iter().filter(|(_, of)| *of != ty) {
        let Some(field) = fields.field(field_name) else { continue };
        let message = format!("a stage of type `{}` cannot have `{field_name}`", name(ty));
        let diagnostic = Diagnostic::new(Code::FieldsClash, field.value.source(), field.key_span, message);
        let hint = match (ty, of) {
            (StageType::FanOut, StageType::Agent) => {
                format!("move `{field_name}` into `fan_out.stage_template`, for each item")
            }
            (_, of) => format!("it is a field of stages of `type: {}`", name(*of)),
        };
        let diagnostic = diagnostic.with_hint(hint);
        sink.push(match given {
            Some(ty) => diagnostic.with_related_in(ty.node.source(), ty.node.first_line_span(), "its type is here"),
            None => diagnostic,
        });
    }
}

const FAN_OUT_FIELDS: &[&str] = &["source", "stage_template"];

/// Reads the fan-out itself: a list, and the work for each of its items.
fn read_fan_out<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> SwdlStageKind<'a> {
    let Some(mut fields) = FieldReader::from_node(given.node, "`fan_out`", FAN_OUT_FIELDS, sink) else {
        return SwdlStageKind::FanOut { source: None, template: None };
    };
    let source = fields.required("source", sink);
    let template = fields.required("stage_template", sink).and_then(|given| {
        let mut fields = FieldReader::from_node(given.node, "a stage template", TEMPLATE_FIELDS, sink)?;
        let mut asked = SwdlAgentTask::read(&mut fields, sink);
        if let Some(given) = fields.optional("error_policy") {
            asked.policy = StagePolicy::read_item(given, sink);
        }
        fields.finish(sink);
        Some((given.node, Box::new(asked)))
    });
    fields.finish(sink);
    SwdlStageKind::FanOut { source, template }
}

impl<'a> SwdlStage<'a> {
    /// Returns the task of its agent, or that of each item.
    pub(crate) fn agent_task(&self) -> Option<&SwdlAgentTask<'a>> {
        match &self.does {
            SwdlStageKind::Agent(asked) => Some(asked),
            SwdlStageKind::FanOut { template, .. } => template.as_ref().map(|(_, asked)| &**asked),
            SwdlStageKind::Call(_) | SwdlStageKind::Gate(_) | SwdlStageKind::Unclear => None,
        }
    }
}

impl<'a> SwdlAgentTask<'a> {
    fn read(fields: &mut FieldReader<'a>, sink: &mut DiagnosticSink) -> SwdlAgentTask<'a> {
        let context = fields.optional("context");
        SwdlAgentTask {
            roles: fields.required("roles", sink).map(|given| StageRoles::read(given, sink)).unwrap_or_default(),
            inputs: SwdlInput::read_all(fields.optional("inputs"), sink),
            outputs: SwdlDeclaration::read_outputs(fields.optional("outputs"), sink),
            context: context.map(|given| Box::new(StageContext::read(given, STAGE_CONTEXT_FIELDS, sink))),
            handoff: fields.optional("handoff").map(|given| StageHandoff::read(given, sink)).unwrap_or_default(),
            policy: StagePolicy::default(),
        }
    }
}

const ROLES_FIELDS: &[&str] = &["primary", "tools"];
const PRIMARY_ROLE_FIELDS: &[&str] = &["artifact", "model", "instructions"];

impl<'a> StageRoles<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> StageRoles<'a> {
        let mut roles = StageRoles::default();
        let Some(mut fields) = FieldReader::from_node(given.node, "`roles`", ROLES_FIELDS, sink) else { return roles };
        if let Some(primary) = fields.required("primary", sink) {
            roles.read_primary(primary, sink);
        }
        let tools = fields.optional("tools").and_then(|given| given.read_list(sink)).unwrap_or_default();
        let tools = tools.into_iter().filter_map(|item| read_tool(item, sink).map(|tool| (item, tool)));
        roles.tools = tools.collect();
        fields.finish(sink);
        roles
    }

    /// Reads an agent: its reference alone, or with a model and instructions.
    fn read_primary(&mut self, given: FieldValue<'a>, sink: &mut DiagnosticSink) {
        if given.node.fields().is_none() {
            self.agent = read_agent(given, sink);
            return;
        }
        let Some(mut fields) = FieldReader::from_node(given.node, "the primary role", PRIMARY_ROLE_FIELDS, sink) else {
            return;
        };
        self.agent = fields.required("artifact", sink).and_then(|given| read_agent(given, sink));
        self.model = read_plain_text(fields.optional("model"), sink);
        self.instructions = fields.optional("instructions").filter(|given| given.read_text(sink).is_some());
        fields.finish(sink);
    }
}

/// Reads a reference to something that an agent may use, such as `skill:search`.
fn read_tool<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = read_plain_text(Some(given), sink)?;
    if text.split_once(':').is_some_and(|(sort, name)| ARTIFACTS.contains(&sort) && is_plain_name(name)) {
        return Some(text);
    }
    let message = format!("`{text}` is not a reference to an artifact");
    let listed: Vec<String> = ARTIFACTS.iter().map(|sort| format!("`{sort}:NAME`")).collect();
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(diagnostic.with_hint(format!("write {}", listed.join(" or "))));
    None
}

/// Reads a reference to the agent of a stage. Returns its name.
fn read_agent<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<(FieldValue<'a>, &'a str)> {
    let agent = ARTIFACTS[0];
    let text = read_plain_text(Some(given), sink)?;
    match text.split_once(':') {
        Some((sort, name)) if sort == agent && !name.is_empty() => return Some((given, name)),
        _ => {}
    }
    let message = format!("`{text}` is not a reference to an agent");
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(match text.contains(':') {
        true => diagnostic.with_hint(format!("an agent does a stage; write `{agent}:NAME`")),
        false => diagnostic
            .with_hint(format!("write `{agent}:{text}`"))
            .with_fix(given.span(), format!("\"{agent}:{text}\"")),
    });
    None
}

const HANDOFF_FIELDS: &[&str] = &["format", "include_run_log", "summary_prompt"];

impl<'a> StageHandoff<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> StageHandoff<'a> {
        let Some(fields) = FieldReader::from_node(given.node, "`handoff`", HANDOFF_FIELDS, sink) else {
            return StageHandoff::default();
        };
        let format = fields.optional("format").and_then(|given| given.read_one_of(HANDOFF_FORMATS, sink));
        let handoff = StageHandoff {
            format: format.map(|word| word.value),
            include_run_log: read_bool(fields.optional("include_run_log"), sink),
            summary_prompt: fields.optional("summary_prompt").filter(|given| given.read_non_empty_text(sink).is_some()),
        };
        fields.finish(sink);
        handoff
    }
}

const GATE_FIELDS: &[&str] = &["kind", "on_timeout", "approvers", "timeout", "message"];

impl<'a> GateDef<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<GateDef<'a>> {
        let fields = FieldReader::from_node(given.node, "a gate", GATE_FIELDS, sink)?;
        if let Some(given) = fields.optional("kind") {
            given.read_one_of(GATE_KINDS, sink);
        }
        let on_timeout = fields.optional("on_timeout").and_then(|given| given.read_one_of(ON_TIMEOUT, sink));
        let gate = GateDef {
            approvers: read_plain_texts(fields.optional("approvers"), sink),
            timeout: read_duration(fields.optional("timeout"), sink),
            on_timeout: on_timeout.map(|word| word.value).unwrap_or_default(),
            message: fields.optional("message").filter(|given| given.read_text(sink).is_some()),
        };
        fields.finish(sink);
        Some(gate)
    }
}
