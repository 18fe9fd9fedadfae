//! Parses display filters.
//!
//! ```text
//!  or        = and { "||" and }
//!  and       = unary { "&&" unary }
//!  unary     = "!" unary | "(" or ")" | relation
//!  relation  = field [ "&" number ] [ comparison ( value | field ) | "in" "{" range { "," range } "}" ]
//!  range     = value [ ".." value ]
//! ```

use std::net::IpAddr;
use std::time::Duration;

use super::field::{Field, Kind, Value};
use super::lexer::{Comparison, FilterError, Lexer, Token};

/// A parsed display filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expression {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    /// The field is present; with a mask, one of these bits is set.
    Has(Operand),
    Compare(Operand, Comparison, Right),
    /// One of the values is in one of the ranges, both ends included.
    In(Operand, Vec<(Literal, Literal)>),
}

/// A field, and the bits of its values that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operand {
    pub(super) field: Field,
    pub(super) mask: Option<u64>,
}

/// The right side of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Right {
    Literal(Literal),
    Field(Field),
}

/// A value in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Literal {
    Value(Value),
    /// The addresses that begin with the same bits as an address.
    Net(IpAddr, u8),
}

/// Maximum number of nested parentheses and negations, which bounds the stack.
const MAX_DEPTH: usize = 100;

/// Maximum number of operators, which bounds the depth of the expression.
const MAX_OPERATORS: usize = 1000;

