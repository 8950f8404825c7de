//! A job that Slurm has not got yet, as far as its records say: somebody hands it over just now, or that
//! broke off.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use herd_backends::slurm::record::Record;
use herd_backends::slurm::submitting::{Submitting, TakenUp, give_up};
use herd_core::JobId;
use herd_core::state::JobState;
use herd_jobdir::status::Brief;
use herd_jobdir::{JobDir, JobDirError};

use super::observed::{self, LONG};
use crate::backend_slurm;
use crate::backends::LOCAL;
use crate::text;

/// How long Slurm's answer stands within one command.
const STANDS: Duration = Duration::from_secs(2);
/// A job of Slurm of which its submission left no more than the job's directory.
const FORGOTTEN: Duration = Duration::from_mins(10);
const BROKE_OFF: &str = "its submission broke off before Slurm had all of it";

/// What was said of jobs, and when.
static SAID: Mutex<BTreeMap<JobId, (Instant, String)>> = Mutex::new(BTreeMap::new());

/// Takes up the job's submission where that broke off; what is to be said of a job that Slurm has not got.
pub(super) fn look(dir: &JobDir) -> Result<Option<String>, JobDirError> {
    let Some(left) = Submitting::read(dir)? else {
        return forgotten(dir).map(|()| None);
    };
    let now_ms = text::now_ms();
    if !left.is_left(now_ms) {
        return Ok(Some(format!("{} hands it over", left.by())));
    }
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, why)) = said.get(&dir.id())
        && at.elapsed() < STANDS
    {
        return Ok(Some(why.clone()));
    }
    let asked = observed::once(LONG, || backend_slurm::take_up(dir, &left));
    let why = match asked {
        Ok(TakenUp::Has(_)) => return Ok(None),
        Ok(TakenUp::Nothing) if left.may_arrive(now_ms) => {
            "its submission broke off; what Slurm has of it is cancelled".to_owned()
        }
        Ok(TakenUp::Nothing) => {
            give_up(dir, BROKE_OFF, now_ms)?;
            return Ok(None);
        }
        Err(why) => format!("its submission broke off, and Slurm does not answer ({why})"),
    };
    said.insert(dir.id(), (Instant::now(), why.clone()));
    Ok(Some(why))
}

/// Ends a job whose submission broke off before anything was sent: no driver has it, and nobody says that he
/// is about to send it.
fn forgotten(dir: &JobDir) -> Result<(), JobDirError> {
    let Some(summary) = dir.read_summary()? else {
        return Ok(());
    };
    let now_ms = text::now_ms();
    let age = Duration::from_millis(now_ms.saturating_sub(summary.created_ms));
    if summary.backend != LOCAL
        && age > FORGOTTEN
        && Record::read(dir)?.is_none()
        && dir.read_result()?.is_none()
    {
        give_up(dir, BROKE_OFF, now_ms)?;
    }
    Ok(())
}

/// Puts that into a status.
pub(super) fn tell(brief: &mut Brief, why: &str) {
    if !brief.settled {
        brief.state = JobState::Submitting.to_string();
        brief.why = Some(why.to_owned());
    }
}
