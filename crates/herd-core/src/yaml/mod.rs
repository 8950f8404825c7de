//! YAML (and so JSON) as a small tree that remembers where everything stood in the source.
//!
//! It bounds size, depth, node count and text after alias expansion, and refuses what makes a
//! file ambiguous: duplicate keys, several documents, tags. It knows nothing of jobs.

mod build;
mod node;

use granit_parser::{Event, Parser};

use crate::diagnostic::{Diagnostic, Position};
use build::Builder;
pub use node::{Entry, Node, Scalar, Value};

/// Largest source accepted, bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting accepted.
pub const MAX_DEPTH: usize = 64;
/// Nodes accepted after alias expansion.
pub const MAX_NODES: usize = 10_000;
/// Text accepted after alias expansion, bytes: aliases may not multiply a long text either.
pub const MAX_TEXT: usize = 2 * MAX_BYTES;

/// A document that could be read as a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The tree.
    pub root: Node,
    /// Faults that did not hinder reading the rest.
    pub faults: Vec<Diagnostic>,
}

/// Reads one document; the error is the one fault after which nothing more can be said.
pub fn parse(bytes: &[u8]) -> Result<Document, Diagnostic> {
    if bytes.len() > MAX_BYTES {
        return Err(Diagnostic::at(
            Position::START,
            format!("the file has {} bytes, more than 1 MiB", bytes.len()),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Diagnostic::at(
            position_of(bytes, error.valid_up_to()),
            "the file is not UTF-8",
        )
        .with_hint("save it as UTF-8 text")
    })?;
    if let Some(offset) = text.find('\0') {
        return Err(Diagnostic::at(
            position_of(bytes, offset),
            "the file contains a NUL byte",
        ));
    }
    let options = granit_parser::options! {
        emit_comments: false,
        disallow_directives: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder::new(text);
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax_fault(text, &error))?;
        if event == Event::StreamEnd {
            break;
        }
        builder.event(event, &span)?;
    }
    builder.finish()
}

