//! Sizes of memory and disk: `32GiB`, `512M`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{UnitError, reject_common, scale, split_while};

const SIZE_FORM: &str = "a size like `32GiB` or `512M`";
const SIZE_UNITS: &str = "B, K, KB, KiB and likewise M, G, T, P";

/// An amount of memory or disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// In a few digits, for people: `31.3GiB`. [`Display`](fmt::Display) loses nothing.
    pub fn approximate(self) -> String {
        const MIB: u64 = 1 << 20;
        let (size, unit) = if self.0 >= 1024 * MIB {
            (1024 * MIB, "GiB")
        } else {
            (MIB, "MiB")
        };
        let tenths = u128::from(self.0) * 10 / u128::from(size);
        match (tenths / 10, tenths % 10) {
            (whole, 0) => format!("{whole}{unit}"),
            (whole, tenth) => format!("{whole}.{tenth}{unit}"),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        reject_common(text)?;
        let (number, unit) = split_while(text, |c| c.is_ascii_digit() || c == '.');
        let malformed = UnitError::Malformed {
            expected: SIZE_FORM,
        };
        if number.is_empty() {
            return Err(malformed);
        }
        if unit.trim().is_empty() {
            return Err(UnitError::NoSizeUnit(number.to_owned()));
        }
        let lower = unit.trim().to_ascii_lowercase();
        let mut letters = lower.chars();
        let power = match letters.next() {
            Some('b') => 0,
            Some('k') => 1,
            Some('m') => 2,
            Some('g') => 3,
            Some('t') => 4,
            Some('p') => 5,
            None | Some(_) => 6,
        };
        let base: u64 = match letters.as_str() {
            "" | "i" | "ib" => 1024,
            "b" => 1000,
            _ => 0,
        };
        if power == 6 || base == 0 || (power == 0 && lower.len() > 1) {
            let unit = unit.trim().to_owned();
            return Err(UnitError::UnknownUnit {
                unit,
                known: SIZE_UNITS,
            });
        }
        let (whole, exact) = scale(number, base.pow(power)).ok_or(malformed)??;
        if !exact && power == 0 {
            return Err(UnitError::Malformed {
                expected: SIZE_FORM,
            });
        }
        Ok(Self(whole))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 10] = [
            ("PiB", 1 << 50),
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("PB", 1_000_000_000_000_000),
            ("TB", 1_000_000_000_000),
            ("GB", 1_000_000_000),
            ("MB", 1_000_000),
            ("KB", 1000),
        ];
        // The shortest number that loses nothing; the binary unit where both are as short.
        let best = UNITS
            .iter()
            .filter(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size))
            .min_by_key(|(_, size)| self.0 / size);
        match best {
            Some((unit, size)) => f.pad(&format!("{}{unit}", self.0 / size)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}
