//! The words and operators of a display filter.

use thiserror::Error;

/// An error in the text of a display filter.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("column {column}: found {found}, expected {expected}")]
pub struct FilterError {
    /// Place of the error in characters, from 1.
    pub column: usize,
    /// What was found there.
    pub found: String,
    /// What was expected instead.
    pub expected: String,
}

/// A token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// The name of a field, or a value.
    Word(&'a str),
    Compare(Comparison),
    And,
    Or,
    Not,
    In,
    /// `&`.
    Mask,
    /// `..`.
    Range,
    Comma,
    Open,
    Close,
    OpenSet,
    CloseSet,
    End,
}

/// Comparison of a field's values with another value. A field with several values differs by quantifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    /// `==`: one of the values is equal.
    AnyEqual,
    /// `===`: all are equal.
    AllEqual,
    /// `!=`: all differ.
    AllDiffer,
    /// `~=`: one differs.
    AnyDiffer,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
}

/// Operators of characters, longer ones before those that begin as they do.
const OPERATORS: [(&str, Token<'static>); 20] = [
    ("===", Token::Compare(Comparison::AllEqual)),
    ("!==", Token::Compare(Comparison::AnyDiffer)),
    ("==", Token::Compare(Comparison::AnyEqual)),
    ("!=", Token::Compare(Comparison::AllDiffer)),
    ("~=", Token::Compare(Comparison::AnyDiffer)),
    (">=", Token::Compare(Comparison::GreaterOrEqual)),
    ("<=", Token::Compare(Comparison::LessOrEqual)),
    ("&&", Token::And),
    ("||", Token::Or),
    ("..", Token::Range),
    (">", Token::Compare(Comparison::Greater)),
    ("<", Token::Compare(Comparison::Less)),
    ("&", Token::Mask),
    ("!", Token::Not),
    (",", Token::Comma),
    ("(", Token::Open),
    (")", Token::Close),
    ("{", Token::OpenSet),
    ("}", Token::CloseSet),
    ("", Token::End),
];

/// Words that stand for operators.
const WORDS: [(&str, Token<'static>); 17] = [
    ("and", Token::And),
    ("or", Token::Or),
    ("not", Token::Not),
    ("in", Token::In),
    ("bitand", Token::Mask),
    ("bitwise_and", Token::Mask),
    ("eq", Token::Compare(Comparison::AnyEqual)),
    ("any_eq", Token::Compare(Comparison::AnyEqual)),
    ("all_eq", Token::Compare(Comparison::AllEqual)),
    ("ne", Token::Compare(Comparison::AllDiffer)),
    ("all_ne", Token::Compare(Comparison::AllDiffer)),
    ("any_ne", Token::Compare(Comparison::AnyDiffer)),
    ("gt", Token::Compare(Comparison::Greater)),
    ("lt", Token::Compare(Comparison::Less)),
    ("ge", Token::Compare(Comparison::GreaterOrEqual)),
    ("le", Token::Compare(Comparison::LessOrEqual)),
    ("", Token::End),
];

/// The tokens of a text, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Offset of the current token, and of the text behind it.
    at: usize,
    next: usize,
    token: Token<'a>,
}

impl<'a> Lexer<'a> {
    /// Begins with the first token of `text`.
    pub(super) fn new(text: &'a str) -> Result<Self, FilterError> {
        let mut lexer = Self { text, at: 0, next: 0, token: Token::End };
        lexer.advance()?;
        Ok(lexer)
    }

    /// Returns the current token.
    pub(super) const fn token(&self) -> Token<'a> {
        self.token
    }

    /// Goes on to the next token, and returns the one before.
    pub(super) fn advance(&mut self) -> Result<Token<'a>, FilterError> {
        let before = self.token;
        let rest = &self.text[self.next..];
        let trimmed = rest.trim_start();
        self.at = self.next + rest.len() - trimmed.len();
        let (token, len) = token(trimmed);
        self.next = self.at + len;
        self.token = token;
        if len == 0 && !trimmed.is_empty() {
            return Err(self.error("a field, a value or an operator"));
        }
        Ok(before)
    }

    /// Goes on if the current token is `wanted`; returns whether it was.
    pub(super) fn take(&mut self, wanted: Token<'_>) -> Result<bool, FilterError> {
        let is_wanted = self.token == wanted;
        if is_wanted {
            self.advance()?;
        }
        Ok(is_wanted)
    }

    /// Returns an error at the current token.
    pub(super) fn error(&self, expected: impl Into<String>) -> FilterError {
        let rest = &self.text[self.at..];
        let found = match rest.get(..self.next - self.at).filter(|text| !text.is_empty()) {
            Some(token) => format!("`{token}`"),
            None => match rest.chars().next() {
                Some(character) => format!("{character:?}"),
                None => "the end".to_owned(),
            },
        };
        let column = self.text[..self.at].chars().count() + 1;
        FilterError { column, found, expected: expected.into() }
    }
}

/// Returns the token at the beginning of `text`, and its length in bytes.
fn token(text: &str) -> (Token<'_>, usize) {
    let len = word_len(text);
    if len > 0 {
        let word = &text[..len];
        let operator = WORDS.iter().find(|(name, _)| *name == word);
        return (operator.map_or(Token::Word(word), |(_, token)| *token), len);
    }
    let operator = OPERATORS.iter().find(|(name, _)| text.starts_with(name));
    operator.map_or((Token::End, 0), |(name, token)| (*token, name.len()))
}

/// Returns the length of a name, number, address or series of bytes. A word ends before `..`.
fn word_len(text: &str) -> usize {
    let range = text.find("..").unwrap_or(text.len());
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '/');
    let len = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    len.min(range)
}
