//! JSON as Python's `json` writes it, which is more than JSON: `NaN`, `Infinity`, and halves of
//! surrogate pairs, which stand for bytes of a file name or argument that are no text.

use serde_json::Value;

/// Reads it. What JSON has not becomes null and `U+FFFD`.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes)
        .or_else(|error| serde_json::from_slice(&plain(bytes)).map_err(|_second| error))
}

/// The same text with the words and halves that JSON has not replaced.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut in_text = false;
    while let Some(&byte) = rest.first() {
        let (length, instead) = match byte {
            b'"' => {
                in_text = !in_text;
                (1, None)
            }
            b'\\' if in_text => escape(rest),
            _ if in_text => (1, None),
            _ => word(rest),
        };
        let (own, next) = rest.split_at(length.min(rest.len()));
        plain.extend_from_slice(instead.unwrap_or(own));
        rest = next;
    }
    plain
}

/// How long the word at the beginning is that stands for a number which JSON has not, and what stands for it
/// instead; one byte of anything else.
fn word(rest: &[u8]) -> (usize, Option<&'static [u8]>) {
    let words = ["-Infinity", "Infinity", "NaN"];
    let found = words.iter().find(|word| rest.starts_with(word.as_bytes()));
    found.map_or((1, None), |word| (word.len(), Some(b"null")))
}

/// The same of an escape in a text.
fn escape(rest: &[u8]) -> (usize, Option<&'static [u8]>) {
    match unit(rest) {
        Some(0xD800..=0xDBFF) => match rest.get(6..).and_then(unit) {
            Some(0xDC00..=0xDFFF) => (12, None),
            _ => (6, Some(b"\\ufffd")),
        },
        Some(0xDC00..=0xDFFF) => (6, Some(b"\\ufffd")),
        Some(_) => (6, None),
        None => (2, None),
    }
}

/// The number in `\uXXXX`.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_python_writes_is_read() {
        let written = br#"{"a": NaN, "b": [-Infinity, Infinity], "NaN": "NaN \" \ud83d\ude00 \ud800 \udcff\u00e9"}"#;
        let read = json!({
            "a": null, "b": [null, null], "NaN": "NaN \" \u{1f600} \u{fffd} \u{fffd}\u{e9}"
        });
        assert_eq!(parse(written).unwrap(), read);
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in [
            "",
            "NaNcy",
            r#"{"a": "\ud8"#,
            r#""\"#,
            r#"{"a" NaN}"#,
            r#""\u+123""#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
