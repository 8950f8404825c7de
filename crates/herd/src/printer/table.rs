//! Columns for people: aligned by what they hold, states in colour.

use super::Look;

/// Fewest characters that a shortened column keeps.
const LEAST: usize = 8;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    head: &'static str,
    wide: bool,
    text: bool,
}

impl Column {
    /// One that is always shown, whole.
    pub(crate) const fn new(head: &'static str) -> Self {
        Self {
            head,
            wide: false,
            text: false,
        }
    }

    /// One of free text, shortened where a line would not fit the terminal.
    pub(crate) const fn text(head: &'static str) -> Self {
        Self {
            text: true,
            ..Self::new(head)
        }
    }

    /// One that only the wide format shows.
    pub(crate) const fn wide(head: &'static str) -> Self {
        Self {
            wide: true,
            ..Self::new(head)
        }
    }
}

/// Rows under heads.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(usize, Column)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns, of which some are shown only when `wide`.
    pub(crate) fn new(columns: &[Column], wide: bool) -> Self {
        let columns = columns.iter().copied().enumerate();
        Self {
            columns: columns.filter(|(_, c)| wide || !c.wide).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; control characters are taken out.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.into_iter().map(|cell| one_line(&cell)).collect());
    }

    /// The table as text, without spaces at the ends of lines.
    pub(crate) fn render(&self, look: Look) -> String {
        let widths = self.widths(look.width);
        let (of_heads, of_cells) = if look.color {
            (Paint::Head, Paint::States)
        } else {
            (Paint::Plain, Paint::Plain)
        };
        let mut text = String::new();
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|(_, c)| c.head.to_owned())
            .collect();
        push_line(&mut text, &heads, &widths, of_heads);
        for row in &self.rows {
            let cells = self.columns.iter().zip(&widths).map(|((index, _), width)| {
                let cell = row.get(*index).map_or("", String::as_str);
                shortened(cell, *width)
            });
            push_line(&mut text, &cells.collect::<Vec<_>>(), &widths, of_cells);
        }
        text
    }

    /// What each column takes. Where a terminal has less room, the widest columns of free text give
    /// up theirs, as far as they still say something.
    fn widths(&self, most: Option<usize>) -> Vec<usize> {
        let widest = |(index, column): &(usize, Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(*index));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(column.head.len())
        };
        let mut widths: Vec<usize> = self.columns.iter().map(widest).collect();
        let Some(most) = most else { return widths };
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > most {
            let free = widths.iter_mut().zip(&self.columns);
            let free = free.filter(|(width, (_, column))| column.text && **width > LEAST);
            match free.map(|(width, _)| width).max() {
                Some(width) => *width -= 1,
                None => break,
            }
        }
        widths
    }
}

/// At most so many characters, the last of them `…` where something is left out.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Paint {
    Plain,
    Head,
    States,
}

fn push_line(text: &mut String, cells: &[String], widths: &[usize], paint: Paint) {
    let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
    for (index, cell) in cells.iter().enumerate().take(last + 1) {
        let color = match paint {
            Paint::Plain => "",
            Paint::Head => "\x1b[1m",
            Paint::States => state_color(cell),
        };
        text.push_str(color);
        text.push_str(cell);
        if !color.is_empty() {
            text.push_str("\x1b[0m");
        }
        if index < last {
            let padding = widths[index].saturating_sub(cell.chars().count()) + 2;
            text.extend(std::iter::repeat_n(' ', padding));
        }
    }
    text.push('\n');
}

/// The colour of a state's name, nothing for other text.
pub(crate) fn state_color(text: &str) -> &'static str {
    match text {
        "SUCCEEDED" | "ok" => "\x1b[32m",
        "FAILED" | "REJECTED" | "LOST" | "fail" => "\x1b[31m",
        "CANCELLED" | "CANCELLING" | "PREEMPTED" | "QUEUED" | "warn" => "\x1b[33m",
        "RUNNING" | "ACTIVE" | "STARTING" | "SETTING_UP" | "CHECKPOINTING" => "\x1b[36m",
        _ => "",
    }
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new(
            &[Column::new("ID"), Column::new("NAME"), Column::wide("X")],
            false,
        );
        table.row(vec!["1".into(), "größe".into(), "hidden".into()]);
        table.row(vec!["1234".into(), String::new(), "hidden".into()]);
        assert_eq!(
            table.render(Look::default()),
            "ID    NAME\n1     größe\n1234\n"
        );
    }

    #[test]
    fn a_newline_in_a_cell_cannot_forge_a_row() {
        let mut table = Table::new(&[Column::new("NAME")], false);
        table.row(vec!["a\nSUCCEEDED\x1b[2J".into()]);
        assert_eq!(table.render(Look::default()).lines().count(), 2);
        assert!(!table.render(Look::default()).contains('\x1b'));
    }

    #[test]
    fn states_are_coloured_only_on_request() {
        let mut table = Table::new(&[Column::new("STATE")], false);
        table.row(vec!["FAILED".into()]);
        let colored = Look {
            color: true,
            ..Look::default()
        };
        assert!(table.render(colored).contains("\x1b[31mFAILED\x1b[0m"));
        assert!(!table.render(Look::default()).contains('\x1b'));
    }

    #[test]
    fn the_widest_free_text_gives_way_to_the_terminal() {
        let columns = [Column::new("ID"), Column::text("NAME"), Column::text("WHY")];
        let mut table = Table::new(&columns, false);
        table.row(vec!["7".into(), "a".repeat(12), "é".repeat(40)]);
        let lines = |width| {
            let look = Look {
                width,
                ..Look::default()
            };
            let text = table.render(look);
            text.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert_eq!(lines(None), 2 + 2 + 12 + 2 + 40);
        assert_eq!((lines(Some(30)), lines(Some(24))), (30, 24));
        // What is no free text stays whole, and something of the rest does.
        assert_eq!(lines(Some(5)), 2 + 2 + 8 + 2 + 8);
        let look = Look {
            width: Some(40),
            ..Look::default()
        };
        let text = table.render(look);
        assert!(
            text.contains("aaaaaaaaaaaa  é") && text.contains("é…\n"),
            "{text}"
        );
    }
}
