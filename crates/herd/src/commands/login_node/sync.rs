//! Sends what jobs have that the other side lacks, once or until they have ended.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use herd_core::JobId;
use herd_jobdir::Home;
use herd_jobdir::status::Brief;
use herd_login::protocol::{Held, Part, TICK};
use herd_login::source;

use crate::jobs;
use crate::watch::{BOUND, Watch};

/// Time between looks at where a job stands, which takes more than a look at its files.
const LOOK: Duration = Duration::from_millis(500);

struct Followed {
    job: JobId,
    files: BTreeMap<String, u64>,
    looked: Option<Instant>,
    said: Option<Brief>,
    over: bool,
}

/// Answers one request.
pub(super) fn run(home: &Home, held: Vec<Held>, log: bool, follow: bool) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout());
    let watch = Watch::new();
    let mut jobs: Vec<Followed> = held
        .into_iter()
        .map(|held| Followed {
            job: held.job,
            files: held.files,
            looked: None,
            said: None,
            over: false,
        })
        .collect();
    let mut ticked = Instant::now();
    loop {
        for job in &mut jobs {
            look(home, job, log, &watch, &mut out)?;
        }
        jobs.retain(|job| !job.over);
        if !follow || jobs.is_empty() {
            source::say(&Part::Done, &mut out)?;
            return out.flush();
        }
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            source::say(&Part::Tick, &mut out)?;
        }
        out.flush()?;
        watch.wait(BOUND);
    }
}

fn look(
    home: &Home,
    job: &mut Followed,
    log: bool,
    watch: &Watch,
    out: &mut impl Write,
) -> io::Result<()> {
    let Ok(dir) = home.open(job.job) else {
        job.over = true;
        return source::say(
            &Part::Stands {
                job: job.job,
                brief: None,
            },
            out,
        );
    };
    if job.looked.is_none() {
        watch.add(dir.path());
    }
    let due =
        job.looked.is_none_or(|at| at.elapsed() >= LOOK) || dir.path().join("result.json").exists();
    // Before its files are sent: what it was read from is then among them.
    let brief = due.then(|| jobs::read(dir.clone()).ok()).flatten();
    source::send(&dir, &mut job.files, log, out)?;
    if due {
        job.looked = Some(Instant::now());
    }
    let Some(brief) = brief.map(|job| job.status.brief) else {
        return Ok(());
    };
    job.over = brief.settled;
    if job.said.as_ref() != Some(&brief) {
        job.said = Some(brief.clone());
        source::say(
            &Part::Stands {
                job: job.job,
                brief: Some(brief),
            },
            out,
        )?;
    }
    Ok(())
}
