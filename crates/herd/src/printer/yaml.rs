//! Plain data as YAML for people and programs. It writes only; text that any YAML reader could take
//! for something else is quoted as in JSON, which YAML includes.

use serde_json::Value;

/// The value as a YAML document.
pub(crate) fn render(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Array(items) if !items.is_empty() => list(&mut text, items, 0),
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                entry(&mut text, key, value, 0);
            }
        }
        other => {
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
    text
}

/// One `key: value` at a depth, for documents whose keys have an order of their own.
pub(crate) fn entry(text: &mut String, key: &str, value: &Value, depth: usize) {
    indent(text, depth);
    text.push_str(&string(key));
    text.push(':');
    match value {
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            list(text, items, depth);
        }
        Value::Object(map) if !map.is_empty() => {
            text.push('\n');
            for (key, value) in map {
                entry(text, key, value, depth + 1);
            }
        }
        Value::String(lines) if is_block(lines) => block(text, lines, depth + 1),
        other => {
            text.push(' ');
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn list(text: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(text, depth);
        text.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => {
                let mut inner = String::new();
                for (key, value) in map {
                    entry(&mut inner, key, value, depth + 1);
                }
                // The first key stands on the line of the dash.
                text.push_str(inner.trim_start_matches(' '));
            }
            Value::Array(inner) if !inner.is_empty() => {
                text.push_str(&Value::Array(inner.clone()).to_string());
                text.push('\n');
            }
            other => {
                text.push_str(&scalar(other));
                text.push('\n');
            }
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Whether text reads best as a block: several lines, and nothing a block would change.
fn is_block(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.ends_with("\n\n")
        && text
            .chars()
            .all(|c| c == '\n' || c == '\t' || !c.is_control())
        && !text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'])
}

fn block(text: &mut String, lines: &str, depth: usize) {
    text.push_str(if lines.ends_with('\n') {
        " |\n"
    } else {
        " |-\n"
    });
    for line in lines.lines() {
        if !line.is_empty() {
            indent(text, depth);
            text.push_str(line);
        }
        text.push('\n');
    }
}

fn string(text: &str) -> String {
    let plain = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " _-./@%+=,".contains(c))
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain || is_amount(text) {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

/// `10s`, `4GiB`: digits and units, and nothing a reader could take for a number.
fn is_amount(text: &str) -> bool {
    text.starts_with(|c: char| ('1'..='9').contains(&c))
        && text.ends_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || b"smhdBKMGTPi".contains(&b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_data_is_indented() {
        let value = json!({"a": {"b": [1, {"c": "x", "d": []}]}, "e": "1", "f": null});
        assert_eq!(
            render(&value),
            "a:\n  b:\n  - 1\n  - c: x\n    d: []\ne: \"1\"\nf: null\n"
        );
    }

    #[test]
    fn text_that_means_something_to_yaml_is_quoted() {
        for text in [
            "",
            "no",
            "1e3",
            "a: b",
            "# x",
            "- x",
            "~",
            "x ",
            "\u{1b}[2J",
            "*a",
            "0x1f",
        ] {
            assert!(string(text).starts_with('"'), "{text:?}");
        }
        assert_eq!(
            (string("1h30m"), string("4GiB")),
            ("1h30m".into(), "4GiB".into())
        );
        assert_eq!(string("train.py --lr=0.1"), "train.py --lr=0.1");
    }

    #[test]
    fn scripts_read_as_blocks() {
        let value = json!({"run": "set -e\n\npython train.py\n"});
        assert_eq!(render(&value), "run: |\n  set -e\n\n  python train.py\n");
        assert_eq!(render(&json!({"run": "a\nb"})), "run: |-\n  a\n  b\n");
    }
}
