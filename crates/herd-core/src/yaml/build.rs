//! Builds the tree from the parser's events, without recursion, within the limits.

use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{Event, ScalarStyle, Span, StructureStyle, Tag};

use super::node::{count, position};
use super::{Document, Entry, MAX_DEPTH, MAX_NODES, MAX_TEXT, Node, Scalar, Value};
use crate::diagnostic::{Diagnostic, Position};
use crate::text::quoted;

/// A collection that is still open.
struct Frame {
    position: Position,
    anchor: usize,
    kind: FrameKind,
    flow: bool,
    nodes_before: usize,
    text_before: usize,
}

enum FrameKind {
    Sequence(Vec<Node>),
    Mapping {
        entries: Vec<Entry>,
        keys: BTreeSet<String>,
        key: Option<Key>,
    },
}

struct Key {
    text: String,
    position: Position,
    width: u32,
    duplicate: bool,
}

/// A finished value that an alias can repeat, with its cost.
struct Anchored {
    node: Node,
    nodes: usize,
    text: usize,
}

pub(super) struct Builder<'s> {
    source: &'s str,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Anchored>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    text: usize,
    faults: Vec<Diagnostic>,
}

impl<'s> Builder<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            source,
            stack: Vec::new(),
            anchors: BTreeMap::new(),
            root: None,
            documents: 0,
            nodes: 0,
            text: 0,
            faults: Vec::new(),
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Diagnostic> {
        let at = position(&span.start);
        if matches!(
            event,
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..)
        ) {
            self.refuse_tab(span)?;
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Diagnostic::at(at, "a second document starts here")
                        .with_hint("one file describes one job"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = text_tag(tag.as_deref(), at)?;
                let plain = style == ScalarStyle::Plain && !is_text;
                let scalar = Scalar {
                    text: text.into_owned(),
                    plain,
                };
                self.charge(1, scalar.text.len(), at)?;
                let node = spanned(span, Value::Scalar(scalar));
                let text = node.scalar().map_or(0, |scalar| scalar.text.len());
                self.remember(anchor, &node, 1, text)?;
                self.place(node)?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                text_tag(tag.as_deref(), at)?;
                self.open(at, anchor, style, FrameKind::Sequence(Vec::new()))?;
            }
            Event::MappingStart(style, anchor, tag) => {
                text_tag(tag.as_deref(), at)?;
                let kind = FrameKind::Mapping {
                    entries: Vec::new(),
                    keys: BTreeSet::new(),
                    key: None,
                };
                self.open(at, anchor, style, kind)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            Event::Alias(id) => {
                let Some(anchored) = self.anchors.get(&id) else {
                    return Err(Diagnostic::at(
                        at,
                        "the alias refers to a value that contains it",
                    ));
                };
                let mut node = anchored.node.clone();
                let (nodes, text) = (anchored.nodes, anchored.text);
                node.position = at;
                self.charge(nodes, text, at)?;
                self.place(node)?;
            }
            // Comments and the like say nothing about the tree.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Document, Diagnostic> {
        match self.root {
            Some(root) if !root.is_null() => Ok(Document {
                root,
                faults: self.faults,
            }),
            Some(_) | None => Err(Diagnostic::at(Position::START, "the file is empty")),
        }
    }

    fn charge(&mut self, nodes: usize, text: usize, at: Position) -> Result<(), Diagnostic> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.text = self.text.saturating_add(text);
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values after aliases are expanded");
            return Err(Diagnostic::at(at, message));
        }
        if self.text > MAX_TEXT {
            return Err(Diagnostic::at(
                at,
                "too much text after aliases are expanded",
            ));
        }
        Ok(())
    }

    /// The parser lets some tabs pass as indentation; inside brackets they mean nothing.
    fn refuse_tab(&self, span: &Span) -> Result<(), Diagnostic> {
        let Some(offset) = span.start.byte_offset() else {
            return Ok(());
        };
        if self.stack.last().is_some_and(|frame| frame.flow) {
            return Ok(());
        }
        let before = self.source.get(..offset).unwrap_or("");
        let line = before.rsplit('\n').next().unwrap_or("");
        match line.find(|c| c != ' ') {
            Some(at) if line[at..].starts_with('\t') => {
                let position = Position {
                    line: position(&span.start).line,
                    column: count(at + 1),
                };
                Err(Diagnostic::at(position, "a tab cannot indent").with_hint("indent with spaces"))
            }
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        at: Position,
        anchor: usize,
        style: StructureStyle,
        kind: FrameKind,
    ) -> Result<(), Diagnostic> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Diagnostic::at(at, "nested more than 64 deep"));
        }
        let (nodes_before, text_before) = (self.nodes, self.text);
        self.charge(1, 0, at)?;
        let flow = style == StructureStyle::Flow;
        self.stack.push(Frame {
            flow,
            position: at,
            anchor,
            kind,
            nodes_before,
            text_before,
        });
        Ok(())
    }

    fn close(&mut self, span: &Span) -> Result<(), Diagnostic> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        let value = match frame.kind {
            FrameKind::Sequence(items) => Value::Sequence(items),
            FrameKind::Mapping { entries, .. } => Value::Mapping(entries),
        };
        let end_line = count(span.end.line()).max(frame.position.line);
        let node = Node {
            position: frame.position,
            width: 1,
            end_line,
            value,
        };
        let (nodes, text) = (
            self.nodes - frame.nodes_before,
            self.text - frame.text_before,
        );
        self.remember(frame.anchor, &node, nodes, text)?;
        self.place(node)
    }

    fn remember(
        &mut self,
        anchor: usize,
        node: &Node,
        nodes: usize,
        text: usize,
    ) -> Result<(), Diagnostic> {
        if anchor == 0 {
            return Ok(());
        }
        // The copy that is held for aliases costs as much as one that stands in the tree.
        self.charge(nodes, text, node.position)?;
        self.anchors.insert(
            anchor,
            Anchored {
                node: node.clone(),
                nodes,
                text,
            },
        );
        Ok(())
    }

    /// Hands a finished value to the collection it stands in.
    fn place(&mut self, node: Node) -> Result<(), Diagnostic> {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut frame.kind {
            FrameKind::Sequence(items) => items.push(node),
            FrameKind::Mapping { entries, keys, key } => match key.take() {
                None => {
                    let Value::Scalar(scalar) = node.value else {
                        return Err(Diagnostic::at(node.position, "a key must be text"));
                    };
                    let duplicate = !keys.insert(scalar.text.clone());
                    if duplicate {
                        let message = format!("the key {} stands here twice", quoted(&scalar.text));
                        let mut fault = Diagnostic::at(node.position, message);
                        fault.width = node.width;
                        self.faults.push(fault);
                    }
                    let (position, width) = (node.position, node.width);
                    *key = Some(Key {
                        text: scalar.text,
                        position,
                        width,
                        duplicate,
                    });
                }
                Some(key) if key.duplicate => {}
                Some(Key {
                    text,
                    position,
                    width,
                    ..
                }) => {
                    entries.push(Entry {
                        key: text,
                        position,
                        width,
                        value: node,
                    });
                }
            },
        }
        Ok(())
    }
}

/// A node that ends where the span ends.
fn spanned(span: &Span, value: Value) -> Node {
    let one_line = span.start.line() == span.end.line();
    let width = if one_line {
        span.end.col().saturating_sub(span.start.col())
    } else {
        1
    };
    Node {
        position: position(&span.start),
        width: count(width.max(1)),
        end_line: count(span.end.line().max(1)),
        value,
    }
}

/// Whether the tag says "text"; any other tag is refused.
fn text_tag(tag: Option<&Tag>, at: Position) -> Result<bool, Diagnostic> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema_tag("str") => Ok(true),
        Some(_) => Err(Diagnostic::at(at, "tags are not supported")
            .with_hint("quote the value where it should be text")),
    }
}