/// The place of a byte offset.
fn position_of(bytes: &[u8], offset: usize) -> Position {
    let before = &bytes[..offset.min(bytes.len())];
    let line = before.split(|byte| *byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    Position {
        line: node::count(line),
        column: node::count(column),
    }
}

/// The parser's complaint in our words.
fn syntax_fault(text: &str, error: &granit_parser::ScanError) -> Diagnostic {
    use granit_parser::ErrorKind;
    let position = node::position(error.marker());
    let fault = |message: &str| Diagnostic::at(position, message);
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => fault("nested more than 64 deep"),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => {
            let mut fault = fault("a tab cannot indent").with_hint("indent with spaces");
            // The parser points behind the tab, or at the end of the line before it.
            let first = (position.line as usize).saturating_sub(1);
            let tab = text
                .lines()
                .enumerate()
                .skip(first)
                .take(2)
                .find_map(|(index, line)| {
                    Some((index + 1, line.chars().position(|c| c == '\t')? + 1))
                });
            if let Some((line, column)) = tab {
                fault.position = Position {
                    line: node::count(line),
                    column: node::count(column),
                };
            }
            fault
        }
        ErrorKind::MappingValueNotAllowed => {
            fault("not valid YAML: a second `: ` in one line").with_hint("quote the text around it")
        }
        ErrorKind::DirectiveDisallowed => fault("`%` directives are not supported"),
        ErrorKind::UnknownAnchor => fault("the alias names no anchor above it"),
        other => fault(&format!("not valid YAML: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &[u8]) -> (u32, u32, String) {
        let fault = match parse(text) {
            Err(fault) => fault,
            Ok(document) => document.faults.into_iter().next().expect("a fault"),
        };
        (
            fault.position.line,
            fault.position.column,
            fault.refusal.message,
        )
    }

    #[test]
    fn keeps_order_places_and_source_text() {
        let document = parse(b"b: 0x10\na: \"1\"\nl:\n  - yes\n  - {k: 1.0}\n").unwrap();
        let entries = document.root.mapping().unwrap();
        let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "l"]);
        let scalar = entries[0].value.scalar().unwrap();
        assert_eq!((scalar.text.as_str(), scalar.plain), ("0x10", true));
        assert!(!entries[1].value.scalar().unwrap().plain);
        let list = entries[2].value.sequence().unwrap();
        assert_eq!(list[0].position, Position { line: 4, column: 5 });
        let inner = list[1].mapping().unwrap();
        assert_eq!(inner[0].position, Position { line: 5, column: 6 });
        assert_eq!(inner[0].value.scalar().unwrap().text, "1.0");
    }

    #[test]
    fn refuses_what_is_no_single_document() {
        assert_eq!(refused(b"").2, "the file is empty");
        assert_eq!(refused(b"\n# nothing\n").2, "the file is empty");
        assert_eq!(refused(b"---\n").2, "the file is empty");
        assert_eq!(
            refused(b"a: 1\n---\nb: 2\n"),
            (2, 1, "a second document starts here".into())
        );
        assert_eq!(
            refused(b"a: \xff\n"),
            (1, 4, "the file is not UTF-8".into())
        );
        assert!(refused(&vec![b'a'; 10 << 20]).2.contains("more than 1 MiB"));
        assert_eq!(
            refused(b"a: 1\nb: \0\n"),
            (2, 4, "the file contains a NUL byte".into())
        );
        assert_eq!(
            refused(b"%YAML 1.1\n---\na: 1\n").2,
            "`%` directives are not supported"
        );
    }

    #[test]
    fn refuses_tabs_as_indentation() {
        for text in [
            &b"a:\n\tb: 1\n"[..],
            b"\ta: 1\n",
            b"a:\n  b: 1\n\tc: 2\n",
            b"a:\n\t- 1\n",
        ] {
            let (line, column, message) = refused(text);
            assert!(message.contains("tab"), "{message}");
            assert!(line <= 3);
            let at = text
                .split(|byte| *byte == b'\n')
                .nth(line as usize - 1)
                .unwrap();
            assert_eq!(at[column as usize - 1], b'\t');
        }
        // Inside brackets indentation means nothing, and JSON is often indented with tabs.
        assert!(parse(b"{\n\t\"a\": 1\n}\n").is_ok());
    }

    #[test]
    fn refuses_duplicate_keys_at_the_second_one() {
        assert_eq!(
            refused(b"a: 1\nb: 2\na: 3\n"),
            (3, 1, "the key `a` stands here twice".into())
        );
        assert_eq!(refused(b"{\"a\": 1, \"a\": 2}").0, 1);
    }

    #[test]
    fn refuses_bombs_and_depth() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..10 {
            let inner = format!("*a{},", level - 1).repeat(10);
            bomb.push_str(&format_args!("a{level}: &a{level} [{inner}]\n").to_string());
        }
        assert_eq!(
            refused(bomb.as_bytes()).2,
            "more than 10000 values after aliases are expanded"
        );
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a,".repeat(9));
        assert!(refused(long.as_bytes()).2.contains("too much text"));
        assert_eq!(
            refused(b"a: &a [*a]\n").2,
            "the alias refers to a value that contains it"
        );
        assert_eq!(refused(b"a: *b\n").2, "the alias names no anchor above it");
        assert_eq!(
            refused("[".repeat(100).as_bytes()).2,
            "nested more than 64 deep"
        );
        assert_eq!(
            refused("[".repeat(100_000).as_bytes()).2,
            "nested more than 64 deep"
        );
        let mixed = "- ".repeat(40) + &"[".repeat(40) + &"]".repeat(40);
        assert_eq!(refused(mixed.as_bytes()).2, "nested more than 64 deep");
        let many = "- 1\n".repeat(10_001);
        assert!(
            refused(many.as_bytes())
                .2
                .starts_with("more than 10000 values")
        );
    }

    #[test]
    fn refuses_tags_and_keys_that_are_no_text() {
        assert_eq!(
            refused(b"a: !!python/object:os.system x\n").2,
            "tags are not supported"
        );
        assert_eq!(refused(b"? [a]\n: 1\n").2, "a key must be text");
        assert!(
            !parse(b"a: !!str 1\n").unwrap().root.mapping().unwrap()[0]
                .value
                .is_null()
        );
    }
}
