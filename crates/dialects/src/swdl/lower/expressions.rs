//! Expressions of a source, each read at its place, and the variables that they may name.

use std::collections::BTreeSet;

use skein_core::{
    closest::closest,
    expr::{Expr, ParseError, Read, Root, Span, swdl, swdl::Scope},
};

use crate::{code::Code, diagnostic::Diagnostic, lowering::Lowering, yaml::Node};

pub(super) struct Expressions<'a, 'l> {
    pub lowering: &'a mut Lowering<'l>,
    /// The names in `config.env`.
    variables: BTreeSet<&'a str>,
    /// The names below `context` that have a value in a run.
    bound: BTreeSet<&'a str>,
}

/// The name below `context` of the files of the project.
const REPO_STRUCTURE: &str = "repo_structure";

impl<'a, 'l> Expressions<'a, 'l> {
    pub fn new(
        lowering: &'a mut Lowering<'l>,
        variables: impl Iterator<Item = &'a str>,
        modules: impl Iterator<Item = &'a str>,
    ) -> Expressions<'a, 'l> {
        let bound = modules.chain([REPO_STRUCTURE]).collect();
        Expressions { lowering, variables: variables.collect(), bound }
    }

    /// Text that may have expressions in it.
    pub fn text(&mut self, node: Node<'_>, scope: Scope) -> Option<Expr> {
        let read = swdl::template(node.raw().unwrap_or_default(), scope);
        self.checked(node, read)
    }

    /// Any value whose texts may have expressions in them.
    pub fn value(&mut self, node: Node<'_>, scope: Scope) -> Option<Expr> {
        self.checked(node, swdl::value(&node.json(), scope))
    }

    pub fn condition(&mut self, node: Node<'_>) -> Option<Expr> {
        self.checked(node, swdl::condition(node.raw().unwrap_or_default(), Scope::Stage))
    }

    /// The value of a variable, which is worked out before anything has run.
    pub fn variable(&mut self, node: Node<'_>) -> Option<Expr> {
        let read = swdl::template(node.raw().unwrap_or_default(), Scope::Stage);
        let expr = self.lowering.expression(node, read)?;
        for read in expr.reads() {
            if matches!(read.root, Root::Env | Root::Context) {
                let message = "a variable is worked out from `parameters`, `workflow` and `run` alone";
                let span = node.within(read.span);
                self.lowering.push(Diagnostic::new(Code::BadExpression, node.source(), span, message));
            }
        }
        Some(expr)
    }

    /// A part of a text, which starts there if that can be told; else `whole` is all of it.
    pub fn part(&mut self, node: Node<'_>, text: &str, start: Option<usize>, whole: Span) -> Option<Expr> {
        let place = |span: Span| match start {
            Some(start) => Span::new(start + span.start as usize, start + span.end as usize),
            None => whole,
        };
        let read = swdl::template(text, Scope::Stage);
        let read = read.map_err(|error| ParseError { span: place(error.span), ..error });
        let expr = self.lowering.expression(node, read)?;
        for read in expr.reads() {
            self.check_read(node, &read, place(read.span));
        }
        Some(expr)
    }

    fn checked(&mut self, node: Node<'_>, read: Result<Expr, ParseError>) -> Option<Expr> {
        let expr = self.lowering.expression(node, read)?;
        for read in expr.reads() {
            self.check_read(node.at(&read.at), &read, read.span);
        }
        Some(expr)
    }

    fn check_read(&mut self, node: Node<'_>, read: &Read<'_>, span: Span) {
        match read.root {
            Root::Env => self.check_variable(node, read, span),
            Root::Context => self.check_context(node, read, span),
            _ => {}
        }
    }

    /// Warns of a name below `context` that is always null.
    fn check_context(&mut self, node: Node<'_>, read: &Read<'_>, span: Span) {
        let Some(name) = read.path.first().filter(|name| !self.bound.contains(name.as_str())) else { return };
        let message = format!("nothing gives `context.{name}` a value, so it is null");
        let (source, span) = (node.source(), node.within(span));
        let diagnostic = Diagnostic::new(Code::UnboundContext, source, span, message);
        self.lowering.push(match closest(name, self.bound.iter().copied()) {
            Some(near) => diagnostic.hint(format!("did you mean `{near}`?")),
            None => diagnostic
                .hint("there are `context.repo_structure`, and `context.NAME` for each module `ctx:NAME` in `global_modules`"),
        });
    }

    /// Nothing of the host's environment can be read: only what the workflow declares.
    fn check_variable(&mut self, node: Node<'_>, read: &Read<'_>, span: Span) {
        let Some(name) = read.path.first().filter(|name| !self.variables.contains(name.as_str())) else {
            return;
        };
        let message = format!("there is no variable `{name}` in `config.env`");
        let (source, span) = (node.source(), node.within(span));
        let diagnostic = Diagnostic::new(Code::ReadsUnknownVariable, source, span, message);
        self.lowering.push(match closest(name, self.variables.iter().copied()) {
            Some(near) => diagnostic.hint(format!("did you mean `{near}`?")),
            None => {
                diagnostic.hint("only what `config.env` declares can be read, never the host's environment")
            }
        });
    }
}
