//! The macros in worker arguments and in the prefix of shown lines: `${name}`, `$name`, and `$$`
//! for one dollar sign. A name that is not known stays as it is written.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// Replaces the named macros.
fn substitute(template: &[u8], values: &[(&str, &str)]) -> Vec<u8> {
    let mut result = Vec::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = memchr::memchr(b'$', rest) {
        let (before, from_dollar) = rest.split_at(at);
        result.extend_from_slice(before);
        let after = from_dollar.get(1..).unwrap_or_default();
        if let Some(after) = after.strip_prefix(b"$") {
            result.push(b'$');
            rest = after;
            continue;
        }
        let known = macro_name(after).and_then(|(name, after)| {
            let (_, value) = values.iter().find(|(known, _)| known.as_bytes() == name)?;
            Some((value, after))
        });
        if let Some((value, after)) = known {
            result.extend_from_slice(value.as_bytes());
            rest = after;
        } else {
            result.push(b'$');
            rest = after;
        }
    }
    result.extend_from_slice(rest);
    result
}

/// The name at the start of what follows a dollar sign, and what follows the name.
fn macro_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let braced = text.strip_prefix(b"{");
    let text = braced.unwrap_or(text);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let length = text.iter().take_while(|byte| is_part(byte)).count();
    let (name, after) = text.split_at_checked(length)?;
    if name.first().is_none_or(u8::is_ascii_digit) {
        return None;
    }
    match braced {
        Some(_) => Some((name, after.strip_prefix(b"}")?)),
        None => Some((name, after)),
    }
}

/// A worker's argument with its `${local_rank}` replaced. The program itself is not to be given to
/// this.
pub fn argument(argument: &OsStr, local_rank: u32) -> OsString {
    let local_rank = local_rank.to_string();
    OsString::from_vec(substitute(
        argument.as_bytes(),
        &[("local_rank", &local_rank)],
    ))
}

/// What the prefix of a worker's lines may name.
#[derive(Clone, Copy, Debug)]
pub struct PrefixValues<'a> {
    /// Its role.
    pub role_name: &'a str,
    /// Its global rank.
    pub rank: u32,
    /// Its local rank.
    pub local_rank: u32,
    /// Number of its node.
    pub node_rank: u32,
    /// Short name of its machine, without a domain.
    pub hostname: &'a str,
}

/// The prefix of a worker's lines from a template with `${role_name}`, `${rank}`, `${local_rank}`,
/// `${node_rank}` and `${hostname}`.
pub fn prefix(template: &str, values: &PrefixValues<'_>) -> String {
    let rank = values.rank.to_string();
    let local_rank = values.local_rank.to_string();
    let node_rank = values.node_rank.to_string();
    let bytes = substitute(
        template.as_bytes(),
        &[
            ("role_name", values.role_name),
            ("rank", &rank),
            ("local_rank", &local_rank),
            ("node_rank", &node_rank),
            ("hostname", values.hostname),
        ],
    );
    // Only whole texts were put together.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// torchrun's prefix where no template is given: `[default0]:`, without a space after it.
pub fn default_prefix(role_name: &str, local_rank: u32) -> String {
    format!("[{role_name}{local_rank}]:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> OsString {
        argument(OsStr::new(text), 7)
    }

    #[test]
    fn row42_argument_macros() {
        for (text, expected) in [
            ("${local_rank}", "7"),
            ("$local_rank", "7"),
            ("--dev=cuda:${local_rank},x", "--dev=cuda:7,x"),
            ("$$", "$"),
            ("$$x", "$x"),
            ("$$local_rank", "$local_rank"),
            ("$$$local_rank", "$7"),
            ("${x}", "${x}"),
            ("$local_rankx", "$local_rankx"),
            ("${local_rank", "${local_rank"),
            ("${local_rank x}", "${local_rank x}"),
            ("${}", "${}"),
            ("$5", "$5"),
            ("$Local_Rank", "$Local_Rank"),
            ("a$", "a$"),
            ("${${local_rank}}", "${7}"),
            ("$local_rank$local_rank", "77"),
            ("$local_rank.log", "7.log"),
            ("${rank}", "${rank}"),
            ("", ""),
        ] {
            assert_eq!(replaced(text), expected, "{text}");
        }
    }

    #[test]
    fn row42_bytes_that_are_no_text_stay() {
        let odd = OsStr::from_bytes(b"\xff$local_rank\xfe");
        assert_eq!(argument(odd, 7).as_bytes(), b"\xff7\xfe");
    }

    #[test]
    fn row43_prefix_template() {
        let values = PrefixValues {
            role_name: "trainer",
            rank: 5,
            local_rank: 1,
            node_rank: 2,
            hostname: "n1",
        };
        assert_eq!(
            prefix("[${role_name}|$rank|${local_rank}|${hostname}]:", &values),
            "[trainer|5|1|n1]:"
        );
        assert_eq!(
            prefix("${node_rank}/$x $$ ${y} é:", &values),
            "2/$x $ ${y} é:"
        );
        assert_eq!(default_prefix("default", 0), "[default0]:");
    }
}
