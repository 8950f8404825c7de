//! The value of each flag: from the command line, else from its variable.

use std::ffi::OsString;

use super::error::{FlagError, Origin, shown};
use super::scan::Scanned;
use super::table::{FLAGS, Flag, Takes};

/// What is wrong with a value.
#[derive(Debug)]
pub(super) struct Bad {
    /// Follows the value in a sentence: `is no number`.
    pub(super) reason: String,
    /// What to give.
    pub(super) hint: String,
}

impl Bad {
    pub(super) fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: hint.into(),
        }
    }
}

/// Looks values up.
pub(super) struct Reader<'a> {
    pub(super) scanned: &'a Scanned,
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Reader<'_> {
    /// The value as given. An empty variable is none.
    pub(super) fn raw(&self, name: &str) -> Option<(Origin, OsString)> {
        let flag = find(name)?;
        if let Some(value) = self.scanned.value(name) {
            return Some((Origin::Flag(flag.name), value.to_owned()));
        }
        let variable = flag.variable()?;
        let value = (self.variable)(&variable).filter(|value| !value.is_empty())?;
        Some((Origin::Variable(variable), value))
    }

    /// The value as text, one of the words where the flag takes one of some.
    pub(super) fn text(&self, name: &str) -> Result<Option<(Origin, String)>, FlagError> {
        let Some((origin, value)) = self.raw(name) else {
            return Ok(None);
        };
        let text = value.into_string().map_err(|value| {
            refused(
                origin.clone(),
                &shown(&value),
                Bad::new("is not valid UTF-8", "write it in UTF-8"),
            )
        })?;
        if let Some(Takes::OneOf(words)) = find(name).map(|flag| flag.takes)
            && !words.contains(&text.as_str())
        {
            let nearest = herd_core::text::nearest(&text, words.iter().copied());
            let hint = nearest.map_or_else(
                || format!("give one of {}", words.join(", ")),
                |word| format!("did you mean `{word}`?"),
            );
            let bad = Bad::new(format!("is none of {}", words.join(", ")), hint);
            return Err(refused(origin, &text, bad));
        }
        Ok(Some((origin, text)))
    }

    /// The value, understood.
    pub(super) fn value<T>(
        &self,
        name: &str,
        understand: impl FnOnce(&str) -> Result<T, Bad>,
    ) -> Result<Option<T>, FlagError> {
        self.text(name)?
            .map(|(origin, text)| understand(&text).map_err(|bad| refused(origin, &text, bad)))
            .transpose()
    }

    /// Whether a switch is on.
    pub(super) fn switch(&self, name: &str) -> Result<bool, FlagError> {
        if self.scanned.has(name) {
            return Ok(true);
        }
        let on = self.value(name, |text| {
            text.trim()
                .parse::<i64>()
                .map(|number| number != 0)
                .map_err(|_error| {
                    Bad::new("is neither 0 nor 1", "1 switches it on, 0 leaves it off")
                })
        })?;
        Ok(on.unwrap_or(false))
    }

    /// Whether a switch or a value was given at all.
    pub(super) fn is_given(&self, flag: &Flag) -> bool {
        self.scanned.has(flag.name) || self.raw(flag.name).is_some()
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    let flag = FLAGS.iter().find(|flag| flag.name == name);
    debug_assert!(flag.is_some(), "`{name}` is not in the table");
    flag
}

/// The error for a value.
pub(super) fn refused(origin: Origin, value: &str, bad: Bad) -> FlagError {
    FlagError::Value {
        origin,
        value: shown(value.as_ref()),
        reason: bad.reason,
        hint: bad.hint,
    }
}
