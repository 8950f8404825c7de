//! Generic resources (GRES) as Slurm prints them: `gpu:h800:8(S:0-1),craynetwork:4`.

use serde::{Deserialize, Serialize};

use crate::text::given;

/// A number of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gres {
    /// `gpu`.
    pub name: String,
    /// `h800`, where the site tells types apart.
    pub kind: Option<String>,
    /// How many.
    pub count: u32,
}

/// Entries that are read of one list.
const MAX_ENTRIES: usize = 256;

/// Reads a list. What stands in parentheses, sockets and indices, is left out, and so is an entry
/// without a number that could be meant.
pub fn parse(text: &str) -> Vec<Gres> {
    let Some(text) = given(text) else {
        return Vec::new();
    };
    let mut depth = 0u32;
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain
        .split(',')
        .take(MAX_ENTRIES)
        .filter_map(entry)
        .collect()
}

fn entry(text: &str) -> Option<Gres> {
    // `gres:gpu:2` in older job records, `gres/gpu:h800=2` in TRES.
    let text = text
        .trim()
        .trim_start_matches("gres:")
        .trim_start_matches("gres/");
    let parts: Vec<&str> = text.split([':', '=']).collect();
    let (name, kind, count) = match parts.as_slice() {
        [name] => (name, None, "1"),
        [name, count] if count.starts_with(|c: char| c.is_ascii_digit()) => (name, None, *count),
        [name, kind] => (name, Some(*kind), "1"),
        [name, "no_consume", count] => (name, None, *count),
        [name, kind, count] => (name, Some(*kind), *count),
        _ => return None,
    };
    (!name.is_empty()).then_some(())?;
    let digits = count
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(count.len());
    let (number, unit) = count.split_at(digits);
    let factor = match unit {
        "" => 1,
        "K" | "k" => 1024,
        "M" | "m" => 1024 * 1024,
        _ => return None,
    };
    Some(Gres {
        name: (*name).to_owned(),
        kind: kind.map(str::to_owned),
        count: number.parse::<u32>().ok()?.saturating_mul(factor),
    })
}

/// GPUs of a list.
pub fn gpus(list: &[Gres]) -> u32 {
    gpus_of(list, None)
}

/// GPUs of one type, or of any.
pub fn gpus_of(list: &[Gres], wanted: Option<&str>) -> u32 {
    let same = |gres: &&Gres| match (wanted, &gres.kind) {
        (None, _) => true,
        (Some(wanted), Some(kind)) => kind.eq_ignore_ascii_case(wanted),
        (Some(_), None) => false,
    };
    list.iter()
        .filter(|gres| gres.name == "gpu")
        .filter(same)
        .fold(0, |sum, gres| sum.saturating_add(gres.count))
}

/// The value of one kind in a TRES list, `cpu=4,mem=400M,gres/gpu=2`: the plain number.
pub fn tres(list: &str, kind: &str) -> Option<u64> {
    let (_, value) = list
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .find(|(name, _)| *name == kind)?;
    plain(value)
}

/// The whole number that an amount begins with: `8`, `400M`, `0.02`.
pub(crate) fn plain(amount: &str) -> Option<u64> {
    let end = amount.find(|c: char| !c.is_ascii_digit());
    amount[..end.unwrap_or(amount.len())].parse().ok()
}

/// Memory of a TRES list, in MiB.
pub fn tres_memory(list: &str) -> Option<u64> {
    let (_, value) = list
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .find(|(name, _)| *name == "mem")?;
    megabytes(value)
}

/// `400M`, `3.5G`, `1T`, `4000`: MiB.
pub(crate) fn megabytes(value: &str) -> Option<u64> {
    let value = value.trim_end_matches(['c', 'n']);
    let end = value
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let kib: u128 = match unit {
        "K" => 1,
        "" | "M" => 1 << 10,
        "G" => 1 << 20,
        "T" => 1 << 30,
        "P" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction = fraction.get(..fraction.len().min(6))?;
    let parts = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let fraction: u128 = fraction.parse::<u64>().ok()?.into();
    let total = whole
        .checked_mul(kib)?
        .checked_add(fraction * kib / parts)?;
    u64::try_from(total >> 10).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(name: &str, kind: Option<&str>, count: u32) -> Gres {
        Gres {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            count,
        }
    }

    #[test]
    fn typed_untyped_and_decorated_lists_are_read() {
        for (text, expected) in [
            ("gpu:h800:8", vec![one("gpu", Some("h800"), 8)]),
            ("gpu:8(S:0-1)", vec![one("gpu", None, 8)]),
            (
                "gpu:a100:2(IDX:0,3),gpu:h800:6(IDX:1-2)",
                vec![one("gpu", Some("a100"), 2), one("gpu", Some("h800"), 6)],
            ),
            ("gpu", vec![one("gpu", None, 1)]),
            ("gpu:h800", vec![one("gpu", Some("h800"), 1)]),
            ("gres:gpu:h800:2", vec![one("gpu", Some("h800"), 2)]),
            ("lustre:no_consume:4K", vec![one("lustre", None, 4096)]),
            ("(null)", vec![]),
            ("", vec![]),
            ("gpu:x:y:z:1,:3", vec![]),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(gpus(&parse("gpu:a:2,gpu:b:3,net:9")), 5);
    }

    #[test]
    fn tres_lists_are_read() {
        let list = "billing=1,cpu=4,gres/gpu=2,gres/gpu:h800=2,mem=3.50G,node=1";
        assert_eq!(tres(list, "gres/gpu"), Some(2));
        assert_eq!(tres(list, "energy"), None);
        assert_eq!(tres_memory(list), Some(3584));
        for (text, mib) in [
            ("400M", 400),
            ("1T", 1_048_576),
            ("4000", 4000),
            ("2048K", 2),
        ] {
            assert_eq!(megabytes(text), Some(mib), "{text}");
        }
        assert_eq!(megabytes("1X"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9:=,()./KMGcn]{0,40}|.{0,20}") {
            drop((parse(&text), tres(&text, "cpu"), tres_memory(&text), megabytes(&text)));
        }
    }
}
