//! Owns the grammar: operator precedence, brackets and calls. Leaves names to a dialect, with helpers for its
//! table.

use serde_json::Value;

use super::{
    ast::{CompareOp, ExprFunction, ExprNode, ReferenceRoot, StepProperty},
    bounds::{MAX_DEPTH, MAX_SOURCE},
    lex::{DottedPath, ExprLexer, ExprSpan, ExprToken, ExprTokenKind},
    parse_error::{ExprParseError, ExprParseErrorKind, UnsupportedSyntax},
    shape::ExprShapeError,
};
use crate::suggest::find_closest_name;

/// The grammar features of a dialect, and its name resolution.
#[derive(Clone, Copy)]
pub(super) struct ExprDialect {
    /// Names start with a `$`.
    pub dollar: bool,
    /// Names after a dot may be array indices.
    pub digits: bool,
    /// `? :` and the functions are available.
    pub rich: bool,
    /// `a == b == c` associates to the left instead of being refused.
    pub chains: bool,
    pub resolve: fn(&DottedPath, ExprSpan) -> Result<ExprNode, ExprParseError>,
    /// Adjusts the two sides of `==` or `!=`, for words that have more than one spelling.
    pub equated: fn(&mut ExprNode, &mut ExprNode),
}

/// A node and its height.
type NodeWithHeight = (ExprNode, usize);

struct ExprParser<'a> {
    lexer: ExprLexer<'a>,
    token: ExprToken,
    dialect: ExprDialect,
    /// Brackets, calls, negations and arms around the current token.
    depth: usize,
}

/// Parses one expression that fills the window `from..to` of `text`.
pub(super) fn parse_expression(
    text: &str,
    (from, to): (usize, usize),
    dialect: ExprDialect,
) -> Result<ExprNode, ExprParseError> {
    if to - from > MAX_SOURCE {
        return Err(ExprParseError::new(ExprParseErrorKind::SourceTooLong(to - from), ExprSpan::new(from, to)));
    }
    if text[from..to].trim().is_empty() {
        return Err(ExprParseError::new(ExprParseErrorKind::Empty, ExprSpan::new(from, to)));
    }
    let mut lexer = ExprLexer::new(text, (from, to), dialect.digits);
    let token = lexer.next_token()?;
    let mut parser = ExprParser { lexer, token, dialect, depth: 0 };
    let (node, _) = parser.parse_ternary()?;
    match parser.token.tok {
        ExprTokenKind::End => Ok(node),
        _ => Err(parser.unexpected_error("an operator or the end")),
    }
}

