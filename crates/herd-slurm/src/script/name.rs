//! The name of a job in Slurm.

use herd_core::plan::Plan;

/// Characters of the job's own name that are kept.
const MAX_NAME: usize = 40;

/// `digits-1a2b3c4d`: the job's name and the short form of its id, so that people find it in
/// `squeue` and herd finds it by `--name` (I2). Further parts of an array have their number behind.
///
/// ASCII letters, digits and `._-` alone: a comma would be two names to `squeue`, and names with
/// other characters have stopped accounting databases before.
pub fn job_name(plan: &Plan, part: usize) -> String {
    let kept = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = plan.name.chars().take(MAX_NAME).map(kept).collect();
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "job" } else { name };
    let short = plan.job.short();
    if part == 0 {
        format!("{name}-{short}")
    } else {
        format!("{name}-{short}.{part}")
    }
}
