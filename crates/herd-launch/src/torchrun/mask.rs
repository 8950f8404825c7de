//! Which streams of which local ranks go to files, or are shown: torchrun's `Std` and its maps
//! (`--redirects`, `--tee`).

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::str::FromStr;

/// Standard streams of one worker. The numbers are torchrun's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Std {
    /// Neither.
    #[default]
    None = 0,
    /// Standard output.
    Out = 1,
    /// Standard error.
    Err = 2,
    /// Both.
    All = 3,
}

impl Std {
    /// Whether standard output is among them.
    pub fn has_out(self) -> bool {
        matches!(self, Self::Out | Self::All)
    }

    /// Whether standard error is among them.
    pub fn has_err(self) -> bool {
        matches!(self, Self::Err | Self::All)
    }

    fn from_digit(digit: &str) -> Option<Self> {
        match digit {
            "0" => Some(Self::None),
            "1" => Some(Self::Out),
            "2" => Some(Self::Err),
            "3" => Some(Self::All),
            _ => None,
        }
    }
}

impl BitOr for Std {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        match (
            self.has_out() || other.has_out(),
            self.has_err() || other.has_err(),
        ) {
            (false, false) => Self::None,
            (true, false) => Self::Out,
            (false, true) => Self::Err,
            (true, true) => Self::All,
        }
    }
}

/// The streams of every local rank: the same for all, or a map in which absent ranks have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StdMap {
    /// The same for all.
    Same(Std),
    /// By local rank.
    PerRank(BTreeMap<u32, Std>),
}

impl Default for StdMap {
    fn default() -> Self {
        Self::Same(Std::None)
    }
}

impl StdMap {
    /// The streams of this local rank.
    pub fn of(&self, local_rank: u32) -> Std {
        match self {
            Self::Same(std) => *std,
            Self::PerRank(map) => map.get(&local_rank).copied().unwrap_or_default(),
        }
    }

    /// The streams of the local ranks 0 to `count - 1`, in this order.
    pub fn to_map(&self, count: u32) -> Vec<Std> {
        (0..count).map(|local_rank| self.of(local_rank)).collect()
    }
}

/// A text that is neither one digit nor a list of `rank:digit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither 0 (none), 1 (stdout), 2 (stderr), 3 (both) nor a list `RANK:DIGIT,…` of these"
)]
pub struct InvalidStd(String);

impl FromStr for StdMap {
    type Err = InvalidStd;

    /// Unlike torchrun's, a rank may have several digits (D2).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidStd(text.chars().take(100).collect());
        if let Some(std) = Std::from_digit(text) {
            return Ok(Self::Same(std));
        }
        let mut map = BTreeMap::new();
        for entry in text.split(',') {
            let (rank, digit) = entry.split_once(':').ok_or_else(invalid)?;
            if !rank.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            let rank = rank.parse().map_err(|_error| invalid())?;
            map.insert(rank, Std::from_digit(digit).ok_or_else(invalid)?);
        }
        Ok(Self::PerRank(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> StdMap {
        text.parse().unwrap()
    }

    #[test]
    fn row06_good_inputs() {
        assert_eq!(parsed("0"), StdMap::Same(Std::None));
        assert_eq!(parsed("1"), StdMap::Same(Std::Out));
        assert_eq!(parsed("2"), StdMap::Same(Std::Err));
        assert_eq!(parsed("3"), StdMap::Same(Std::All));
        assert_eq!(
            parsed("0:1,1:2,3:3").to_map(4),
            [Std::Out, Std::Err, Std::None, Std::All]
        );
        assert_eq!(parsed("0:1,0:2").of(0), Std::Err);
        assert_eq!(parsed("3").to_map(2), [Std::All, Std::All]);
        assert!(parsed("3").to_map(0).is_empty());
    }

    #[test]
    fn row06_d2_ranks_have_any_number_of_digits() {
        assert_eq!(parsed("10:1,127:3").of(10), Std::Out);
        assert_eq!(parsed("10:1,127:3").of(127), Std::All);
        assert_eq!(parsed("10:1").of(1), Std::None);
    }

    #[test]
    fn row06_bad_inputs() {
        for text in [
            "",
            "4",
            "11",
            "-1",
            " 1",
            "0:1,",
            ",0:1",
            "0:4",
            "0:",
            ":1",
            "1,0:1",
            "0:1,3",
            "a:1",
            "0:1:2",
            "+1:1",
            "0:11",
            "99999999999:1",
            "0;1",
            "٣",
        ] {
            let error = text.parse::<StdMap>().unwrap_err();
            assert!(error.to_string().contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn row07_tee_adds_to_redirects() {
        assert_eq!(Std::Out | Std::Err, Std::All);
        assert_eq!(Std::None | Std::Err, Std::Err);
        assert_eq!(Std::None | Std::None, Std::None);
        assert!((Std::Out | Std::Out).has_out());
        assert!(!(Std::Out | Std::Out).has_err());
    }
}
