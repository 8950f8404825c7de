//! The one place that writes to standard output and standard error.
//!
//! Data goes to standard output, everything else to standard error. A standard output that its reader
//! closed (`herd ls | head -1`) ends the data without a word: the reader has what it wanted. Whoever
//! follows something asks [`Printer::is_closed`] and stops.

pub(crate) mod table;
pub(crate) mod yaml;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use serde::Serialize;

use crate::cli::{Format, When};
use crate::error::ExpectedError;
use table::{Column, Table};

/// What a list is made of.
pub(crate) trait Row {
    /// The columns.
    const COLUMNS: &'static [Column];
    /// Cells in the order of the columns.
    fn cells(&self) -> Vec<String>;
    /// What `-o id` prints.
    fn name(&self) -> String;
}

/// Standard output and standard error with what is known about them.
pub(crate) struct Printer {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    out_color: bool,
    err_color: bool,
    out_width: Option<usize>,
    closed: bool,
    failure: Option<io::Error>,
}

/// How something is shown to people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Whether to colour.
    pub(crate) color: bool,
    /// Columns of the terminal that it is for; without one, and in the wide format, nothing is
    /// shortened.
    pub(crate) width: Option<usize>,
    /// Whether to show all there is.
    pub(crate) wide: bool,
}

/// Columns of the terminal that a stream is, if it is one and says how many it has.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer")
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Printer {
    /// The process's own streams.
    pub(crate) fn standard(color: When) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let decide = |terminal: bool| match color {
            When::Auto => terminal && !plain,
            When::Always => true,
            When::Never => false,
        };
        let (out, err) = (io::stdout(), io::stderr());
        let (out_color, err_color) = (decide(out.is_terminal()), decide(err.is_terminal()));
        let out_width = columns(&out);
        Self {
            out_color,
            err_color,
            out_width,
            ..Self::over(
                Box::new(BufWriter::with_capacity(1 << 16, out)),
                Box::new(err),
            )
        }
    }

    /// Any two streams, uncoloured.
    pub(crate) fn over(out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        Self {
            out,
            err,
            out_color: false,
            err_color: false,
            out_width: None,
            closed: false,
            failure: None,
        }
    }

    fn look(&self, format: Format) -> Look {
        let wide = format == Format::Wide;
        Look {
            color: self.out_color,
            width: self.out_width.filter(|_| !wide),
            wide,
        }
    }

    /// Whether data is coloured.
    pub(crate) fn out_color(&self) -> bool {
        self.out_color
    }

    /// Whether messages are coloured.
    pub(crate) fn err_color(&self) -> bool {
        self.err_color
    }

    /// Whether nobody reads standard output any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes data as it is.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        if let Err(error) = self.out.write_all(bytes) {
            self.lose(error);
        }
    }

    /// Writes one line of data.
    pub(crate) fn line(&mut self, text: &str) {
        self.data(text.as_bytes());
        self.data(b"\n");
    }

    /// Hands buffered data over; followers call it when they are about to wait.
    pub(crate) fn flush(&mut self) {
        if self.closed {
            return;
        }
        if let Err(error) = self.out.flush() {
            self.lose(error);
        }
    }

    /// Ends the output. Lost data is an error, a reader that left is not.
    pub(crate) fn finish(&mut self) -> Result<(), ExpectedError> {
        self.flush();
        self.failure
            .take()
            .map_or(Ok(()), |source| Err(ExpectedError::Stdout { source }))
    }

    fn lose(&mut self, error: io::Error) {
        self.closed = true;
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.failure = Some(error);
        }
    }

    /// Says something on standard error that needs no attention.
    pub(crate) fn note(&mut self, text: &str) {
        self.message("", "herd:", text);
    }

    /// Says something on standard error that a person should know.
    pub(crate) fn warn(&mut self, text: &str) {
        self.message("\x1b[1;33m", "warning:", text);
    }

    /// Writes a whole report to standard error.
    pub(crate) fn report(&mut self, text: &str) {
        // Data written so far comes before what is said about it.
        self.flush();
        // A closed standard error leaves nobody to tell.
        drop(self.err.write_all(text.as_bytes()));
    }

    fn message(&mut self, color: &str, label: &str, text: &str) {
        let line = if self.err_color && !color.is_empty() {
            format!("{color}{label}\x1b[0m {text}\n")
        } else {
            format!("{label} {text}\n")
        };
        self.report(&line);
    }

    /// Prints a list in any format.
    pub(crate) fn list<T: Serialize + Row>(
        &mut self,
        items: &[T],
        format: Format,
    ) -> Result<(), ExpectedError> {
        match format {
            Format::Table | Format::Wide => {
                let look = self.look(format);
                let mut table = Table::new(T::COLUMNS, look.wide);
                for item in items {
                    table.row(item.cells());
                }
                self.data(table.render(look).as_bytes());
            }
            Format::Id => {
                for item in items {
                    self.line(&item.name());
                }
            }
            Format::Json => self.json(&items)?,
            Format::Yaml => self.yaml(&items)?,
        }
        Ok(())
    }

    /// Prints one thing; `text` makes the form for people.
    pub(crate) fn one<T: Serialize>(
        &mut self,
        item: &T,
        name: &str,
        format: Format,
        text: impl FnOnce(Look) -> String,
    ) -> Result<(), ExpectedError> {
        match format {
            Format::Table | Format::Wide => {
                let text = text(self.look(format));
                self.data(text.as_bytes());
            }
            Format::Id => self.line(name),
            Format::Json => self.json(item)?,
            Format::Yaml => self.yaml(item)?,
        }
        Ok(())
    }

    /// Prints indented JSON.
    pub(crate) fn json<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), ExpectedError> {
        let text = serde_json::to_string_pretty(item)
            .map_err(|error| ExpectedError::failed("write JSON", error))?;
        self.line(&text);
        Ok(())
    }

    fn yaml<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), ExpectedError> {
        let value = serde_json::to_value(item)
            .map_err(|error| ExpectedError::failed("write YAML", error))?;
        self.data(yaml::render(&value).as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Fails(io::ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Serialize)]
    struct Thing {
        id: u32,
        colour: &'static str,
    }

    impl Row for Thing {
        const COLUMNS: &'static [Column] = &[Column::new("ID"), Column::wide("COLOUR")];
        fn cells(&self) -> Vec<String> {
            vec![self.id.to_string(), self.colour.to_owned()]
        }
        fn name(&self) -> String {
            self.id.to_string()
        }
    }

    fn printed(format: Format) -> String {
        let out = Shared::default();
        let mut printer = Printer::over(Box::new(out.clone()), Box::new(Shared::default()));
        let things = [
            Thing {
                id: 7,
                colour: "red",
            },
            Thing {
                id: 12,
                colour: "blue",
            },
        ];
        printer.list(&things, format).unwrap();
        printer.finish().unwrap();
        out.text()
    }

    #[test]
    fn one_list_in_every_format() {
        assert_eq!(printed(Format::Table), "ID\n7\n12\n");
        assert_eq!(printed(Format::Wide), "ID  COLOUR\n7   red\n12  blue\n");
        assert_eq!(printed(Format::Id), "7\n12\n");
        assert_eq!(
            printed(Format::Yaml),
            "- colour: red\n  id: 7\n- colour: blue\n  id: 12\n"
        );
        let json: serde_json::Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        assert_eq!(json[1]["colour"], "blue");
    }

    #[test]
    fn a_closed_standard_output_ends_the_data_without_a_word() {
        let err = Shared::default();
        let out = Fails(io::ErrorKind::BrokenPipe);
        let mut printer = Printer::over(Box::new(out), Box::new(err.clone()));
        for _ in 0..100 {
            printer.line("text");
        }
        assert!(printer.is_closed());
        printer.finish().unwrap();
        assert_eq!(err.text(), "");
    }

    #[test]
    fn a_full_disk_behind_standard_output_is_an_error() {
        let out = Fails(io::ErrorKind::StorageFull);
        let mut printer = Printer::over(Box::new(out), Box::new(Shared::default()));
        printer.line("text");
        assert_eq!(printer.finish().unwrap_err().exit_code(), 125);
    }

    #[test]
    fn a_closed_standard_error_harms_nothing() {
        let out = Shared::default();
        let err = Fails(io::ErrorKind::BrokenPipe);
        let mut printer = Printer::over(Box::new(out.clone()), Box::new(err));
        printer.warn("something");
        printer.line("data");
        printer.finish().unwrap();
        assert_eq!(out.text(), "data\n");
    }
}
