//! Writes JSON: objects of numbers, texts, objects and lists.

use std::fmt::{Display, Write};

/// An object that is being written.
#[derive(Debug)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self(String::from("{"))
    }

    /// Adds a member with a value in JSON, such as a number.
    pub(super) fn raw(mut self, name: &str, value: impl Display) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        // A string takes whatever is written to it.
        let _ = write!(self.0, ":{value}");
        self
    }

    /// Adds a text.
    pub(super) fn text(self, name: &str, value: impl Display) -> Self {
        self.raw(name, quoted(&value.to_string()))
    }

    /// Adds a list of JSON values.
    pub(super) fn list(self, name: &str, values: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<_> = values.into_iter().collect();
        self.raw(name, format_args!("[{}]", values.join(",")))
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns a text as JSON, on one line.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // A string takes whatever is written to it.
            '\0'..'\x20' | '\x7f' => drop(write!(quoted, "\\u{:04x}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_one_line_of_json() {
        let object = Object::new()
            .raw("a", 1)
            .text("b\"", "x\n\\\u{1}ü")
            .list("c", [Object::new().end(), quoted("d")])
            .end();
        assert_eq!(object, "{\"a\":1,\"b\\\"\":\"x\\u000a\\\\\\u0001ü\",\"c\":[{},\"d\"]}");
    }
}
