//! Slurm's version, and what came with which.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::Call;

/// `22.05.8`. Releases are compared by year and month; patches rarely matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Year of the release, without the century.
    pub year: u16,
    /// Month of the release.
    pub month: u16,
    /// Patch level; 0 for a release candidate.
    pub patch: u16,
}

/// The oldest release that is supported: `--overlap` and steps of their own came with it.
pub const OLDEST: Version = Version::of(20, 11);

/// The newest release that this crate was tried with.
pub const NEWEST: Version = Version::of(26, 5);

/// Asks for the version of the commands, which may differ from the controller's.
pub fn call() -> Call {
    Call::new("sbatch", ["--version"])
}

impl Version {
    /// The first patch of a release.
    pub const fn of(year: u16, month: u16) -> Self {
        Self {
            year,
            month,
            patch: 0,
        }
    }

    /// Reads what `sbatch --version` prints: `slurm 22.05.8`, `slurm-wlm 24.11.5` (Debian),
    /// `slurm 23.11.0-0rc1`. Lines before it, a site's greeting, are skipped.
    pub fn parse(text: &str) -> Option<Self> {
        text.lines()
            .filter(|line| line.trim_start().starts_with("slurm"))
            .flat_map(str::split_whitespace)
            .find_map(Self::number)
    }

    /// `22.05.8`, alone.
    pub fn number(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (year, month) = (parts.next()?, parts.next()?);
        // Years have two digits, which keeps library versions like `1.2.3` out.
        if year.len() != 2 || month.len() != 2 {
            return None;
        }
        let patch = parts.next().unwrap_or("0");
        let digits = patch.find(|c: char| !c.is_ascii_digit());
        let patch = &patch[..digits.unwrap_or(patch.len())];
        Some(Self {
            year: year.parse().ok()?,
            month: month.parse().ok()?,
            patch: patch.parse().ok()?,
        })
    }

    /// Whether this release has it.
    pub fn has(self, feature: Feature) -> bool {
        let since = feature.since();
        (self.year, self.month) >= (since.year, since.month)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}.{}", self.year, self.month, self.patch)
    }
}

/// What not every supported release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Steps that share what other steps hold: `srun --overlap`.
    Overlap,
    /// OCI bundles: `--container`.
    Container,
    /// `srun` no longer takes `--cpus-per-task` from the job; it has to be said again.
    CpusPerTaskNotInherited,
    /// `--prefer`.
    Prefer,
    /// `PreemptParameters=send_user_signal`; before, `SlurmctldParameters=preempt_send_user_signal`.
    SendUserSignalInPreemptParameters,
    /// `SLURM_TRES_PER_TASK`, which contradicts an explicit `--cpus-per-task` where it is inherited.
    TresPerTask,
}

impl Feature {
    /// The first release with it (release notes of Slurm).
    pub const fn since(self) -> Version {
        match self {
            Self::Overlap => Version::of(20, 11),
            Self::Container => Version::of(21, 8),
            Self::CpusPerTaskNotInherited | Self::Prefer => Version::of(22, 5),
            Self::SendUserSignalInPreemptParameters => Version::of(23, 2),
            Self::TresPerTask => Version::of(23, 11),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_behind_greetings_and_suffixes() {
        for (text, version) in [
            ("slurm 22.05.8\n", "22.05.8"),
            ("slurm-wlm 24.11.5", "24.11.5"),
            ("Welcome to 10.0.0.1!\nslurm 23.11.0-0rc1\n", "23.11.0"),
            ("slurm 20.11.9-1.el7", "20.11.9"),
            ("slurm 26.05", "26.05.0"),
        ] {
            assert_eq!(Version::parse(text).unwrap().to_string(), version, "{text}");
        }
        for text in ["", "slurm", "munge 0.5.15", "slurm 2.6.5", "slurm x.yy.z"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn features_follow_releases_and_not_patches() {
        let debian = Version::number("22.05.8").unwrap();
        assert!(debian.has(Feature::Prefer) && debian > OLDEST && debian < NEWEST);
        assert!(!debian.has(Feature::TresPerTask));
        assert!(!Version::of(21, 8).has(Feature::CpusPerTaskNotInherited));
    }
}
