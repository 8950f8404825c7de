//! What the launcher says while it runs, on standard error.

use std::io::Write as _;

/// Writes text that ends with a newline. A closed stderr is no reason to fail.
pub(super) fn print(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}

/// One line, or several where it has some, with who says it before the first.
pub(super) fn say(text: &str) {
    print(&format!("herd launch: {text}\n"));
}
