//! Applies display filters to packets.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::field::{Subject, Value};
use super::lexer::{Comparison, FilterError};
use super::parser::{Expression, Literal, Operand, Right, parse};

/// A display filter.
///
/// ```
/// use softroce_pcap::display_filter::DisplayFilter;
///
/// let filter: DisplayFilter = "infiniband.bth.destqp == 0x11 && infiniband.aeth".parse()?;
/// assert_eq!(filter.to_string(), "infiniband.bth.destqp == 0x11 && infiniband.aeth");
/// let error = "infiniband.bth.destqp == eleven".parse::<DisplayFilter>().unwrap_err();
/// assert_eq!(error.column, 26);
/// # Ok::<(), softroce_pcap::display_filter::FilterError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisplayFilter {
    text: String,
    expression: Expression,
}

impl DisplayFilter {
    /// Returns whether a packet matches.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        holds(&self.expression, subject)
    }
}

impl FromStr for DisplayFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Ok(Self { text: text.to_owned(), expression: parse(text)? })
    }
}

impl fmt::Display for DisplayFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn holds(expression: &Expression, subject: &Subject<'_>) -> bool {
    match expression {
        Expression::And(left, right) => holds(left, subject) && holds(right, subject),
        Expression::Or(left, right) => holds(left, subject) || holds(right, subject),
        Expression::Not(inner) => !holds(inner, subject),
        Expression::Has(operand) => {
            let mut values = values(operand, subject);
            values.any(|value| operand.mask.is_none() || value != Value::Number(0))
        }
        Expression::Compare(operand, comparison, right) => {
            compare(operand, *comparison, right, subject)
        }
        Expression::In(operand, ranges) => values(operand, subject)
            .any(|value| ranges.iter().any(|(low, high)| is_in(value, low, high))),
    }
}

/// Returns the values of a field with the bits that count.
fn values(operand: &Operand, subject: &Subject<'_>) -> impl Iterator<Item = Value> {
    let mask = operand.mask.unwrap_or(u64::MAX);
    operand.field.values(subject).map(move |value| match value {
        Value::Number(number) => Value::Number(number & mask),
        value => value,
    })
}

fn compare(
    operand: &Operand,
    comparison: Comparison,
    right: &Right,
    subject: &Subject<'_>,
) -> bool {
    match right {
        Right::Literal(literal) => {
            quantified(values(operand, subject), comparison, |value| order(value, literal))
        }
        Right::Field(field) => {
            let mut others = field.values(subject);
            let is_all = matches!(comparison, Comparison::AllEqual | Comparison::AllDiffer);
            let holds = |other: Value| {
                let literal = Literal::Value(other);
                quantified(values(operand, subject), comparison, |value| order(value, &literal))
            };
            if is_all {
                let mut others = others.peekable();
                others.peek().is_some() && others.all(holds)
            } else {
                others.any(holds)
            }
        }
    }
}

/// Returns whether one or all values, as the comparison says, have the right order. None have it without values.
fn quantified(
    values: impl Iterator<Item = Value>,
    comparison: Comparison,
    order: impl Fn(Value) -> Ordering,
) -> bool {
    let mut orders = values.map(order).peekable();
    if orders.peek().is_none() {
        return false;
    }
    match comparison {
        Comparison::AnyEqual => orders.any(Ordering::is_eq),
        Comparison::AllEqual => orders.all(Ordering::is_eq),
        Comparison::AllDiffer => orders.all(Ordering::is_ne),
        Comparison::AnyDiffer => orders.any(Ordering::is_ne),
        Comparison::Greater => orders.any(Ordering::is_gt),
        Comparison::Less => orders.any(Ordering::is_lt),
        Comparison::GreaterOrEqual => orders.any(Ordering::is_ge),
        Comparison::LessOrEqual => orders.any(Ordering::is_le),
    }
}

fn order(value: Value, literal: &Literal) -> Ordering {
    match (value, literal) {
        (value, Literal::Value(literal)) => value.cmp(literal),
        (Value::Address(address), Literal::Net(net, prefix)) => {
            masked(address, *prefix).cmp(&masked(*net, *prefix))
        }
        // The parser allows networks for addresses alone.
        (_, Literal::Net(..)) => Ordering::Less,
    }
}

fn is_in(value: Value, low: &Literal, high: &Literal) -> bool {
    order(value, low).is_ge() && order(value, high).is_le()
}

/// Returns the first bits of an address.
fn masked(address: IpAddr, prefix: u8) -> u128 {
    let (bits, len) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    bits.checked_shr(len - u32::from(prefix).min(len)).unwrap_or_default()
}
