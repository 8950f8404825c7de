//! Sets of ranks as people write them: `3`, `0-3,7`.

/// Most ranks a set may name.
const MAX_RANKS: usize = 65_536;

/// The ranks, sorted; nothing where the text is no set of ranks.
pub(super) fn parse(text: &str) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        let many = usize::try_from(last.checked_sub(first)?).ok()?;
        if many + ranks.len() >= MAX_RANKS {
            return None;
        }
        ranks.extend(first..=last);
    }
    ranks.sort_unstable();
    ranks.dedup();
    Some(ranks)
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_anything_else_is_refused() {
        assert_eq!(parse("3"), Some(vec![3]));
        assert_eq!(parse("7,0-2,1"), Some(vec![0, 1, 2, 7]));
        for text in [
            "",
            "a",
            "-1",
            "3-",
            "3-1",
            "0-4294967295",
            "1,,2",
            "+1",
            "1 2",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
