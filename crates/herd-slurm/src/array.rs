//! Arrays in the form and size that Slurm takes.

use herd_core::spec::Array;

/// A part of an array that is one Slurm job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What to add to `SLURM_ARRAY_TASK_ID` to get the index of the job file.
    pub offset: u32,
    /// Indices as Slurm gets them.
    pub array: Array,
    /// Whether it starts only when the part before it has ended, however: a limit on tasks at once
    /// holds for all parts together in that way.
    pub after_previous: bool,
}

/// Cuts an array so that Slurm takes each part. `size` is `MaxArraySize` (indices end below it),
/// `most` the site's bound on tasks of one array. Empty where the site has no arrays.
pub fn chunks(array: &Array, size: u32, most: Option<u32>) -> Vec<Chunk> {
    if size == 0 || most == Some(0) {
        return Vec::new();
    }
    let most = most.map_or(usize::MAX, |most| most as usize);
    let mut chunks: Vec<Chunk> = Vec::new();
    for index in &array.indices {
        let offset = index - index % size;
        match chunks.last_mut() {
            Some(chunk) if chunk.offset == offset && chunk.array.indices.len() < most => {
                chunk.array.indices.push(index - offset);
            }
            _ => chunks.push(Chunk {
                offset,
                array: Array {
                    indices: vec![index - offset],
                    limit: array.limit,
                },
                after_previous: array.limit.is_some() && !chunks.is_empty(),
            }),
        }
    }
    chunks
}

/// The value of `--array`: ranges with steps, so that thousands of odd indices stay short.
pub fn render(array: &Array) -> String {
    let mut text = String::new();
    let mut rest = array.indices.as_slice();
    while let [first, ..] = rest {
        let step = match rest {
            [a, b, ..] => b - a,
            _ => 0,
        };
        let run = rest
            .windows(2)
            .take_while(|pair| matches!(pair, [a, b] if b - a == step))
            .count()
            + 1;
        // Two numbers are shorter than a range with a step.
        let run = if run == 2 && step != 1 { 1 } else { run };
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if let (true, Some(last)) = (run > 1, rest.get(run - 1)) {
            text.push('-');
            text.push_str(&last.to_string());
            if step > 1 {
                text.push(':');
                text.push_str(&step.to_string());
            }
        }
        rest = rest.get(run..).unwrap_or_default();
    }
    if let Some(limit) = array.limit {
        text.push('%');
        text.push_str(&limit.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str, size: u32, most: Option<u32>) -> Vec<(u32, String, bool)> {
        chunks(&text.parse().unwrap(), size, most)
            .iter()
            .map(|chunk| (chunk.offset, render(&chunk.array), chunk.after_previous))
            .collect()
    }

    #[test]
    fn parts_end_below_the_size_and_keep_the_limit() {
        let part = |offset, text: &str, after| (offset, text.to_owned(), after);
        assert_eq!(cut("0-999%10", 1001, None), [part(0, "0-999%10", false)]);
        assert_eq!(
            cut("0-2001%10", 1001, None),
            [part(0, "0-1000%10", false), part(1001, "0-1000%10", true)]
        );
        assert_eq!(
            cut("5,5000-5002", 1001, None),
            [part(5, "5", false)]
                .into_iter()
                .map(|(_, text, after)| part(0, &text, after))
                .chain([part(4004, "996-998", false)])
                .collect::<Vec<_>>()
        );
        assert_eq!(
            cut("0-9", 100, Some(4)),
            [
                part(0, "0-3", false),
                part(0, "4-7", false),
                part(0, "8-9", false)
            ]
        );
        assert!(cut("0-9", 0, None).is_empty());
    }

    #[test]
    fn steps_stay_short() {
        let render = |text: &str| render(&text.parse().unwrap());
        assert_eq!(render("0-98:2%5"), "0-98:2%5");
        assert_eq!(render("1,4,9"), "1,4,9");
        assert_eq!(render("0-1,7"), "0-1,7");
        assert_eq!(render("3"), "3");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_done_twice(
            mut indices in prop::collection::vec(0u32..5000, 1..200),
            size in 1u32..2000,
            most in prop::option::of(1u32..50),
            limit in prop::option::of(1u32..9),
        ) {
            indices.sort_unstable();
            indices.dedup();
            let array = Array { indices: indices.clone(), limit };
            let mut seen = Vec::new();
            for chunk in chunks(&array, size, most) {
                let read: Array = render(&chunk.array).parse().unwrap();
                prop_assert_eq!(&read, &chunk.array);
                prop_assert!(read.indices.iter().all(|index| *index < size));
                prop_assert!(most.is_none_or(|most| read.indices.len() <= most as usize));
                seen.extend(read.indices.iter().map(|index| index + chunk.offset));
            }
            prop_assert_eq!(seen, indices);
        }
    }
}