impl ExprParser<'_> {
    fn advance(&mut self) -> Result<ExprToken, ExprParseError> {
        let next = self.lexer.next_token()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn error_here(&self, kind: impl Into<ExprParseErrorKind>) -> ExprParseError {
        ExprParseError::new(kind, self.token.span)
    }

    fn unsupported_error(&self, what: UnsupportedSyntax) -> ExprParseError {
        self.error_here(ExprParseErrorKind::NotInLanguage(what))
    }

    /// Builds the error for an unexpected token. Recognises common syntax of other languages and names it.
    fn unexpected_error(&self, expected: &'static str) -> ExprParseError {
        match &self.token.tok {
            ExprTokenKind::Other('[') => self.unsupported_error(UnsupportedSyntax::Indexing),
            ExprTokenKind::Other('+' | '-' | '*' | '/' | '%') => self.unsupported_error(UnsupportedSyntax::Arithmetic),
            ExprTokenKind::Num(_)
                if self.token.span.slice_text(self.lexer.text()).is_some_and(|s| s.starts_with('-')) =>
            {
                self.unsupported_error(UnsupportedSyntax::Arithmetic)
            }
            ExprTokenKind::Other('=') => self.unsupported_error(UnsupportedSyntax::Assignment),
            ExprTokenKind::Other('&') => self.unsupported_error(UnsupportedSyntax::BitAnd),
            ExprTokenKind::Other('|') => self.unsupported_error(UnsupportedSyntax::BitOr),
            ExprTokenKind::Question if !self.dialect.rich => self.unsupported_error(UnsupportedSyntax::Ternary),
            _ => {
                let found = self.token.describe(self.lexer.text());
                self.error_here(ExprParseErrorKind::Unexpected { expected, found })
            }
        }
    }

    fn expect_token(&mut self, tok: ExprTokenKind, expected: &'static str) -> Result<ExprToken, ExprParseError> {
        if self.token.tok == tok { self.advance() } else { Err(self.unexpected_error(expected)) }
    }

    /// Runs `inner` one level deeper, unless that is too deep. This bounds the recursion.
    fn parse_nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, ExprParseError>,
    ) -> Result<T, ExprParseError> {
        if self.depth + 1 >= MAX_DEPTH {
            return Err(self.error_here(ExprShapeError::TooDeep));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Puts a node on top of others of height `below`. Chains grow without any recursion.
    fn wrap_node(&self, node: ExprNode, below: usize) -> Result<NodeWithHeight, ExprParseError> {
        if below >= MAX_DEPTH {
            return Err(ExprParseError::new(ExprShapeError::TooDeep, node.span()));
        }
        Ok((node, below + 1))
    }

    fn parse_ternary(&mut self) -> Result<NodeWithHeight, ExprParseError> {
        let (test, a) = self.parse_logical(ExprTokenKind::Or)?;
        if self.token.tok != ExprTokenKind::Question || !self.dialect.rich {
            return Ok((test, a));
        }
        self.advance()?;
        let (then, b) = self.parse_nested(Self::parse_ternary)?;
        self.expect_token(ExprTokenKind::Colon, "`:` and the other value")?;
        let (otherwise, c) = self.parse_nested(Self::parse_ternary)?;
        let span = test.span().extend_to(otherwise.span());
        let (test, then, otherwise) = (Box::new(test), Box::new(then), Box::new(otherwise));
        self.wrap_node(ExprNode::Cond { span, test, then, otherwise }, a.max(b).max(c))
    }

    /// Parses the operands of `||`, or of `&&`, to one node for the whole chain.
    fn parse_logical(&mut self, sign: ExprTokenKind) -> Result<NodeWithHeight, ExprParseError> {
        let operand = |parser: &mut Self| match sign {
            ExprTokenKind::Or => parser.parse_logical(ExprTokenKind::And),
            _ => parser.parse_comparison(&[CompareOp::Eq, CompareOp::Ne]),
        };
        let (first, mut below) = operand(self)?;
        if self.token.tok != sign {
            return Ok((first, below));
        }
        let mut of = vec![first];
        while self.token.tok == sign {
            self.advance()?;
            let (node, height) = operand(self)?;
            below = below.max(height);
            of.push(node);
        }
        let span = of[0].span().extend_to(of[of.len() - 1].span());
        let node = if sign == ExprTokenKind::Or { ExprNode::Or { span, of } } else { ExprNode::And { span, of } };
        self.wrap_node(node, below)
    }

    /// Parses comparisons of one precedence: equality, whose operands may be orderings, or ordering.
    fn parse_comparison(&mut self, ops: &[CompareOp]) -> Result<NodeWithHeight, ExprParseError> {
        const ORDER: [CompareOp; 4] = [CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
        let equality = ops.contains(&CompareOp::Eq);
        let operand = |parser: &mut Self| if equality { parser.parse_comparison(&ORDER) } else { parser.parse_unary() };
        let (mut left, mut height) = operand(self)?;
        let mut chained = false;
        while let ExprTokenKind::Compare(by) = self.token.tok
            && ops.contains(&by)
        {
            if chained && !self.dialect.chains {
                return Err(self.error_here(ExprParseErrorKind::Chained { sign: by.sign() }));
            }
            let sign = self.advance()?.span;
            if equality && self.token.tok == ExprTokenKind::Other('=') {
                let kind = ExprParseErrorKind::NotInLanguage(UnsupportedSyntax::TripleEquals);
                return Err(ExprParseError::new(kind, sign.extend_to(self.token.span)));
            }
            let (mut right, other) = operand(self)?;
            if equality {
                (self.dialect.equated)(&mut left, &mut right);
            }
            let span = left.span().extend_to(right.span());
            let node = ExprNode::Compare { span, by, left: Box::new(left), right: Box::new(right) };
            (left, height) = self.wrap_node(node, height.max(other))?;
            chained = true;
        }
        Ok((left, height))
    }

    fn parse_unary(&mut self) -> Result<NodeWithHeight, ExprParseError> {
        if self.token.tok != ExprTokenKind::Not {
            return self.parse_primary();
        }
        let start = self.advance()?.span;
        let (of, below) = self.parse_nested(Self::parse_unary)?;
        let span = start.extend_to(of.span());
        self.wrap_node(ExprNode::Not { span, of: Box::new(of) }, below)
    }

    fn parse_primary(&mut self) -> Result<NodeWithHeight, ExprParseError> {
        let span = self.token.span;
        let value = match &self.token.tok {
            ExprTokenKind::Open => return self.parse_bracketed(),
            ExprTokenKind::Path(_) => return self.parse_name(),
            ExprTokenKind::Str(text) => Value::String(text.clone()),
            ExprTokenKind::Num(number) => Value::Number(number.clone()),
            _ => return Err(self.unexpected_error("a value")),
        };
        self.advance()?;
        Ok((ExprNode::Literal { span, value: value.into() }, 1))
    }

    fn parse_bracketed(&mut self) -> Result<NodeWithHeight, ExprParseError> {
        self.advance()?;
        let inner = self.parse_nested(Self::parse_ternary)?;
        self.expect_token(ExprTokenKind::Close, "`)`")?;
        match self.token.tok {
            ExprTokenKind::Dot => Err(self.unsupported_error(UnsupportedSyntax::CallMember)),
            _ => Ok(inner),
        }
    }

    /// Parses a keyword, a call or a reference.
    fn parse_name(&mut self) -> Result<NodeWithHeight, ExprParseError> {
        let token = self.advance()?;
        let ExprTokenKind::Path(path) = &token.tok else { return Err(self.unexpected_error("a name")) };
        let plain = !path.dollar && path.rest.is_empty();
        let keyword = match path.first.text.as_str() {
            "true" if plain => Some(Value::Bool(true)),
            "false" if plain => Some(Value::Bool(false)),
            "null" if plain => Some(Value::Null),
            _ => None,
        };
        if let Some(value) = keyword {
            return Ok((ExprNode::Literal { span: token.span, value: value.into() }, 1));
        }
        if self.token.tok == ExprTokenKind::Open && !path.dollar {
            return self.parse_call(path, token.span);
        }
        let wrong = |what| ExprParseError::new(ExprParseErrorKind::NotInLanguage(what), token.span);
        match (path.dollar, self.dialect.dollar) {
            (true, false) => Err(wrong(UnsupportedSyntax::DollarName)),
            (false, true) => Err(wrong(UnsupportedSyntax::BareName)),
            _ => Ok(((self.dialect.resolve)(path, token.span)?, 1)),
        }
    }

    fn parse_call(&mut self, path: &DottedPath, name: ExprSpan) -> Result<NodeWithHeight, ExprParseError> {
        if !self.dialect.rich {
            return Err(ExprParseError::new(ExprParseErrorKind::NotInLanguage(UnsupportedSyntax::Functions), name));
        }
        let function = find_function(&path.to_text()).map_err(|kind| ExprParseError::new(kind, name))?;
        self.advance()?;
        let (args, below) = self.parse_nested(Self::parse_arguments)?;
        let close = self.expect_token(ExprTokenKind::Close, "`,` or `)`")?;
        let (takes, given) = (function.arity(), args.len());
        let span = name.extend_to(close.span);
        if takes != given {
            let kind = ExprShapeError::Arity { function: function.name(), takes, given };
            return Err(ExprParseError::new(kind, span));
        }
        if self.token.tok == ExprTokenKind::Dot {
            return Err(self.unsupported_error(UnsupportedSyntax::CallMember));
        }
        self.wrap_node(ExprNode::Call { span, function, args }, below)
    }

    fn parse_arguments(&mut self) -> Result<(Vec<ExprNode>, usize), ExprParseError> {
        let (mut args, mut tallest) = (Vec::new(), 1);
        if self.token.tok == ExprTokenKind::Close {
            return Ok((args, tallest));
        }
        loop {
            let (node, height) = self.parse_ternary()?;
            tallest = tallest.max(height);
            args.push(node);
            if self.token.tok != ExprTokenKind::Comma {
                return Ok((args, tallest));
            }
            self.advance()?;
        }
    }
}

fn find_function(name: &str) -> Result<ExprFunction, ExprParseErrorKind> {
    const LEGAL: &[&str] = &["length", "contains", "toJSON", "fromJSON"];
    ExprFunction::ALL.into_iter().find(|function| function.name() == name).ok_or_else(|| {
        ExprParseErrorKind::UnknownName {
            sort: "function",
            name: name.to_owned(),
            closest: find_closest_name(name, LEGAL.iter().copied()),
            legal: LEGAL,
        }
    })
}

/// Builds a reference to `root` from the names after the path's first, without the first `skip` of them.
pub(super) fn build_reference(root: ReferenceRoot, path: &DottedPath, skip: usize, span: ExprSpan) -> ExprNode {
    ExprNode::Ref { span, root, path: path.tail_names(skip).collect(), lenient_outputs: false }
}

/// Builds a reference to a property of the step that the path's second name identifies.
pub(super) fn build_step_reference(part: StepProperty, path: &DottedPath, skip: usize, span: ExprSpan) -> ExprNode {
    let id = path.nth_name(0).unwrap_or_default().into();
    build_reference(ReferenceRoot::Step { id, part }, path, skip, span)
}

/// Builds the error for a path whose first name is none of `legal`.
pub(super) fn unknown_name_error(path: &DottedPath, legal: &'static [&'static str]) -> ExprParseError {
    let dollar = if path.dollar { "$" } else { "" };
    let name = format!("{dollar}{}", path.first.text);
    let closest = find_closest_name(&name, legal.iter().copied());
    let kind = ExprParseErrorKind::UnknownName { sort: "namespace", name, closest, legal };
    let mut span = path.first.span;
    span.start -= u32::from(path.dollar);
    ExprParseError::new(kind, span)
}

/// Builds the error for a path whose first name is valid but whose rest is not.
pub(super) fn bad_path_error(path: &DottedPath, why: &'static str, span: ExprSpan) -> ExprParseError {
    ExprParseError::new(ExprParseErrorKind::BadPath { path: path.to_text(), why }, span)
}
