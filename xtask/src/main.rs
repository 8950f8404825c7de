//! Tasks of the repository that need more than a shell script: `cargo xtask bench`, of which
//! `cargo xtask arrays` is a part, `cargo xtask bench launch`, of which `cargo xtask bench-store` is,
//! `cargo xtask bench slurm`.
//!
//! Measures and prints; refuses to judge. No number fails a build, since the machine is seldom
//! quiet.

mod arrays;
mod bench;
mod launch;
mod memory;
mod slurm;
mod store;
mod table;
mod throughput;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

const USAGE: &str = "usage: cargo xtask bench|bench launch|bench slurm|arrays|bench-store [RUNS]

  bench         start times, memory, throughput and arrays; a table in Markdown on standard output
  bench launch  herd launch beside torchrun, mpirun and bare spawning, and its store beside torch's;
                needs `eval \"$(lab/env)\"` in this shell first
  bench slurm   jobs on a cluster of lab/slurm beside sbatch and srun; needs root and some minutes
  arrays        the part about arrays alone
  bench-store   the store of herd launch beside torch's; needs the same

RUNS is 15 without it; what takes seconds each is run three times at most. Each builds herd first.
Peers that are not on PATH have no rows: mpirun (lab/mpi installs it), git, HyperQueue (lab/hyperqueue).
A busy machine measures itself: `chrt -f 10 cargo xtask bench 7` asks for the processor first.
";
const LAUNCH: &str = "bench launch";
const SLURM: &str = "bench slurm";
/// Enough for a median that a single slow run does not move.
const DEFAULT_RUNS: usize = 15;
const MAX_RUNS: usize = 1000;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // What measurements start beside themselves.
    match arguments.as_slice() {
        ["serve-store"] => {
            store::serve()?;
            return Ok(ExitCode::SUCCESS);
        }
        ["bare-launch", workers] => {
            launch::start::start_and_reap(workers.parse()?)?;
            return Ok(ExitCode::SUCCESS);
        }
        ["slurm-poll", file] => {
            let times = slurm::poll::poll(Path::new(file))?;
            io::stdout()
                .write_all(times.as_bytes())
                .context("write the times")?;
            return Ok(ExitCode::SUCCESS);
        }
        ["launch-worker", directory] => {
            return Ok(ExitCode::from(launch::worker::run(Path::new(directory))?));
        }
        _ => {}
    }
    if matches!(arguments.as_slice(), ["help" | "-h" | "--help"]) {
        io::stdout()
            .write_all(USAGE.as_bytes())
            .context("write the help")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (what, runs) = match arguments.as_slice() {
        ["bench", what @ ("launch" | "slurm"), rest @ ..] if rest.len() < 2 => {
            let what = if *what == "slurm" { SLURM } else { LAUNCH };
            let runs = rest.first().map_or(Ok(DEFAULT_RUNS), |runs| runs.parse());
            (what, runs.context("read the number of runs")?)
        }
        [what] => (*what, DEFAULT_RUNS),
        [what, runs] => {
            let runs = runs.parse();
            (*what, runs.context("read the number of runs")?)
        }
        _ => bail!("{USAGE}"),
    };
    if !(1..=MAX_RUNS).contains(&runs) {
        bail!("number of runs {runs} is not between 1 and {MAX_RUNS}");
    }
    let report = match what {
        "bench" => bench::run(runs)?,
        "arrays" => bench::arrays_alone(runs)?,
        LAUNCH => bench::launch(runs)?,
        SLURM => bench::slurm(runs)?,
        "bench-store" => store::run(runs)?,
        _ => bail!("{USAGE}"),
    };
    io::stdout()
        .write_all(report.as_bytes())
        .context("write the report")?;
    Ok(ExitCode::SUCCESS)
}
