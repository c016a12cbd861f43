//! The expressions of a source, parsed at their places, and the variables that they may read. Also lowers hooks, whose
//! commands are split before their expressions are parsed.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    expr::{
        Expr, ExprParseError, ExprRead, ExprSpan, ReferenceRoot,
        swdl::{self, SwdlExprScope},
    },
    ir::{HookAction, WorkflowHook},
    plan::{FieldPath, PlanField},
    suggest::find_closest_name,
};

use crate::{
    diagnostics::{Code, Diagnostic},
    fields::{
        FieldValue,
        command::{CommandSplitError, split_command},
    },
    lowering::LoweringContext,
    source::yaml::YamlNode,
    swdl::syntax::HookDef,
};

pub(super) struct SwdlExpressions<'a, 'l> {
    pub lowering: &'a mut LoweringContext<'l>,
    /// The names in `config.env`.
    variables: BTreeSet<&'a str>,
    /// The names below `context` that have a value in a run.
    bound: BTreeSet<&'a str>,
}

/// The name below `context` for the files of the project.
const REPO_STRUCTURE: &str = "repo_structure";

impl<'a, 'l> SwdlExpressions<'a, 'l> {
    pub(crate) fn new(
        lowering: &'a mut LoweringContext<'l>,
        variables: impl Iterator<Item = &'a str>,
        modules: impl Iterator<Item = &'a str>,
    ) -> SwdlExpressions<'a, 'l> {
        let bound = modules.chain([REPO_STRUCTURE]).collect();
        SwdlExpressions { lowering, variables: variables.collect(), bound }
    }

    /// Lowers a text that may contain expressions.
    pub(crate) fn lower_text(&mut self, node: YamlNode<'_>, scope: SwdlExprScope) -> Option<Expr> {
        let read = swdl::parse_template(node.raw_text().unwrap_or_default(), scope);
        self.check_expression(node, read)
    }

    /// Lowers a value whose texts may contain expressions.
    pub(crate) fn lower_value(&mut self, node: YamlNode<'_>, scope: SwdlExprScope) -> Option<Expr> {
        self.check_expression(node, swdl::parse_value(&node.to_json(), scope))
    }

    pub(crate) fn lower_condition(&mut self, node: YamlNode<'_>) -> Option<Expr> {
        self.check_expression(node, swdl::parse_condition(node.raw_text().unwrap_or_default(), SwdlExprScope::Stage))
    }

    /// Lowers the value of a variable, which is evaluated before any stage runs.
    pub(crate) fn lower_variable(&mut self, node: YamlNode<'_>) -> Option<Expr> {
        let read = swdl::parse_template(node.raw_text().unwrap_or_default(), SwdlExprScope::Stage);
        let expr = self.lowering.accept_expression(node, read)?;
        for read in expr.reads() {
            if matches!(read.root, ReferenceRoot::Env | ReferenceRoot::Context) {
                let message = "a variable can only use `parameters`, `workflow` and `run`";
                let span = node.locate_part(read.span);
                self.lowering.push(Diagnostic::new(Code::BadExpression, node.source(), span, message));
            }
        }
        Some(expr)
    }

    /// Lowers a part of a text that begins at `start`. If that is unknown, diagnostics point at `whole`.
    pub(crate) fn lower_part(
        &mut self,
        node: YamlNode<'_>,
        text: &str,
        start: Option<usize>,
        whole: ExprSpan,
    ) -> Option<Expr> {
        let place = |span: ExprSpan| match start {
            Some(start) => ExprSpan::new(start + span.start as usize, start + span.end as usize),
            None => whole,
        };
        let read = swdl::parse_template(text, SwdlExprScope::Stage);
        let read = read.map_err(|error| ExprParseError { span: place(error.span), ..error });
        let expr = self.lowering.accept_expression(node, read)?;
        for read in expr.reads() {
            self.check_read(node, &read, place(read.span));
        }
        Some(expr)
    }

    fn check_expression(&mut self, node: YamlNode<'_>, read: Result<Expr, ExprParseError>) -> Option<Expr> {
        let expr = self.lowering.accept_expression(node, read)?;
        for read in expr.reads() {
            self.check_read(node.node_at(&read.at), &read, read.span);
        }
        Some(expr)
    }

    fn check_read(&mut self, node: YamlNode<'_>, read: &ExprRead<'_>, span: ExprSpan) {
        match read.root {
            ReferenceRoot::Env => self.check_variable(node, read, span),
            ReferenceRoot::Context => self.check_context(node, read, span),
            _ => {}
        }
    }

