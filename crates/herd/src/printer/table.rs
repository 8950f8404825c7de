//! Columns for people: aligned by what they hold, states in colour.

/// Rows under heads.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    shown: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns; those marked are shown only when `wide`.
    pub(crate) fn new(columns: &[(&'static str, bool)], wide: bool) -> Self {
        Self {
            heads: columns.iter().map(|(head, _)| *head).collect(),
            shown: columns
                .iter()
                .map(|(_, only_wide)| wide || !only_wide)
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; control characters are taken out.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.into_iter().map(|cell| one_line(&cell)).collect());
    }

    /// The table as text, without spaces at the ends of lines.
    pub(crate) fn render(&self, color: bool) -> String {
        let columns: Vec<usize> = (0..self.heads.len()).filter(|&i| self.shown[i]).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(self.heads[column].len())
        };
        let widths: Vec<usize> = columns.iter().map(|&column| width(column)).collect();
        let mut text = String::new();
        let heads: Vec<&str> = columns.iter().map(|&column| self.heads[column]).collect();
        push_line(
            &mut text,
            &heads,
            &widths,
            if color { Paint::Head } else { Paint::Plain },
        );
        for row in &self.rows {
            let cells: Vec<&str> = columns
                .iter()
                .map(|&column| row.get(column).map_or("", String::as_str))
                .collect();
            push_line(
                &mut text,
                &cells,
                &widths,
                if color { Paint::States } else { Paint::Plain },
            );
        }
        text
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Paint {
    Plain,
    Head,
    States,
}

fn push_line(text: &mut String, cells: &[&str], widths: &[usize], paint: Paint) {
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
        let mut table = Table::new(&[("ID", false), ("NAME", false), ("X", true)], false);
        table.row(vec!["1".into(), "größe".into(), "hidden".into()]);
        table.row(vec!["1234".into(), String::new(), "hidden".into()]);
        assert_eq!(table.render(false), "ID    NAME\n1     größe\n1234\n");
    }

    #[test]
    fn a_newline_in_a_cell_cannot_forge_a_row() {
        let mut table = Table::new(&[("NAME", false)], false);
        table.row(vec!["a\nSUCCEEDED\x1b[2J".into()]);
        assert_eq!(table.render(false).lines().count(), 2);
        assert!(!table.render(false).contains('\x1b'));
    }

    #[test]
    fn states_are_coloured_only_on_request() {
        let mut table = Table::new(&[("STATE", false)], false);
        table.row(vec!["FAILED".into()]);
        assert!(table.render(true).contains("\x1b[31mFAILED\x1b[0m"));
        assert!(!table.render(false).contains('\x1b'));
    }
}
