//! Typed access to mappings of a job file that notes each fault and carries on.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::foreign;
use super::keys::{Key, Shape};
use super::{Reading, Unread};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::spec::Command;
use crate::text::{nearest, quoted};
use crate::validate::{self, Refusal};
use crate::yaml::{Document, Entry, Node};

/// Collects faults.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) faults: Vec<Diagnostic>,
}

/// One mapping whose keys are known.
#[derive(Debug)]
pub(crate) struct Fields<'n> {
    path: String,
    table: &'static [Key],
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// The value under a key of the table, with its full path.
    pub(crate) fn get(&self, name: &str) -> Option<(&'n Node, String)> {
        debug_assert!(
            self.key(name).is_some(),
            "`{name}` is not in the table of keys"
        );
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        Some((&entry.value, join(&self.path, name)))
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        self.table.iter().find(|key| key.name == name)
    }
}

/// `path.key`.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

impl Reader {
    /// A reader that has the faults of a document.
    pub(crate) fn of(document: &Document) -> Self {
        Self {
            faults: document.faults.clone(),
        }
    }

    /// The keys that were noted as wrong so far, each as a job file calls it. A key that stands
    /// twice is known: its first value counts.
    pub(crate) fn unread(&self, document: &Document, job_key: impl Fn(&str) -> String) -> Unread {
        let own = self.faults.get(document.faults.len()..);
        Unread::of(own.unwrap_or_default(), job_key)
    }

    /// What was read, with every fault that was noted.
    pub(crate) fn done<T>(
        self,
        document: &Document,
        source: &[u8],
        file_name: &str,
        value: T,
        unread: Unread,
    ) -> Reading<T> {
        let faults = (!self.faults.is_empty()).then(|| {
            let hidden = super::secret_lines(&document.root);
            Diagnostics::new(file_name, source, self.faults, &hidden)
        });
        Reading {
            value,
            faults,
            unread,
        }
    }

    /// Notes a fault of a value.
    pub(crate) fn fault(&mut self, node: &Node, path: &str, refusal: Refusal) {
        self.faults.push(Diagnostic {
            position: node.position,
            width: node.width,
            path: path.to_owned(),
            refusal,
        });
    }

    fn wrong(&mut self, node: &Node, path: &str, expected: &str) {
        let refusal = Refusal::new(format!("expected {expected}, found {}", node.kind()));
        let refusal = if node.is_null() {
            refusal.with_hint("give the key a value, or remove it")
        } else {
            refusal
        };
        self.fault(node, path, refusal);
    }

    /// Notes a fault of a key.
    pub(crate) fn key_fault(&mut self, entry: &Entry, path: &str, refusal: Refusal) {
        self.faults.push(Diagnostic {
            position: entry.position,
            width: entry.width,
            path: path.to_owned(),
            refusal,
        });
    }

