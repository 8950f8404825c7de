//! Quoting, of `#SBATCH` lines and of the shell.
//!
//! `sbatch` reads its lines with rules of its own (the same from 22.05 to 26.05, but that 22.05 ends
//! a word at a space after a backslash outside of quotes, so nothing is written that way): words
//! end at white space, `#` begins a comment even inside a word, `"` and `'` quote, and a backslash
//! takes the next character as it is, within either quote as well. Variables are not expanded.

use thiserror::Error;

/// A text that cannot stand in a batch script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("has a line break or control character, which no line of a batch script can carry")]
pub struct Unquotable;

/// The value of an `#SBATCH` option, so that `sbatch` reads exactly it.
pub fn directive(value: &str) -> Result<String, Unquotable> {
    if value.chars().any(char::is_control) {
        return Err(Unquotable);
    }
    if !value.is_empty() && value.bytes().all(is_plain) {
        return Ok(value.to_owned());
    }
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    Ok(quoted)
}

/// One word of a POSIX shell.
pub fn shell(word: &str) -> Result<String, Unquotable> {
    if word.chars().any(char::is_control) {
        return Err(Unquotable);
    }
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Ok(word.to_owned());
    }
    Ok(format!("'{}'", word.replace('\'', r"'\''")))
}

/// A path in which `%` is no pattern of `--output`.
pub fn literal_path(path: &str) -> String {
    path.replace('%', "%%")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._:=,@%+-".contains(&byte)
}

/// The words of one `#SBATCH` line, each with the column it starts at (characters, from 1).
pub fn words(line: &str) -> Result<Vec<(u32, String)>, UnclosedQuote> {
    let mut words = Vec::new();
    let mut word: Option<(u32, String)> = None;
    let mut quote: Option<(char, u32)> = None;
    let mut column: u32 = 0;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        column = column.saturating_add(1);
        let start = column;
        let mut push = |c: Option<char>| {
            let (_, text) = word.get_or_insert_with(|| (start, String::new()));
            text.extend(c);
        };
        match (c, quote) {
            ('\\', _) => {
                push(chars.next());
                column = column.saturating_add(1);
            }
            (c, Some((open, _))) if c == open => quote = None,
            (c, Some(_)) => push(Some(c)),
            ('"' | '\'', None) => {
                push(None);
                quote = Some((c, start));
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => push(Some(c)),
        }
    }
    if let Some((_, column)) = quote {
        return Err(UnclosedQuote { column });
    }
    words.extend(word);
    Ok(words)
}

/// A quote that is opened and not closed on its line; `sbatch` refuses the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("has a quote that is not closed on its line")]
pub struct UnclosedQuote {
    /// Where it is opened, characters from 1.
    pub column: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Vec<String> {
        words(line)
            .unwrap()
            .into_iter()
            .map(|(_, word)| word)
            .collect()
    }

    #[test]
    fn lines_are_read_as_sbatch_reads_them() {
        // Each of these was given to sbatch 22.05, 24.11 and 26.05, and read back with squeue.
        for (line, expected) in [
            ("--comment=plain", &["--comment=plain"][..]),
            (r#"--comment="two words""#, &["--comment=two words"]),
            ("--comment='two words'", &["--comment=two words"]),
            ("--comment=two words", &["--comment=two", "words"]),
            (r#"--comment="a\"b""#, &["--comment=a\"b"]),
            (r#"--comment="a\\b""#, &["--comment=a\\b"]),
            (r"--comment='a\b'", &["--comment=ab"]),
            (r#"--comment='a'"'"'b'"#, &["--comment=a'b"]),
            ("--comment=a#b", &["--comment=a"]),
            ("--comment='a # b'", &["--comment=a # b"]),
            ("--comment=''", &["--comment="]),
            (r#"--comment="$HOME `id`""#, &["--comment=$HOME `id`"]),
            (r"--comment=a\", &["--comment=a"]),
            ("", &[]),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
        assert_eq!(words("-J 'x\\"), Err(UnclosedQuote { column: 4 }));
        assert_eq!(
            words("  -n  4").unwrap(),
            [(3, "-n".to_owned()), (7, "4".to_owned())]
        );
    }

    #[test]
    fn control_characters_are_refused_everywhere() {
        for text in ["a\nb", "a\r", "\u{1b}[m", "a\0", "\t"] {
            assert_eq!(directive(text), Err(Unquotable), "{text:?}");
            assert_eq!(shell(text), Err(Unquotable), "{text:?}");
        }
    }

    #[test]
    fn shell_words_are_readable_and_inert() {
        assert_eq!(shell("/a/b-c").unwrap(), "/a/b-c");
        assert_eq!(shell("it's $x").unwrap(), r"'it'\''s $x'");
        assert_eq!(shell("").unwrap(), "''");
        assert_eq!(literal_path("/a%b"), "/a%%b");
    }

    proptest! {
        #[test]
        fn a_value_comes_back_as_one_word(value in r"[ -~éλ日]{0,40}") {
            let line = format!("--comment={}", directive(&value).unwrap());
            prop_assert_eq!(read(&line), vec![format!("--comment={value}")]);
        }

        #[test]
        fn no_line_panics(line in r#"[-='"\\# a\té]{0,30}"#) {
            drop(words(&line));
        }
    }
}