    /// Warns of a name below `context` that is always null.
    fn check_context(&mut self, node: YamlNode<'_>, read: &ExprRead<'_>, span: ExprSpan) {
        let Some(name) = read.path.first().filter(|name| !self.bound.contains(name.as_str())) else { return };
        let message = format!("`context.{name}` has no value, so it is null");
        let (source, span) = (node.source(), node.locate_part(span));
        let diagnostic = Diagnostic::new(Code::UnboundContext, source, span, message);
        self.lowering.push(match find_closest_name(name, self.bound.iter().copied()) {
            Some(near) => diagnostic.with_hint(format!("did you mean `{near}`?")),
            None => diagnostic.with_hint(
                "use `context.repo_structure`, or `context.NAME` for a module `ctx:NAME` in `global_modules`",
            ),
        });
    }

    /// Checks that a variable is declared in the workflow: the host's environment cannot be read.
    fn check_variable(&mut self, node: YamlNode<'_>, read: &ExprRead<'_>, span: ExprSpan) {
        let Some(name) = read.path.first().filter(|name| !self.variables.contains(name.as_str())) else {
            return;
        };
        let message = format!("there is no variable `{name}` in `config.env`");
        let (source, span) = (node.source(), node.locate_part(span));
        let diagnostic = Diagnostic::new(Code::ReadsUnknownVariable, source, span, message);
        self.lowering.push(match find_closest_name(name, self.variables.iter().copied()) {
            Some(near) => diagnostic.with_hint(format!("did you mean `{near}`?")),
            None => diagnostic.with_hint("only variables in `config.env` can be read, never the host's environment"),
        });
    }
}

/// The place of each field of a hook in the plan: the node, and the offset in that node's text.
pub(super) type HookLocations = BTreeMap<FieldPath, (u32, Option<u32>)>;

pub(super) fn lower_hooks(
    source: &[HookDef<'_>],
    expressions: &mut SwdlExpressions<'_, '_>,
) -> (Vec<WorkflowHook>, HookLocations) {
    let mut hooks = Vec::new();
    let mut parts = HookLocations::new();
    for hook in source {
        if let Some(notify) = &hook.notify {
            let field = FieldPath::from(PlanField::Hooks).item(hooks.len()).field(PlanField::Message);
            parts.extend(notify.message.map(|given| (field, (given.node.number(), Some(0)))));
            let message = notify.message.and_then(|given| expressions.lower_text(given.node, SwdlExprScope::Stage));
            let action = HookAction::Notify { channel: notify.channel.to_owned(), message };
            hooks.push(WorkflowHook { when: hook.when, action });
        }
        if let Some(given) = hook.run {
            let place = FieldPath::from(PlanField::Hooks).item(hooks.len()).field(PlanField::Arguments);
            let action = lower_command(given, &place, expressions, &mut parts);
            hooks.extend(action.map(|action| WorkflowHook { when: hook.when, action }));
        }
    }
    (hooks, parts)
}

fn lower_command(
    given: FieldValue<'_>,
    field: &FieldPath,
    expressions: &mut SwdlExpressions<'_, '_>,
    parts: &mut HookLocations,
) -> Option<HookAction> {
    let words = match split_command(given.node.raw_text().unwrap_or_default()) {
        Ok(words) => words,
        Err((error, span)) => {
            expressions.lowering.push(diagnose_command(given, error, span));
            return None;
        }
    };
    let (program, rest) = words.split_first()?;
    let mut arguments = Vec::new();
    for (i, word) in rest.iter().enumerate() {
        let start = word.start.and_then(|start| u32::try_from(start).ok());
        parts.insert(field.clone().item(i), (given.node.number(), start));
        arguments.push(expressions.lower_part(given.node, &word.text, word.start, word.span)?);
    }
    Some(HookAction::Run { program: program.text.clone(), arguments })
}

fn diagnose_command(given: FieldValue<'_>, error: CommandSplitError, span: ExprSpan) -> Diagnostic {
    let line = given.node.raw_text().unwrap_or_default();
    let part = line.get(span.start as usize..span.end as usize).unwrap_or_default();
    let (code, message, hint) = match error {
        CommandSplitError::Empty => {
            (Code::BadCommand, format!("`{}` names no program", given.name), "start with a program")
        }
        CommandSplitError::Unclosed => {
            (Code::BadCommand, format!("`{part}` is never closed"), "close it, or write it between other quotes")
        }
        CommandSplitError::Shell => (
            Code::BadCommand,
            format!("`{part}` is shell syntax, and no shell is used"),
            "put it in single quotes to pass it literally, or put the commands into a script and run that",
        ),
        CommandSplitError::Program => (
            Code::ExpressionAsProgram,
            "an expression cannot be the program".to_owned(),
            "write the program out; its arguments may have expressions",
        ),
        CommandSplitError::Script => (
            Code::ExpressionAsProgram,
            "a shell would run the value of this expression".to_owned(),
            "pass it as a separate argument: `sh -c 'echo \"$1\"' hook ${{ … }}`",
        ),
    };
    Diagnostic::new(code, given.node.source(), given.node.locate_part(span), message).with_hint(hint)
}
