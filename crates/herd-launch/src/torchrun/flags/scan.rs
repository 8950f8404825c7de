//! Splits a command line into flags with their values, the script, and what follows it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::error::{FlagError, shown};
use super::table::{FLAGS, Flag, Takes};

/// A command line, split.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// Flags as given, in order, with the values of those that take one.
    pub(super) given: Vec<(&'static Flag, Option<OsString>)>,
    /// The script.
    pub(super) script: Option<OsString>,
    /// All after the script, without a `--` right behind it.
    pub(super) args: Vec<OsString>,
}

impl Scanned {
    /// Whether the flag was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(flag, _)| flag.name == name)
    }

    /// The value given last.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self
            .given
            .iter()
            .rev()
            .find(|(flag, _)| flag.name == name)?;
        value.as_deref()
    }
}

/// Splits the arguments (without the program's name). A `--` before the script
/// is dropped, or else one right behind it.
pub(super) fn scan(arguments: &[OsString]) -> Result<Scanned, FlagError> {
    let mut scanned = Scanned::default();
    let mut rest = arguments.iter();
    let mut flags_ended = false;
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        if flags_ended || !is_flag(bytes) {
            scanned.script = Some(argument.clone());
            let mut args = rest.as_slice();
            // torchrun's parser takes a `--` right behind the script for its own. People write it so
            // that their script's flags cannot be meant for torchrun, and the script never sees it.
            if let Some((first, others)) = args.split_first()
                && first == "--"
                && !flags_ended
            {
                args = others;
            }
            scanned.args = args.to_vec();
            break;
        }
        if bytes == b"--" {
            flags_ended = true;
        } else if bytes.starts_with(b"--") {
            let (name, value) = split_value(bytes);
            let flag = long(name)?;
            let value = take(flag, value, &mut rest)?;
            scanned.given.push((flag, value));
        } else {
            cluster(argument, &mut rest, &mut scanned)?;
        }
    }
    Ok(scanned)
}

/// Whether an argument is read as a flag: as argparse does, not a lone dash, not a negative number,
/// nothing with a space in its name.
fn is_flag(argument: &[u8]) -> bool {
    argument.len() > 1
        && argument.starts_with(b"-")
        && !is_negative_number(argument)
        && !split_value(argument).0.contains(&b' ')
}

fn is_negative_number(argument: &[u8]) -> bool {
    let text = std::str::from_utf8(argument).unwrap_or_default();
    let number = text.strip_prefix('-').unwrap_or_default();
    let digits = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits && number.parse::<f64>().is_ok()
}

/// `--flag=value` at its first equals sign.
fn split_value(argument: &[u8]) -> (&[u8], Option<&[u8]>) {
    let at = memchr::memchr(b'=', argument);
    let split = at.and_then(|at| {
        let (name, value) = argument.split_at_checked(at)?;
        Some((name, value.get(1..)))
    });
    split.unwrap_or((argument, None))
}

/// The flag with this spelling, or whose only spelling begins so.
fn long(name: &[u8]) -> Result<&'static Flag, FlagError> {
    let name = String::from_utf8_lossy(name);
    let spelled = || {
        FLAGS
            .iter()
            .flat_map(|flag| flag.spellings().into_iter().map(move |text| (flag, text)))
    };
    if let Some((flag, _)) = spelled().find(|(_, text)| *text == name) {
        return Ok(flag);
    }
    // A prefix that torchrun understands means the same here, whatever flags we add.
    for torchrun in [true, false] {
        let matches: Vec<_> = spelled()
            .filter(|(flag, text)| flag.is_torchrun() == torchrun && text.starts_with(&*name))
            .collect();
        match matches.as_slice() {
            [] => {}
            [(flag, _)] => return Ok(flag),
            [..] => {
                let candidates = matches.into_iter().map(|(_, text)| text).collect();
                let flag = name.into_owned();
                return Err(FlagError::Ambiguous { flag, candidates });
            }
        }
    }
    Err(unknown(&name))
}

fn unknown(name: &str) -> FlagError {
    let plain = name.replace('_', "-");
    let known = FLAGS.iter().map(|flag| flag.name);
    let nearest = herd_core::text::nearest(plain.trim_start_matches('-'), known);
    FlagError::Unknown {
        flag: shown(OsStr::new(name)),
        nearest: nearest.map(|name| format!("--{name}")),
    }
}

/// `-m`, `-r3`, `-r 3`, `-r=3`, `-mr3`.
fn cluster(
    argument: &OsStr,
    rest: &mut std::slice::Iter<'_, OsString>,
    scanned: &mut Scanned,
) -> Result<(), FlagError> {
    let mut letters = argument.as_bytes().get(1..).unwrap_or_default();
    while let Some((letter, after)) = letters.split_first() {
        let flag = FLAGS
            .iter()
            .find(|flag| flag.short == Some(char::from(*letter)))
            .ok_or_else(|| unknown(&shown(argument)))?;
        if flag.takes == Takes::Nothing {
            if let Some(value) = after.strip_prefix(b"=") {
                return Err(unexpected(flag, value));
            }
            scanned.given.push((flag, None));
            letters = after;
        } else {
            let attached = after.strip_prefix(b"=").unwrap_or(after);
            let attached = (!after.is_empty()).then_some(attached);
            let value = take(flag, attached, rest)?;
            scanned.given.push((flag, value));
            return Ok(());
        }
    }
    Ok(())
}

/// The value of a flag: the one after the equals sign, or the next argument.
fn take(
    flag: &'static Flag,
    attached: Option<&[u8]>,
    rest: &mut std::slice::Iter<'_, OsString>,
) -> Result<Option<OsString>, FlagError> {
    let form = match (flag.takes, attached) {
        (Takes::Nothing, None) => return Ok(None),
        (Takes::Nothing, Some(value)) => return Err(unexpected(flag, value)),
        (Takes::Value(_) | Takes::OneOf(_), Some(value)) => {
            return Ok(Some(OsString::from_vec(value.to_vec())));
        }
        (Takes::Value(form), None) => form.to_owned(),
        (Takes::OneOf(words), None) => words.join("|"),
    };
    match rest.as_slice().first() {
        Some(next) if !is_flag(next.as_bytes()) => Ok(rest.next().cloned()),
        Some(_) | None => Err(FlagError::MissingValue {
            flag: flag.name,
            form,
        }),
    }
}

fn unexpected(flag: &'static Flag, value: &[u8]) -> FlagError {
    FlagError::UnexpectedValue {
        flag: flag.name,
        value: shown(OsStr::from_bytes(value)),
    }
}
