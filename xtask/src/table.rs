//! Samples and the Markdown table they end in.

/// One row: what was measured, in which unit, and every sample.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) samples: Vec<f64>,
}

/// The rows as a Markdown table.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| What | Unit | Runs | Min | Median | Max |\n|---|---|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let mut sorted = row.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            continue;
        };
        let (what, unit, runs) = (&row.what, row.unit, sorted.len());
        let median = median(&sorted);
        let line = format!("| {what} | {unit} | {runs} | {min:.1} | {median:.1} | {max:.1} |\n");
        text.push_str(&line);
    }
    text
}

/// The middle of sorted samples, the mean of the two middle ones if their number is even.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_shows_least_middle_and_greatest() {
        let row = |samples: &[f64]| Row {
            what: "`true`".to_owned(),
            unit: "ms",
            samples: samples.to_vec(),
        };
        let text = markdown(&[row(&[3.0, 1.0, 2.0]), row(&[4.0, 1.0]), row(&[])]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| `true` | ms | 3 | 1.0 | 2.0 | 3.0 |",
                "| `true` | ms | 2 | 1.0 | 2.5 | 4.0 |"
            ]
        );
    }
}
