//! docs/slurm-reasons.md is what the table of reasons says: `HERD_WRITE_PAGES=1 cargo test -p herd-slurm --test
//! reasons_page` writes it anew.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fmt::Write as _;
use std::path::Path;

use herd_slurm::reason::{Class, explanations};

fn page() -> String {
    let mut text = "# Reasons of Slurm\n\nWhat `herd why`, `squeue` and `scontrol show job` give as the reason of a job, \
                    with its meaning and what the job's owner may change. Those up to Slurm 26.05 are here.\n"
        .to_owned();
    for (class, title) in [
        (Class::Turn, "It starts by itself when its turn comes"),
        (Class::Held, "Somebody holds it"),
        (Class::Never, "It never starts as it is"),
        (Class::Site, "The site has to act"),
        (Class::Ended, "It is over"),
    ] {
        write!(
            text,
            "\n## {title}\n\n| reason | meaning | what to change |\n|---|---|---|\n"
        )
        .unwrap();
        let mut known: Vec<_> = explanations()
            .filter(|known| known.class == class)
            .collect();
        known.sort_by_key(|known| known.code);
        for known in known {
            let cell = |text: &str| text.replace('|', "\\|");
            writeln!(
                text,
                "| `{}` | {} | {} |",
                known.code,
                cell(&known.meaning),
                cell(&known.change)
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn build8_the_page_lists_every_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/slurm-reasons.md");
    if std::env::var_os("HERD_WRITE_PAGES").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page(),
        "docs/slurm-reasons.md is old; the first lines of this file say how to write it"
    );
}
