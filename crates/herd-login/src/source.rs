//! On the login node: what a job's directory has that the other side lacks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;

use herd_jobdir::JobDir;

use crate::mirror::{self, Kind, RESULT};
use crate::protocol::{MOST_PIECE, Part};

/// No file: stands in what is held for a task of which all was sent.
const ALL: &str = "";
/// Largest file that is sent as a whole.
const MOST_WHOLE: u64 = 64 << 20;

/// Writes what is new, and notes in `held` that the other side has it. The result comes with the first
/// call that finds it before it looks at anything else, so that all other files are complete then.
pub fn send(
    job: &JobDir,
    held: &mut BTreeMap<String, u64>,
    log: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let over = job.path().join(RESULT).exists();
    for (place, task) in mirror::task_dirs(job) {
        let place = format!("{place}/");
        // A task that had ended when all of it was sent needs no second look.
        if held.get(&format!("{place}{ALL}")) == Some(&u64::from(log)) {
            continue;
        }
        let ended = task.path().join(RESULT).exists();
        directory(job, &task, &place, ended, held, log, out)?;
        if ended {
            held.insert(format!("{place}{ALL}"), u64::from(log));
        }
    }
    directory(job, job, "", over, held, log, out)
}

/// Sends what is new in one directory, whose path below the job's is `place`.
fn directory(
    job: &JobDir,
    dir: &JobDir,
    place: &str,
    over: bool,
    held: &mut BTreeMap<String, u64>,
    log: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let attempts = dir
        .latest_attempt()
        .ok()
        .flatten()
        .map_or(0, |attempt| attempt.number());
    // The index as long as it is now: its text is in the log already, which is looked at later.
    let index = length(job, &format!("{place}run.index"))?;
    for name in mirror::paths(attempts, !place.is_empty()) {
        let path = format!("{place}{name}");
        let Some(kind) = mirror::kind(&path) else {
            continue;
        };
        if (kind == Kind::Log && !log) || (name == RESULT && !over) {
            continue;
        }
        let has = held.get(&path).copied();
        match kind {
            Kind::Whole if has.is_some() => {}
            Kind::Whole => {
                if let Some(bytes) = whole(job, &path)? {
                    piece(job, &path, 0, &bytes, true, out)?;
                    held.insert(path, bytes.len() as u64);
                }
            }
            Kind::Growing | Kind::Log => {
                let most = (name == "run.index").then_some(index);
                let has = grown(job, &path, has.unwrap_or(0), most, out)?;
                held.insert(path, has);
            }
        }
    }
    Ok(())
}

/// Sends a file from where the other side has it to its end, or to `most`; how far that is.
fn grown(
    job: &JobDir,
    path: &str,
    has: u64,
    most: Option<u64>,
    out: &mut impl Write,
) -> io::Result<u64> {
    let file = match File::open(job.path().join(path)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(has),
        Err(error) => return Err(error),
    };
    let end = file.metadata()?.len().min(most.unwrap_or(u64::MAX));
    let mut at = has;
    let mut bytes = vec![0; MOST_PIECE];
    while at < end {
        let wanted = usize::try_from(end - at)
            .unwrap_or(MOST_PIECE)
            .min(MOST_PIECE);
        let read = file.read_at(bytes.get_mut(..wanted).unwrap_or_default(), at)?;
        if read == 0 {
            break;
        }
        piece(
            job,
            path,
            at,
            bytes.get(..read).unwrap_or_default(),
            false,
            out,
        )?;
        at += read as u64;
    }
    Ok(at)
}

fn piece(
    job: &JobDir,
    path: &str,
    offset: u64,
    bytes: &[u8],
    whole: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let part = Part::File {
        job: job.id(),
        path: path.to_owned(),
        offset,
        length: bytes.len(),
        whole,
    };
    say(&part, out)?;
    out.write_all(bytes)
}

/// Writes one line of the answer.
pub fn say(part: &Part, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, part)?;
    out.write_all(b"\n")
}

fn length(job: &JobDir, path: &str) -> io::Result<u64> {
    match std::fs::metadata(job.path().join(path)) {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn whole(job: &JobDir, path: &str) -> io::Result<Option<Vec<u8>>> {
    if length(job, path)? > MOST_WHOLE {
        return Ok(None);
    }
    match std::fs::read(job.path().join(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use herd_core::JobId;
    use herd_jobdir::Home;

    use super::*;

    /// Reads an answer into a mirror, as the other side does.
    fn take(mirror: &JobDir, mut answer: &[u8]) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
            let part: Part = serde_json::from_slice(&answer[..end]).unwrap();
            answer = &answer[end + 1..];
            if let Part::File { path, length, .. } = &part {
                mirror::put(mirror, &part, &answer[..*length]).unwrap();
                answer = &answer[*length..];
                seen.push(path.clone());
            }
        }
        seen
    }

    #[test]
    fn i7_a_mirror_grows_as_the_job_does_and_gets_nothing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let id = JobId::generate();
        let job = |name: &str| Home::at(dir.path().join(name)).unwrap().create(id).unwrap();
        let (there, here) = (job("there"), job("here"));
        let write = |path: &str, text: &str| {
            let place = there.path().join(path);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, text).unwrap();
        };
        write("job.yaml", "run: a\n");
        write("key", "secret");
        write("run.log", "one\n");
        write("attempts/1/plan.json", "{}");
        write("attempts/1/events.jsonl", "{}\n");
        let mut held = mirror::held(&here).files;
        let mut answer = Vec::new();
        send(&there, &mut held, false, &mut answer).unwrap();
        let seen = take(&here, &answer);
        assert!(!seen.contains(&"run.log".to_owned()) && !seen.contains(&"key".to_owned()));
        write("run.log", "one\ntwo\n");
        write("result.json", "{}");
        let mut answer = Vec::new();
        send(&there, &mut held, true, &mut answer).unwrap();
        assert_eq!(take(&here, &answer), ["run.log", "result.json"]);
        assert_eq!(
            std::fs::read(here.path().join("run.log")).unwrap(),
            b"one\ntwo\n"
        );
        // A new process knows what is here by looking.
        let mut held = mirror::held(&here).files;
        let mut answer = Vec::new();
        send(&there, &mut held, true, &mut answer).unwrap();
        assert!(answer.is_empty());
    }
}
