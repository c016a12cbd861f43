//! The expressions of a source, parsed at their places, and the variables that they may read.

use std::collections::BTreeSet;

use skein_core::{
    expr::{Expr, ExprParseError, ExprRead, ExprSpan, ReferenceRoot, swdl, swdl::SwdlExprScope},
    suggest::find_closest_name,
};

use crate::{code::Code, diagnostic::Diagnostic, lowering::LoweringContext, yaml::YamlNode};

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
    pub fn new(
        lowering: &'a mut LoweringContext<'l>,
        variables: impl Iterator<Item = &'a str>,
        modules: impl Iterator<Item = &'a str>,
    ) -> SwdlExpressions<'a, 'l> {
        let bound = modules.chain([REPO_STRUCTURE]).collect();
        SwdlExpressions { lowering, variables: variables.collect(), bound }
    }

    /// Lowers a text that may contain expressions.
    pub fn lower_text(&mut self, node: YamlNode<'_>, scope: SwdlExprScope) -> Option<Expr> {
        let read = swdl::parse_template(node.raw_text().unwrap_or_default(), scope);
        self.check_expression(node, read)
    }

    /// Lowers a value whose texts may contain expressions.
    pub fn lower_value(&mut self, node: YamlNode<'_>, scope: SwdlExprScope) -> Option<Expr> {
        self.check_expression(node, swdl::parse_value(&node.to_json(), scope))
    }

    pub fn lower_condition(&mut self, node: YamlNode<'_>) -> Option<Expr> {
        self.check_expression(
            node,
            swdl::parse_condition(node.raw_text().unwrap_or_default(), SwdlExprScope::Stage),
        )
    }

    /// Lowers the value of a variable, which is evaluated before any stage runs.
    pub fn lower_variable(&mut self, node: YamlNode<'_>) -> Option<Expr> {
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
    pub fn lower_part(
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
            None => diagnostic
                .with_hint("only variables in `config.env` can be read, never the host's environment"),
        });
    }
}