/// Parses a display filter.
pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser { lexer: Lexer::new(text)?, depth: 0, operators: 0 };
    let expression = parser.or()?;
    match parser.lexer.token() {
        Token::End => Ok(expression),
        _ => Err(parser.lexer.error("`&&`, `||` or the end")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    depth: usize,
    operators: usize,
}

impl Parser<'_> {
    fn or(&mut self) -> Result<Expression, FilterError> {
        let mut left = self.and()?;
        while self.operator(Token::Or)? {
            left = Expression::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, FilterError> {
        let mut left = self.unary()?;
        while self.operator(Token::And)? {
            left = Expression::And(Box::new(left), Box::new(self.unary()?));
        }
        Ok(left)
    }

    fn operator(&mut self, token: Token<'_>) -> Result<bool, FilterError> {
        if self.lexer.token() != token {
            return Ok(false);
        }
        self.operators += 1;
        if self.operators > MAX_OPERATORS {
            return Err(self.lexer.error(format!("at most {MAX_OPERATORS} operators")));
        }
        self.lexer.take(token)
    }

    fn unary(&mut self) -> Result<Expression, FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.lexer.error(format!("at most {MAX_DEPTH} nested operators")));
        }
        let expression = if self.lexer.take(Token::Not)? {
            Expression::Not(Box::new(self.unary()?))
        } else if self.lexer.take(Token::Open)? {
            let inner = self.or()?;
            if !self.lexer.take(Token::Close)? {
                return Err(self.lexer.error("`)`"));
            }
            inner
        } else {
            self.relation()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn relation(&mut self) -> Result<Expression, FilterError> {
        let field = self.field()?;
        let mask = if self.lexer.take(Token::Mask)? { Some(self.mask(field)?) } else { None };
        let operand = Operand { field, mask };
        match self.lexer.token() {
            Token::Compare(comparison) => {
                self.lexer.advance()?;
                if field.kind == Kind::Header {
                    return Err(self
                        .lexer
                        .error(format!("no value: {} is a header", field.name())));
                }
                let right = self.right(field, comparison)?;
                Ok(Expression::Compare(operand, comparison, right))
            }
            Token::In => {
                self.lexer.advance()?;
                self.set(field).map(|ranges| Expression::In(operand, ranges))
            }
            _ => Ok(Expression::Has(operand)),
        }
    }

    fn field(&mut self) -> Result<Field, FilterError> {
        let Token::Word(word) = self.lexer.token() else {
            return Err(self.lexer.error("a field such as infiniband.bth.destqp"));
        };
        let field = Field::named(word).ok_or_else(|| self.unknown(word))?;
        self.lexer.advance()?;
        Ok(field)
    }

    /// Returns an error that names fields with a similar name.
    fn unknown(&self, word: &str) -> FilterError {
        let last = word.rsplit('.').next().unwrap_or_default();
        let names = Field::ALL.iter().map(Field::name);
        let near: Vec<_> =
            names.filter(|name| last.len() > 1 && name.contains(last)).take(4).collect();
        match near.is_empty() {
            true => {
                self.lexer.error("a field such as infiniband.bth.destqp, ip.addr or udp.srcport")
            }
            false => self.lexer.error(format!("a field such as {}", near.join(", "))),
        }
    }

    fn mask(&mut self, field: Field) -> Result<u64, FilterError> {
        match (field.kind, self.value(field)?) {
            (Kind::Decimal(_) | Kind::Hex(_) | Kind::Flag, Literal::Value(Value::Number(mask))) => {
                Ok(mask)
            }
            _ => Err(self.lexer.error(format!("no mask: {} is no number", field.name()))),
        }
    }

    fn right(&mut self, field: Field, comparison: Comparison) -> Result<Right, FilterError> {
        if let Token::Word(word) = self.lexer.token()
            && let Some(other) = Field::named(word)
        {
            if class(other.kind) != class(field.kind) {
                return Err(self.lexer.error(format!("a field of the type of {}", field.name())));
            }
            self.lexer.advance()?;
            return Ok(Right::Field(other));
        }
        let at = self.lexer.clone();
        let literal = self.value(field)?;
        let is_order = !matches!(
            comparison,
            Comparison::AnyEqual
                | Comparison::AllEqual
                | Comparison::AllDiffer
                | Comparison::AnyDiffer
        );
        match literal {
            Literal::Net(..) if is_order => Err(at.error("an address without a prefix length")),
            literal => Ok(Right::Literal(literal)),
        }
    }

    fn set(&mut self, field: Field) -> Result<Vec<(Literal, Literal)>, FilterError> {
        if !self.lexer.take(Token::OpenSet)? {
            return Err(self.lexer.error("`{`"));
        }
        let mut ranges = Vec::new();
        loop {
            let low = self.value(field)?;
            let high = if self.lexer.take(Token::Range)? { self.value(field)? } else { low };
            ranges.push((low, high));
            if self.lexer.take(Token::CloseSet)? {
                return Ok(ranges);
            }
            if !self.lexer.take(Token::Comma)? {
                return Err(self.lexer.error("`,` or `}`"));
            }
        }
    }

    /// Parses a value of the type of a field.
    fn value(&mut self, field: Field) -> Result<Literal, FilterError> {
        let expected = expected(field);
        let Token::Word(word) = self.lexer.token() else { return Err(self.lexer.error(expected)) };
        let literal = literal(field.kind, word).ok_or_else(|| self.lexer.error(expected))?;
        self.lexer.advance()?;
        Ok(literal)
    }
}

/// Types that compare with each other.
#[derive(PartialEq)]
enum Class {
    Number,
    Address,
    Time,
    Bytes,
    Header,
}

const fn class(kind: Kind) -> Class {
    match kind {
        Kind::Decimal(_) | Kind::Hex(_) | Kind::Flag => Class::Number,
        Kind::V4 | Kind::V6 => Class::Address,
        Kind::Time => Class::Time,
        Kind::Bytes => Class::Bytes,
        Kind::Header => Class::Header,
    }
}

fn expected(field: Field) -> String {
    let name = field.name();
    match field.kind {
        Kind::Decimal(bits) | Kind::Hex(bits) => {
            format!("a number of at most {bits} bits, as {name} has")
        }
        Kind::Flag => format!("1, 0, True or False for {name}"),
        Kind::V4 => format!("an IPv4 address or network for {name}"),
        Kind::V6 => format!("an IPv6 address or network for {name}"),
        Kind::Time => format!("seconds for {name}"),
        Kind::Bytes => format!("four bytes such as 00:00:00:2a for {name}"),
        Kind::Header => format!("no value: {name} is a header"),
    }
}

fn literal(kind: Kind, word: &str) -> Option<Literal> {
    Some(Literal::Value(match kind {
        Kind::Decimal(bits) | Kind::Hex(bits) => {
            let number = number(word)?;
            Value::Number((bits == u64::BITS || number >> bits == 0).then_some(number)?)
        }
        Kind::Flag => match word {
            "True" | "TRUE" | "true" => Value::Number(1),
            "False" | "FALSE" | "false" => Value::Number(0),
            _ => Value::Number(u64::from(number(word)? != 0)),
        },
        Kind::V4 | Kind::V6 => return address(kind == Kind::V4, word),
        Kind::Time => Value::Time(seconds(word)?),
        Kind::Bytes => Value::Bytes(bytes(word)?),
        Kind::Header => return None,
    }))
}

/// Parses a number as C writes it: decimal, 0x for hexadecimal, 0b for binary, 0 for octal.
fn number(word: &str) -> Option<u64> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', b'b' | b'B', ..] => (&word[2..], 2),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    let is_digits = digits.chars().all(|digit| digit.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| is_digits)
}

fn address(is_v4: bool, word: &str) -> Option<Literal> {
    let (address, prefix) = match word.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
        None => (word, None),
    };
    let address: IpAddr =
        address.parse().ok().filter(|address: &IpAddr| address.is_ipv4() == is_v4)?;
    let bits = if is_v4 { 32 } else { 128 };
    match prefix {
        Some(prefix) if prefix > bits => None,
        Some(prefix) if prefix < bits => Some(Literal::Net(address, prefix)),
        _ => Some(Literal::Value(Value::Address(address))),
    }
}

/// Parses seconds with up to nine digits behind the point.
fn seconds(word: &str) -> Option<Duration> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let is_digits = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if fraction.len() > 9 || !has_digits || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(if whole.is_empty() { 0 } else { whole.parse().ok()? }, nanos))
}

fn bytes(word: &str) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    let mut parts = word.split([':', '-', '.']);
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}
