//! Faults of a file with the place where each stands, shown the way compilers show them.
//!
//! This module formats; it does not find faults.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::text::visible;
use crate::validate::Refusal;

/// Faults kept for one file; the rest is counted.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Characters of a source line that are shown.
const LINE_WIDTH: usize = 120;

/// A place in a text, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Where it stands.
    #[serde(flatten)]
    pub position: Position,
    /// Characters that the mark covers.
    #[serde(skip)]
    pub width: u32,
    /// The key, `resources.gpus` or `datasets[0].mode`; empty for the whole document.
    pub path: String,
    /// What is wrong, and what to do about it.
    #[serde(flatten)]
    pub refusal: Refusal,
}

impl Diagnostic {
    /// A fault of the whole document at one place.
    pub fn at(position: Position, message: impl Into<String>) -> Self {
        Self {
            position,
            width: 1,
            path: String::new(),
            refusal: Refusal::new(message),
        }
    }

    /// The same fault with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.refusal = self.refusal.with_hint(hint);
        self
    }
}

/// Every fault of one file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    file: String,
    items: Vec<(Diagnostic, Option<String>)>,
    omitted: usize,
}

impl Diagnostics {
    /// Sorts the faults and keeps the source lines they stand in.
    ///
    /// Lines in `hidden` are never shown: a secret may stand there (I12).
    pub fn new(
        file: &str,
        source: &[u8],
        mut faults: Vec<Diagnostic>,
        hidden: &BTreeSet<u32>,
    ) -> Self {
        faults.sort_by(|a, b| (a.position, &a.path).cmp(&(b.position, &b.path)));
        faults.dedup();
        let omitted = faults.len().saturating_sub(MAX_DIAGNOSTICS);
        faults.truncate(MAX_DIAGNOSTICS);
        let lines: Vec<&[u8]> = source.split(|byte| *byte == b'\n').collect();
        let items = faults
            .into_iter()
            .map(|fault| {
                let line = fault.position.line;
                let shown = lines
                    .get((line as usize).saturating_sub(1))
                    .filter(|_| !hidden.contains(&line))
                    .map(|bytes| source_lines(line, bytes, &fault));
                (fault, shown)
            })
            .collect();
        Self {
            file: file.to_owned(),
            items,
            omitted,
        }
    }

    /// A file that is no YAML at all.
    pub(crate) fn unreadable(file: &str, source: &[u8], fault: Diagnostic) -> Self {
        Self::new(file, source, vec![fault], &BTreeSet::new())
    }

    /// These faults and further ones of the same file, in the order of the file.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        self.items.extend(others.items);
        self.omitted += others.omitted + self.items.len().saturating_sub(MAX_DIAGNOSTICS);
        self.items
            .sort_by(|(a, _), (b, _)| (a.position, &a.path).cmp(&(b.position, &b.path)));
        self.items.truncate(MAX_DIAGNOSTICS);
        self
    }

    /// The faults.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter().map(|(fault, _)| fault)
    }

    /// How many faults were found, those left out included.
    pub fn count(&self) -> usize {
        self.items.len() + self.omitted
    }
}

/// The source line and the mark below it, without a final newline.
fn source_lines(number: u32, bytes: &[u8], fault: &Diagnostic) -> String {
    let column = (fault.position.column as usize).saturating_sub(1);
    let first = column.saturating_sub(LINE_WIDTH / 2);
    // Four bytes are the most one character takes; a line of a megabyte is not decoded whole.
    let end = bytes
        .len()
        .min(first.saturating_add(LINE_WIDTH).saturating_mul(4));
    let text = String::from_utf8_lossy(&bytes[..end]);
    let text = text.trim_end_matches('\r');
    let shown: String = text
        .chars()
        .skip(first)
        .take(LINE_WIDTH)
        .map(visible)
        .collect();
    let indent = column - first;
    let width = (fault.width.max(1) as usize).min(shown.chars().count().saturating_sub(indent));
    let gutter = " ".repeat(number.to_string().len());
    let mark = "^".repeat(width.max(1));
    format!(
        "{gutter} |\n{number} | {}\n{gutter} | {}{mark}",
        shown.trim_end(),
        " ".repeat(indent)
    )
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (fault, source)) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            let Position { line, column } = fault.position;
            write!(f, "{}:{line}:{column}: ", self.file)?;
            if !fault.path.is_empty() {
                let path: String = fault.path.chars().map(visible).collect();
                write!(f, "{path}: ")?;
            }
            f.write_str(&fault.refusal.message)?;
            if let Some(source) = source {
                write!(f, "\n{source}")?;
            }
            if let Some(hint) = &fault.refusal.hint {
                write!(f, "\nhint: {hint}")?;
            }
        }
        if self.omitted > 0 {
            write!(
                f,
                "\n\n{}: {} more errors are not shown",
                self.file, self.omitted
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_place_line_mark_and_hint() {
        let source = b"name: x\nresources:\n  gpuz: 4\n";
        let fault = Diagnostic {
            position: Position { line: 3, column: 3 },
            width: 4,
            path: "resources.gpuz".to_owned(),
            refusal: Refusal::new("unknown key").with_hint("did you mean `gpus`?"),
        };
        let shown = Diagnostics::new("job.yaml", source, vec![fault], &BTreeSet::new());
        assert_eq!(
            shown.to_string(),
            "job.yaml:3:3: resources.gpuz: unknown key\n  |\n3 |   gpuz: 4\n  |   ^^^^\n\
             hint: did you mean `gpus`?"
        );
    }

    #[test]
    fn i12_hidden_lines_and_control_characters_are_not_shown() {
        let source = b"a: \x1b[31m\nsecret: 1\n";
        let at = |line| Diagnostic::at(Position { line, column: 4 }, "wrong");
        let shown =
            Diagnostics::new("j", source, vec![at(1), at(2)], &BTreeSet::from([2])).to_string();
        assert!(
            !shown.contains('\x1b') && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn long_lines_and_many_faults_are_cut() {
        let source = vec![b'x'; 500_000];
        let faults = (1..=300)
            .map(|n| {
                Diagnostic::at(
                    Position {
                        line: 1,
                        column: n * 1000,
                    },
                    "wrong",
                )
            })
            .collect();
        let shown = Diagnostics::new("j", &source, faults, &BTreeSet::new());
        assert_eq!(shown.count(), 300);
        let text = shown.to_string();
        assert!(text.len() < 50_000 && text.ends_with("200 more errors are not shown"));
    }
}
