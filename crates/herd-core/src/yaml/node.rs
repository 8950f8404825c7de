//! The tree's types and how to look into it.

use granit_parser::Marker;

use crate::diagnostic::Position;

/// One value with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it starts.
    pub position: Position,
    /// Characters it takes on that line.
    pub width: u32,
    /// The line it ends on.
    pub end_line: u32,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text, number, boolean or nothing; which one is the reader's business.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the order of the source; keys are unique.
    Mapping(Vec<Entry>),
}

/// A scalar as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The source text, after escapes of quoted text.
    pub text: String,
    /// Whether it stood there without quotes.
    pub plain: bool,
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub position: Position,
    /// Characters the key takes.
    pub width: u32,
    /// The value.
    pub value: Node,
}

impl Node {
    /// The scalar, where it is one.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// The items, where it is a list.
    pub fn sequence(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            Value::Scalar(_) | Value::Mapping(_) => None,
        }
    }

    /// The entries, where it is a mapping.
    pub fn mapping(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            Value::Scalar(_) | Value::Sequence(_) => None,
        }
    }

    /// The value under `key`, where it is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.mapping()?
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// Whether it is YAML's null.
    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(|scalar| {
            scalar.plain && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
        })
    }

    /// The boolean, where it is one.
    pub fn boolean(&self) -> Option<bool> {
        let scalar = self.scalar().filter(|scalar| scalar.plain)?;
        match scalar.text.as_str() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }

    /// What a message calls it.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Scalar(_) if self.is_null() => "nothing",
            Value::Scalar(_) if self.boolean().is_some() => "a boolean",
            Value::Scalar(scalar) if scalar.plain && scalar.text.parse::<f64>().is_ok() => {
                "a number"
            }
            Value::Scalar(_) => "text",
        }
    }
}

/// The parser's place as ours.
pub(super) fn position(marker: &Marker) -> Position {
    Position {
        line: count(marker.line().max(1)),
        column: count(marker.col() + 1),
    }
}

/// A count that a source of a megabyte keeps far below the limit.
pub(super) fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
