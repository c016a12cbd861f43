//! Owns the grammar: which operators bind tighter, what brackets and calls look like. Leaves names to a
//! dialect.

use serde_json::Value;

use super::ast::{CompareOp, Function, Node};
use super::bounds::{MAX_DEPTH, MAX_SOURCE};
use super::error::{Missing, ParseError, ParseErrorKind};
use super::lex::Lexer;
use super::shape::ShapeError;
use super::span::Span;
use super::token::{Path, Tok, Token};
use crate::closest::closest;

/// What a surface's grammar has, and what its names mean.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    /// Names start with a `$`.
    pub dollar: bool,
    /// Names after a dot may be array places.
    pub digits: bool,
    /// `? :` and the functions.
    pub rich: bool,
    /// `a == b == c` reads from the left, rather than being refused.
    pub chains: bool,
    pub resolve: fn(&Path, Span) -> Result<Node, ParseError>,
    /// A last look at the two sides of `==` or `!=`, for words that have more than one spelling.
    pub equated: fn(&mut Node, &mut Node),
}

/// A node and how tall it is.
type Built = (Node, usize);

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    dialect: Dialect,
    /// Brackets, calls, negations and arms around the current token.
    depth: usize,
}

/// Parses one expression that fills the window `from..to` of `text`.
pub(super) fn expression(
    text: &str,
    (from, to): (usize, usize),
    dialect: Dialect,
) -> Result<Node, ParseError> {
    if to - from > MAX_SOURCE {
        return Err(ParseError::new(ParseErrorKind::SourceTooLong(to - from), Span::new(from, to)));
    }
    if text[from..to].trim().is_empty() {
        return Err(ParseError::new(ParseErrorKind::Empty, Span::new(from, to)));
    }
    let mut lexer = Lexer::new(text, (from, to), dialect.digits);
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, dialect, depth: 0 };
    let (node, _) = parser.ternary()?;
    match parser.token.tok {
        Tok::End => Ok(node),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token, ParseError> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn error(&self, kind: impl Into<ParseErrorKind>) -> ParseError {
        ParseError::new(kind, self.token.span)
    }

    fn missing(&self, what: Missing) -> ParseError {
        self.error(ParseErrorKind::NotInLanguage(what))
    }

    /// Says what was wanted instead of the current token, or names the habit from elsewhere that it shows.
    fn unexpected(&self, expected: &'static str) -> ParseError {
        match &self.token.tok {
            Tok::Other('[') => self.missing(Missing::Indexing),
            Tok::Other('+' | '-' | '*' | '/' | '%') => self.missing(Missing::Arithmetic),
            Tok::Num(_) if self.token.span.of(self.lexer.text()).is_some_and(|s| s.starts_with('-')) => {
                self.missing(Missing::Arithmetic)
            }
            Tok::Other('=') => self.missing(Missing::Assignment),
            Tok::Other('&') => self.missing(Missing::BitAnd),
            Tok::Other('|') => self.missing(Missing::BitOr),
            Tok::Question if !self.dialect.rich => self.missing(Missing::Ternary),
            _ => {
                let found = self.token.describe(self.lexer.text());
                self.error(ParseErrorKind::Unexpected { expected, found })
            }
        }
    }

    fn expect(&mut self, tok: Tok, expected: &'static str) -> Result<Token, ParseError> {
        if self.token.tok == tok { self.advance() } else { Err(self.unexpected(expected)) }
    }

    /// Runs `inner` one level down, unless that is too deep: this is what bounds the recursion.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth + 1 >= MAX_DEPTH {
            return Err(self.error(ShapeError::TooDeep));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Puts a node on top of others that are `below` tall; chains grow without any recursion.
    fn on_top(&self, node: Node, below: usize) -> Result<Built, ParseError> {
        if below >= MAX_DEPTH {
            return Err(ParseError::new(ShapeError::TooDeep, node.span()));
        }
        Ok((node, below + 1))
    }

    fn ternary(&mut self) -> Result<Built, ParseError> {
        let (test, a) = self.joined(Tok::Or)?;
        if self.token.tok != Tok::Question || !self.dialect.rich {
            return Ok((test, a));
        }
        self.advance()?;
        let (then, b) = self.nested(Self::ternary)?;
        self.expect(Tok::Colon, "`:` and what holds otherwise")?;
        let (otherwise, c) = self.nested(Self::ternary)?;
        let span = test.span().to(otherwise.span());
        let (test, then, otherwise) = (Box::new(test), Box::new(then), Box::new(otherwise));
        self.on_top(Node::Cond { span, test, then, otherwise }, a.max(b).max(c))
    }

    /// Operands of `||`, or of `&&`; one node for the whole chain.
    fn joined(&mut self, sign: Tok) -> Result<Built, ParseError> {
        let operand = |parser: &mut Self| match sign {
            Tok::Or => parser.joined(Tok::And),
            _ => parser.compared(&[CompareOp::Eq, CompareOp::Ne]),
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
        let span = of[0].span().to(of[of.len() - 1].span());
        let node = if sign == Tok::Or { Node::Or { span, of } } else { Node::And { span, of } };
        self.on_top(node, below)
    }

    /// Comparisons of one strength: equality, whose operands may be orderings, or ordering.
    fn compared(&mut self, ops: &[CompareOp]) -> Result<Built, ParseError> {
        const ORDER: [CompareOp; 4] = [CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
        let equality = ops.contains(&CompareOp::Eq);
        let operand = |parser: &mut Self| if equality { parser.compared(&ORDER) } else { parser.unary() };
        let (mut left, mut height) = operand(self)?;
        let mut chained = false;
        while let Tok::Compare(by) = self.token.tok
            && ops.contains(&by)
        {
            if chained && !self.dialect.chains {
                return Err(self.error(ParseErrorKind::Chained { sign: by.sign() }));
            }
            let sign = self.advance()?.span;
            if equality && self.token.tok == Tok::Other('=') {
                let kind = ParseErrorKind::NotInLanguage(Missing::TripleEquals);
                return Err(ParseError::new(kind, sign.to(self.token.span)));
            }
            let (mut right, other) = operand(self)?;
            if equality {
                (self.dialect.equated)(&mut left, &mut right);
            }
            let span = left.span().to(right.span());
            let node = Node::Compare { span, by, left: Box::new(left), right: Box::new(right) };
            (left, height) = self.on_top(node, height.max(other))?;
            chained = true;
        }
        Ok((left, height))
    }

    fn unary(&mut self) -> Result<Built, ParseError> {
        if self.token.tok != Tok::Not {
            return self.primary();
        }
        let start = self.advance()?.span;
        let (of, below) = self.nested(Self::unary)?;
        let span = start.to(of.span());
        self.on_top(Node::Not { span, of: Box::new(of) }, below)
    }

    fn primary(&mut self) -> Result<Built, ParseError> {
        let span = self.token.span;
        let value = match &self.token.tok {
            Tok::Open => return self.bracketed(),
            Tok::Path(_) => return self.name(),
            Tok::Str(text) => Value::String(text.clone()),
            Tok::Num(number) => Value::Number(number.clone()),
            _ => return Err(self.unexpected("a value")),
        };
        self.advance()?;
        Ok((Node::Literal { span, value: value.into() }, 1))
    }

    fn bracketed(&mut self) -> Result<Built, ParseError> {
        self.advance()?;
        let inner = self.nested(Self::ternary)?;
        self.expect(Tok::Close, "`)`")?;
        match self.token.tok {
            Tok::Dot => Err(self.missing(Missing::CallMember)),
            _ => Ok(inner),
        }
    }

    /// A keyword, a call or a reference.
    fn name(&mut self) -> Result<Built, ParseError> {
        let token = self.advance()?;
        let Tok::Path(path) = &token.tok else { return Err(self.unexpected("a name")) };
        let plain = !path.dollar && path.rest.is_empty();
        let keyword = match path.first.text.as_str() {
            "true" if plain => Some(Value::Bool(true)),
            "false" if plain => Some(Value::Bool(false)),
            "null" if plain => Some(Value::Null),
            _ => None,
        };
        if let Some(value) = keyword {
            return Ok((Node::Literal { span: token.span, value: value.into() }, 1));
        }
        if self.token.tok == Tok::Open && !path.dollar {
            return self.call(path, token.span);
        }
        let wrong = |what| ParseError::new(ParseErrorKind::NotInLanguage(what), token.span);
        match (path.dollar, self.dialect.dollar) {
            (true, false) => Err(wrong(Missing::DollarName)),
            (false, true) => Err(wrong(Missing::BareName)),
            _ => Ok(((self.dialect.resolve)(path, token.span)?, 1)),
        }
    }

    fn call(&mut self, path: &Path, name: Span) -> Result<Built, ParseError> {
        if !self.dialect.rich {
            return Err(ParseError::new(ParseErrorKind::NotInLanguage(Missing::Functions), name));
        }
        let function = function(&path.text()).map_err(|kind| ParseError::new(kind, name))?;
        self.advance()?;
        let (args, below) = self.nested(Self::arguments)?;
        let close = self.expect(Tok::Close, "`,` or `)`")?;
        let (takes, given) = (function.arity(), args.len());
        let span = name.to(close.span);
        if takes != given {
            let kind = ShapeError::Arity { function: function.name(), takes, given };
            return Err(ParseError::new(kind, span));
        }
        if self.token.tok == Tok::Dot {
            return Err(self.missing(Missing::CallMember));
        }
        self.on_top(Node::Call { span, function, args }, below)
    }

    fn arguments(&mut self) -> Result<(Vec<Node>, usize), ParseError> {
        let (mut args, mut tallest) = (Vec::new(), 1);
        if self.token.tok == Tok::Close {
            return Ok((args, tallest));
        }
        loop {
            let (node, height) = self.ternary()?;
            tallest = tallest.max(height);
            args.push(node);
            if self.token.tok != Tok::Comma {
                return Ok((args, tallest));
            }
            self.advance()?;
        }
    }
}

fn function(name: &str) -> Result<Function, ParseErrorKind> {
    const LEGAL: &[&str] = &["length", "contains", "toJSON", "fromJSON"];
    Function::ALL.into_iter().find(|function| function.name() == name).ok_or_else(|| {
        ParseErrorKind::UnknownName {
            sort: "function",
            name: name.to_owned(),
            closest: closest(name, LEGAL.iter().copied()),
            legal: LEGAL,
        }
    })
}
