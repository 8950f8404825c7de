//! The settings of the rendezvous: `--rdzv-conf key=value,…`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::{FlagError, Origin};
use super::reader::{Bad, refused};
use super::values;

/// Settings by name. Those that nobody asks for do no harm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdzvConf {
    entries: BTreeMap<String, String>,
}

impl RdzvConf {
    /// One setting as written.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(String::as_str)
    }

    /// All settings, each with its name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.entries.iter();
        entries.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// A setting in seconds.
    pub fn seconds(&self, key: &str) -> Result<Option<Duration>, FlagError> {
        self.value(key, values::seconds)
    }

    /// A setting that is a whole number.
    pub fn count(&self, key: &str) -> Result<Option<u32>, FlagError> {
        self.value(key, values::number)
    }

    /// A setting that is yes or no.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, FlagError> {
        self.value(key, |text| match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err(Bad::new("is neither yes nor no", "give true or false")),
        })
    }

    fn value<T>(
        &self,
        key: &str,
        understand: impl FnOnce(&str) -> Result<T, Bad>,
    ) -> Result<Option<T>, FlagError> {
        let understood = self.get(key).map(|text| {
            understand(text)
                .map_err(|bad| refused(Origin::Flag("rdzv-conf"), &format!("{key}={text}"), bad))
        });
        understood.transpose()
    }
}

/// `key=value,…`; of a key that comes twice the last counts.
pub(super) fn parse(text: &str) -> Result<RdzvConf, Bad> {
    let hint = "give settings like `join_timeout=60,is_host=true`";
    let mut conf = RdzvConf::default();
    if text.trim().is_empty() {
        return Ok(conf);
    }
    for entry in text.split(',') {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            return Err(Bad::new("has a setting without a name", hint));
        }
        if value.is_empty() {
            let key: String = key.chars().take(60).map(herd_core::text::visible).collect();
            return Err(Bad::new(format!("has no value for `{key}`"), hint));
        }
        conf.entries.insert(key.to_owned(), value.to_owned());
    }
    Ok(conf)
}
