//! Files with `KEY=VALUE` lines, as `--env-file` takes them.
//!
//! Allowed: empty lines, `#` comments, `export `, values in single quotes (as they stand) and in
//! double quotes (with `\"`, `\\`, `\n`, `\t`, `\$`). Nothing is expanded and nothing is run. Quoted
//! values may span lines.

use std::collections::BTreeMap;

use crate::error::Fault;

/// Largest file that is read.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// The variables of a file, or every fault with its line.
pub(crate) fn parse(text: &str, file: &str) -> Result<BTreeMap<String, String>, Vec<Fault>> {
    let mut found = BTreeMap::new();
    let mut faults = Vec::new();
    let mut lines = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .lines()
        .enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let assignment = match trimmed.strip_prefix("export") {
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
            _ => trimmed,
        };
        // Values may be secret: a fault names the line and the key, never what is assigned.
        let Some((key, value)) = assignment.split_once('=') else {
            faults.push(Fault::new(format!(
                "{file}:{number}: not of the form KEY=VALUE"
            )));
            continue;
        };
        let key = key.trim_end();
        if !is_name(key) {
            faults.push(Fault::new(format!(
                "{file}:{number}: no name for a variable before `=`"
            )));
            continue;
        }
        let value = match value.trim_start().chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let start = value.trim_start()[1..].to_owned();
                quoted(start, quote, lines.by_ref().map(|(_, line)| line))
            }
            _ => Ok(unquoted(value)),
        };
        match value {
            Ok(value) if value.contains('\0') => {
                faults.push(Fault::new(format!(
                    "{file}:{number}: {key}: contains a NUL byte"
                )));
            }
            Ok(value) => {
                if found.insert(key.to_owned(), value).is_some() {
                    faults.push(Fault::new(format!("{file}:{number}: {key}: set twice")));
                }
            }
            Err(problem) => faults.push(Fault::new(format!("{file}:{number}: {key}: {problem}"))),
        }
    }
    if faults.is_empty() {
        Ok(found)
    } else {
        Err(faults)
    }
}

/// Whether a shell would take it as the name of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A bare value: a comment may follow after a space.
fn unquoted(value: &str) -> String {
    let value = value.trim_start();
    let end = value
        .find(" #")
        .or_else(|| value.find("\t#"))
        .unwrap_or(value.len());
    let end = if value.starts_with('#') { 0 } else { end };
    value[..end].trim_end().to_owned()
}

/// The text up to the closing quote, further lines taken as needed.
fn quoted<'a>(
    mut rest: String,
    quote: char,
    mut more: impl Iterator<Item = &'a str>,
) -> Result<String, &'static str> {
    let mut value = String::new();
    loop {
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                let after = rest[at + 1..].trim_start();
                if after.is_empty() || after.starts_with('#') {
                    return Ok(value);
                }
                return Err("text after the closing quote");
            }
            if quote == '"' && c == '\\' {
                match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, escaped @ ('"' | '\\' | '$' | '`'))) => value.push(escaped),
                    Some((_, other)) => value.extend(['\\', other]),
                    None => value.push('\\'),
                }
            } else {
                value.push(c);
            }
        }
        match more.next() {
            Some(line) => {
                value.push('\n');
                line.clone_into(&mut rest);
            }
            None => return Err("the quote is never closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> String {
        let found = parse(text, "f").unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_values().next().unwrap()
    }

    #[test]
    fn values_arrive_as_they_stand() {
        let cases = [
            ("A=b", "b"),
            ("export A=b", "b"),
            ("A = b c ", "b c"),
            ("A=", ""),
            ("A=b#c", "b#c"),
            ("A=b # c", "b"),
            ("A=#c", ""),
            ("A=x=y", "x=y"),
            ("A='$HOME # \\n \"'", "$HOME # \\n \""),
            ("A=\"a\\\"b\\\\c\\n\\t\\$d\\q\" # x", "a\"b\\c\n\t$d\\q"),
            ("A='a\nb'", "a\nb"),
            ("A=größe\r\n", "größe"),
            ("\u{feff}A=b", "b"),
            ("# c\n\nA=$B", "$B"),
        ];
        for (text, value) in cases {
            assert_eq!(one(text), value, "{text:?}");
        }
    }

    #[test]
    fn i12_every_fault_has_its_line_and_no_value() {
        let text = "A=1\nhunter2\n1B=hunter2\nA=hunter2\nC=\"hunter2\" hunter2\nD=\"hunter2";
        let faults = parse(text, "x.env").unwrap_err();
        let lines: Vec<_> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(
            lines,
            [
                "x.env:2: not of the form KEY=VALUE",
                "x.env:3: no name for a variable before `=`",
                "x.env:4: A: set twice",
                "x.env:5: C: text after the closing quote",
                "x.env:6: D: the quote is never closed",
            ]
        );
    }
}