    /// The mapping, with every unknown and missing key noted.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        table: &'static [Key],
    ) -> Option<Fields<'n>> {
        let Some(entries) = node.mapping() else {
            let mut keys = table.iter().filter(|key| key.required).chain(table);
            let key = keys.next().map_or("", |key| key.name);
            let refusal = Refusal::new(format!("expected a mapping, found {}", node.kind()));
            let refusal = match path {
                "" => refusal.with_hint("write `run: COMMAND`, a key and its value a line"),
                _ => refusal.with_hint(format!("write `{path}: {{{key}: …}}`")),
            };
            self.fault(node, path, refusal);
            return None;
        };
        for entry in entries {
            if table.iter().any(|key| key.name == entry.key) {
                continue;
            }
            let refusal = Refusal {
                message: "unknown key of a job file".to_owned(),
                hint: foreign::advice(path, &entry.key, table),
            };
            self.key_fault(entry, &join(path, &entry.key), refusal);
        }
        for key in table.iter().filter(|key| key.required) {
            if !entries.iter().any(|entry| entry.key == key.name) {
                self.fault(
                    node,
                    path,
                    Refusal::new(format!("the key `{}` is missing", key.name)),
                );
            }
        }
        Some(Fields {
            path: path.to_owned(),
            table,
            entries,
        })
    }

    /// Text; a number or a boolean counts as its source text.
    pub(crate) fn text_of(&mut self, node: &Node, path: &str) -> Option<String> {
        match node.scalar() {
            Some(scalar) if !node.is_null() => Some(scalar.text.clone()),
            _ => {
                self.wrong(node, path, "text");
                None
            }
        }
    }

    /// Text that follows a rule.
    pub(crate) fn checked_of(
        &mut self,
        node: &Node,
        path: &str,
        rule: impl FnOnce(&str) -> Result<(), Refusal>,
    ) -> Option<String> {
        let text = self.text_of(node, path)?;
        match rule(&text) {
            Ok(()) => Some(text),
            Err(refusal) => {
                self.fault(node, path, refusal);
                None
            }
        }
    }

    /// Text under a key, where it stands there and follows a rule.
    pub(crate) fn checked(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        rule: impl FnOnce(&str) -> Result<(), Refusal>,
    ) -> Option<String> {
        let (node, path) = fields.get(name)?;
        self.checked_of(node, &path, rule)
    }

    /// A value with a text form of its own.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
    ) -> Option<T> {
        let (node, path) = fields.get(name)?;
        let text = self.text_of(node, &path)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let refusal = Refusal::new(format!("{} {error}", quoted(&text)));
                self.fault(node, &path, refusal);
                None
            }
        }
    }

    /// A whole number within the bounds that the table names.
    pub(crate) fn integer(&mut self, fields: &Fields<'_>, name: &str) -> Option<u32> {
        let (node, path) = fields.get(name)?;
        match fields.key(name)?.shape {
            Shape::Integer(bounds) => self.integer_of(node, &path, bounds),
            _ => None,
        }
    }

    /// A whole number within bounds.
    pub(crate) fn integer_of(
        &mut self,
        node: &Node,
        path: &str,
        (least, most): (u32, u32),
    ) -> Option<u32> {
        let expected = format!("a whole number between {least} and {most}");
        let Some(scalar) = node.scalar().filter(|_| node.kind() != "nothing") else {
            self.wrong(node, path, &expected);
            return None;
        };
        let digits = scalar.text.strip_prefix('+').unwrap_or(&scalar.text);
        let number = digits
            .parse::<u32>()
            .ok()
            .filter(|n| (least..=most).contains(n));
        if number.is_none() {
            let message = format!("expected {expected}, found {}", quoted(&scalar.text));
            self.fault(node, path, Refusal::new(message));
        }
        number
    }

    /// One of the words that the table names.
    pub(crate) fn choice<'a, T: Deserialize<'a>>(
        &mut self,
        fields: &Fields<'a>,
        name: &str,
    ) -> Option<T> {
        let (node, path) = fields.get(name)?;
        let Shape::Choice(words) = fields.key(name)?.shape else {
            return None;
        };
        let Some(scalar) = node.scalar().filter(|_| !node.is_null()) else {
            self.wrong(node, &path, &format!("one of {}", words.join(", ")));
            return None;
        };
        if words.contains(&scalar.text.as_str()) {
            let word: StrDeserializer<'a, ValueError> = scalar.text.as_str().into_deserializer();
            if let Ok(value) = T::deserialize(word) {
                return Some(value);
            }
        }
        let message = format!(
            "expected one of {}, found {}",
            words.join(", "),
            quoted(&scalar.text)
        );
        let refusal = Refusal::new(message);
        let refusal = match nearest(&scalar.text, words.iter().copied()) {
            Some(word) => refusal.with_hint(format!("did you mean `{word}`?")),
            None => refusal,
        };
        self.fault(node, &path, refusal);
        None
    }

    /// The items of a list, each with its path.
    pub(crate) fn items<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Vec<(&'n Node, String)> {
        let Some((node, path)) = fields.get(name) else {
            return Vec::new();
        };
        let Some(items) = node.sequence() else {
            self.wrong(node, &path, "a list");
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(i, item)| (item, format!("{path}[{i}]")))
            .collect()
    }

    /// The entries of a mapping with free keys, each with its path.
    pub(crate) fn entries<'n>(
        &mut self,
        fields: &Fields<'n>,
        name: &str,
    ) -> Vec<(&'n Entry, String)> {
        let Some((node, path)) = fields.get(name) else {
            return Vec::new();
        };
        let Some(entries) = node.mapping() else {
            self.wrong(node, &path, "a mapping of names to values");
            return Vec::new();
        };
        entries
            .iter()
            .map(|entry| (entry, join(&path, &entry.key)))
            .collect()
    }

    /// A command: text or a list of text.
    pub(crate) fn command_of(&mut self, node: &Node, path: &str) -> Option<Command> {
        let command = if let Some(items) = node.sequence() {
            let mut argv = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                argv.push(self.text_of(item, &format!("{path}[{index}]")));
            }
            Command::Argv(argv.into_iter().collect::<Option<_>>()?)
        } else if node.scalar().is_some() && !node.is_null() {
            Command::Shell(self.text_of(node, path)?)
        } else {
            self.wrong(node, path, "a command as text or as a list of text");
            return None;
        };
        match validate::command(&command) {
            Ok(()) => Some(command),
            Err(refusal) => {
                self.fault(node, path, refusal);
                None
            }
        }
    }
}
