//! Owns the grammar: operator precedence, brackets and calls; and the errors in a text, worded for its author. Leaves
//! names to a dialect, with helpers for its table. Does not know files or lines.

use serde_json::Value;
use thiserror::Error;

use crate::{
    expr::{
        ast::{self, CompareOp, ExprFunction, ExprNode, ReferenceRoot, StepProperty},
        lex::{DottedPath, ExprLexer, ExprSpan, ExprToken, ExprTokenKind},
        shape::ExprShapeError,
    },
    limits::{EXPRESSION_BYTES, EXPRESSION_DEPTH, EXPRESSION_TEXT},
    suggest::{find_closest_name, or_did_you_mean},
    terms::WorkflowTerms,
};

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
    if to - from > EXPRESSION_BYTES {
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
        if self.depth + 1 >= EXPRESSION_DEPTH {
            return Err(self.error_here(ExprShapeError::TooDeep));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Puts a node on top of others of height `below`. Chains grow without any recursion.
    fn wrap_node(&self, node: ExprNode, below: usize) -> Result<NodeWithHeight, ExprParseError> {
        if below >= EXPRESSION_DEPTH {
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

/// The reason why a text or a value is not an expression, and its location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct ExprParseError {
    pub kind: ExprParseErrorKind,
    /// The span within the string that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that string from the given value; empty for the value itself.
    pub at: String,
}

/// The expectation after the end of a condition.
pub(super) const AFTER_CONDITION: &str = "nothing after `}}` in a condition";

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExprParseErrorKind {
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: String },
    #[error("an expression is at most {EXPRESSION_BYTES} bytes long; this one is {0}")]
    SourceTooLong(usize),
    #[error("a string with expressions is at most {EXPRESSION_TEXT} bytes long; this one is {0}")]
    TextTooLong(usize),
    #[error(transparent)]
    Shape(#[from] ExprShapeError),
    #[error("this string is never closed")]
    UnterminatedString,
    #[error("`{0}` is not an escape")]
    BadEscape(String),
    #[error("`{0}` is not a number")]
    BadNumber(String),
    #[error("`${{{{` is never closed")]
    Unclosed,
    #[error("`${{{{` inside `${{{{ }}}}`")]
    Nested,
    #[error("the expression is empty")]
    Empty,
    #[error("the key `{0}` contains an expression")]
    ExpressionInKey(String),
    #[error("unknown {sort} `{name}`; {sort}s are {}{}", .legal.join(", "), or_did_you_mean(*.closest))]
    UnknownName { sort: &'static str, name: String, closest: Option<&'static str>, legal: &'static [&'static str] },
    #[error("`{path}` leads nowhere: {why}")]
    BadPath { path: String, why: &'static str },
    #[error("`{0}` is only available inside a fan-out")]
    OutsideFanOut(String),
    #[error("`{sign}` cannot be chained")]
    Chained { sign: &'static str },
    #[error("{0}")]
    NotInLanguage(UnsupportedSyntax),
    #[error("a value that starts with `$` must be one path and nothing else")]
    NotOnePath,
}

/// Syntax of other languages that this language lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnsupportedSyntax {
    #[error("indexing is not supported")]
    Indexing,
    #[error("arithmetic is not supported")]
    Arithmetic,
    #[error("fields of a call or of brackets cannot be read")]
    CallMember,
    #[error("functions are not supported here")]
    Functions,
    #[error("`? :` is not supported here")]
    Ternary,
    #[error("`=` is not an operator")]
    Assignment,
    #[error("`===` and `!==` are not operators")]
    TripleEquals,
    #[error("a single `&` is not an operator")]
    BitAnd,
    #[error("a single `|` is not an operator")]
    BitOr,
    #[error("names here start with `$`")]
    BareName,
    #[error("names here do not start with `$`")]
    DollarName,
    #[error("`${{{{ }}}}` is not supported here")]
    Template,
}

impl ExprParseError {
    pub(super) fn new(kind: impl Into<ExprParseErrorKind>, span: ExprSpan) -> Self {
        ExprParseError { kind: kind.into(), span, at: String::new() }
    }

    /// Returns the same error with `segment` prepended to its pointer.
    pub(super) fn prefix_pointer(mut self, segment: &str) -> Self {
        self.at = ast::prepend_segment(segment, &self.at);
        self
    }

    /// The fix, if it is not obvious from the message.
    pub fn hint(&self, terms: &WorkflowTerms) -> Option<String> {
        self.kind.hint(terms)
    }
}

impl ExprParseErrorKind {
    fn hint(&self, terms: &WorkflowTerms) -> Option<String> {
        use ExprParseErrorKind as K;
        let step = terms.step;
        let hint = match self {
            K::SourceTooLong(_) => return Some(format!("compute the value in a separate {step}")),
            K::TextTooLong(_) => "put the text in a file and name the file",
            K::Shape(ExprShapeError::TooDeep) => {
                return Some(format!("compute part of it in a separate {step}"));
            }
            K::UnterminatedString => {
                "close it with the quote that opened it; a quote inside is written `\\'` or `\\\"`"
            }
            K::BadEscape(_) => "escapes are \\\\ \\' \\\" \\/ \\n \\r \\t \\b \\f and \\u with four hex digits",
            K::BadNumber(_) => "numbers are written as in JSON, and whole ones fit in 64 bits",
            K::Unclosed => "close it with `}}`, or write `${{ '${{' }}` for the three characters",
            K::Nested => "one `${{ }}` holds a whole expression; names inside it need no `${{` of their own",
            K::Empty => "write an expression",
            K::ExpressionInKey(_) => "only values can have expressions; write the key out",
            K::OutsideFanOut(_) => "read a parameter or another stage's outputs instead",
            K::Chained { .. } => "compare twice and join with `&&`",
            K::NotOnePath => "for text that starts with a dollar sign, write `$$`",
            K::NotInLanguage(missing) => return Some(missing.hint(terms)),
            K::Unexpected { found, .. } if found == "`and`" => "write `&&`",
            K::Unexpected { found, .. } if found == "`or`" => "write `||`",
            K::Unexpected { expected, .. } if *expected == AFTER_CONDITION => {
                "one `${{ }}` holds the whole condition, such as `${{ a && b }}`"
            }
            K::UnknownName { name, .. } if name == "not" => "write `!`",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl UnsupportedSyntax {
    fn hint(self, terms: &WorkflowTerms) -> String {
        let step = terms.step;
        let hint = match self {
            UnsupportedSyntax::Indexing => {
                return format!("let the {step} return the element as a separate output");
            }
            UnsupportedSyntax::CallMember => {
                return format!("let the {step} return the field as a separate output");
            }
            UnsupportedSyntax::Arithmetic | UnsupportedSyntax::Functions => {
                return format!("compute the value in a separate {step}");
            }
            UnsupportedSyntax::Ternary => {
                return format!("use `&&` and `||`, or two {step}s with conditions");
            }
            UnsupportedSyntax::Assignment | UnsupportedSyntax::TripleEquals => "compare with `==` or `!=`",
            UnsupportedSyntax::BitAnd => "write `&&`",
            UnsupportedSyntax::BitOr => "write `||`",
            UnsupportedSyntax::BareName => "write `$input.name` or `$steps.id.name`, and put text in quotes",
            UnsupportedSyntax::DollarName => "leave the `$` out",
            UnsupportedSyntax::Template => "write the expression without it",
        };
        hint.to_owned()
    }
}
