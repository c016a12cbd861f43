//! Owns cutting expression text into words. Knows no grammar and no namespace, only which names may hold
//! digits.

use super::ast::CompareOp;
use super::error::{Missing, ParseError, ParseErrorKind};
use super::literal;
use super::span::Span;
use super::token::{Path, Segment, Tok, Token};

/// Reads words from a window of a text, so that spans always count from the start of the text.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    pos: usize,
    end: usize,
    /// Whether names after a dot may start with a digit, as array places do.
    digits: bool,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str, window: (usize, usize), digits: bool) -> Self {
        Lexer { text, pos: window.0, end: window.1, digits }
    }

    pub fn text(&self) -> &'a str {
        self.text
    }

    fn rest(&self) -> &'a str {
        &self.text[self.pos..self.end]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, what: &str) -> bool {
        let there = self.rest().starts_with(what);
        if there {
            self.pos += what.len();
        }
        there
    }

    fn since(&self, start: usize) -> Span {
        Span::new(start, self.pos)
    }

    /// The next word; `Tok::End` for ever once there are no more.
    pub fn next(&mut self) -> Result<Token, ParseError> {
        let blank = self.rest().len() - self.rest().trim_start().len();
        self.pos += blank;
        let start = self.pos;
        let tok = match self.peek() {
            None => Tok::End,
            Some('\'' | '"') => self.string()?,
            Some('0'..='9' | '-') => self.number()?,
            Some('$') => self.dollar()?,
            Some(c) if starts_name(c) => Tok::Path(self.path(false)?),
            Some(c) => self.sign(c),
        };
        Ok(Token { tok, span: self.since(start) })
    }

    fn sign(&mut self, first: char) -> Tok {
        const SIGNS: [(&str, Tok); 14] = [
            ("&&", Tok::And),
            ("||", Tok::Or),
            ("==", Tok::Compare(CompareOp::Eq)),
            ("!=", Tok::Compare(CompareOp::Ne)),
            ("<=", Tok::Compare(CompareOp::Le)),
            (">=", Tok::Compare(CompareOp::Ge)),
            ("<", Tok::Compare(CompareOp::Lt)),
            (">", Tok::Compare(CompareOp::Gt)),
            ("!", Tok::Not),
            ("(", Tok::Open),
            (")", Tok::Close),
            ("?", Tok::Question),
            (":", Tok::Colon),
            (",", Tok::Comma),
        ];
        for (sign, tok) in SIGNS {
            if self.eat(sign) {
                return tok;
            }
        }
        self.pos += first.len_utf8();
        if first == '.' { Tok::Dot } else { Tok::Other(first) }
    }

    fn string(&mut self) -> Result<Tok, ParseError> {
        let read = literal::string(self.rest(), self.pos)?;
        self.pos += read.bytes;
        Ok(Tok::Str(read.value))
    }

    fn number(&mut self) -> Result<Tok, ParseError> {
        // A minus that no digit follows is arithmetic, and the parser says so.
        if self.rest().starts_with('-') && !self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) {
            self.pos += 1;
            return Ok(Tok::Other('-'));
        }
        let read = literal::number(self.rest(), self.pos)?;
        self.pos += read.bytes;
        Ok(Tok::Num(read.value))
    }

    fn dollar(&mut self) -> Result<Tok, ParseError> {
        let start = self.pos;
        if self.eat("${{") {
            return Err(ParseError::new(ParseErrorKind::NotInLanguage(Missing::Template), self.since(start)));
        }
        self.pos += 1;
        Ok(Tok::Path(self.path(true)?))
    }

    fn path(&mut self, dollar: bool) -> Result<Path, ParseError> {
        let first = self.segment(false)?;
        let mut rest = Vec::new();
        while self.eat(".") {
            rest.push(self.segment(true)?);
        }
        Ok(Path { dollar, first, rest })
    }

    fn segment(&mut self, after_dot: bool) -> Result<Segment, ParseError> {
        let start = self.pos;
        let length = self.rest().find(|c| !continues_name(c)).unwrap_or(self.rest().len());
        let text = &self.rest()[..length];
        self.pos += length;
        match text.chars().next() {
            Some(c) if starts_name(c) || (after_dot && self.digits && c.is_ascii_digit()) => {
                Ok(Segment { text: text.to_owned(), span: self.since(start) })
            }
            Some(c) if after_dot && c.is_ascii_digit() => {
                Err(ParseError::new(ParseErrorKind::NotInLanguage(Missing::Indexing), self.since(start)))
            }
            _ => Err(self.no_name(start, after_dot)),
        }
    }

    fn no_name(&mut self, start: usize, after_dot: bool) -> ParseError {
        self.pos = start;
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{c}`"));
        let expected = if after_dot { "a name after `.`" } else { "a name after `$`" };
        let end = start + self.peek().map_or(0, char::len_utf8);
        ParseError::new(ParseErrorKind::Unexpected { expected, found }, Span::new(start, end))
    }
}

pub(super) fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Hyphens belong to names: step ids have them, and there is no subtraction.
pub(super) fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
