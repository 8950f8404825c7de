//! The seam to the Slurm backend: every call that asks Slurm or hands something to it.
//!
//! It translates between the command line's types and the backend's; it decides nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use herd_backends::slurm::cluster::{Cluster, ClusterError, Survey};
use herd_backends::slurm::evidence::{self, Evidence};
use herd_backends::slurm::observe::{self, View};
use herd_backends::slurm::record::Record;
use herd_backends::slurm::staging::here;
use herd_backends::slurm::submit::{self, Submission, SubmitError};
use herd_backends::slurm::{CommandError, cancel};
use herd_core::JobId;
use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::SlurmOptions;
use herd_core::units::Span;
use herd_jobdir::{Home, JobDir};
use herd_link::Key;
use herd_slurm::control;
use herd_slurm::facts::{ClusterFacts, Images};
use herd_slurm::job::Id;
use herd_slurm::script::Dependency;
use herd_slurm::staging;

use crate::backend_local::runtime;
use crate::backends::{Place, SlurmPlace};
use crate::error::{ExpectedError, Fault};
use crate::file_system;
use crate::job_input::{JobInput, refusal};
use crate::jobs;
use crate::text;

/// What a cluster has and can do.
pub(crate) fn facts(cluster: &Cluster) -> Result<ClusterFacts, ClusterError> {
    match runtime() {
        Ok(runtime) => runtime.block_on(cluster.facts()),
        Err(_) => Err(ClusterError::Output {
            command: "(the event loop did not start)",
        }),
    }
}

/// The containers that a cluster runs.
pub(crate) fn images(cluster: &Cluster, facts: &ClusterFacts) -> Images {
    match runtime() {
        Ok(runtime) => runtime.block_on(cluster.images(facts)),
        Err(_) => Images::No,
    }
}

/// Everything about a cluster that a person may want to check.
pub(crate) fn survey(cluster: &Cluster) -> Result<Survey, ExpectedError> {
    let asked = runtime()?.block_on(cluster.survey());
    asked.map_err(|error| ExpectedError::failed("ask Slurm", error))
}

/// Hands a job to Slurm; its id here, and Slurm's number.
pub(crate) fn submit(home: &Home, input: &JobInput) -> Result<(JobId, Record), ExpectedError> {
    let mut plan = input.plan(JobId::generate())?;
    let place = place(input)?;
    let staged = staged(input, place)?;
    let workdir = staged.as_ref().and_then(|staged| staged.workdir.clone());
    if let Some(staged) = &staged {
        plan.workdir = staged.there_workdir();
    }
    let yaml = input.job_yaml();
    let after = dependencies(home, &plan)?;
    let options = input.spec.slurm.clone().unwrap_or_default();
    let image = input.spec.image.clone();
    let program = node_program()?;
    let user = user_name();
    let submission = Submission {
        job_yaml: &yaml,
        secrets: input.secrets.values(),
        options: &options,
        image: image.as_deref(),
        after: &after,
        program: &program,
        user: &user,
        staged_to: staged.as_ref().map(|staged| staged.there.as_str()),
        workdir: workdir.as_deref(),
    };
    let id = plan.job;
    let submitted = runtime()?.block_on(submit::submit(
        home,
        plan,
        &submission,
        &place.cluster,
        &place.facts,
    ));
    match submitted {
        Ok((job, record)) => {
            look_after(&job, &record)?;
            Ok((id, record))
        }
        Err(SubmitError::Unsupported(refused)) => Err(refusals(&refused)),
        Err(SubmitError::Refused { refusal, text }) => {
            let fault = Fault {
                key: refusal.key().map(str::to_owned),
                ..Fault::new(format!("sbatch says: {text}"))
            };
            let short = "`herd render` shows the script that Slurm was given";
            Err(ExpectedError::Faults {
                file: None,
                faults: vec![fault.hint(short)],
            })
        }
        Err(error) => Err(ExpectedError::failed("hand the job to Slurm", error)),
    }
}

/// A job on nodes that do not see the directory for jobs.
struct Staged {
    /// Its directory on each of them, whose name nobody else can know beforehand.
    there: String,
    /// The directory here that is taken along.
    workdir: Option<PathBuf>,
}

impl Staged {
    fn there_workdir(&self) -> String {
        format!("{}/{}", self.there, staging::WORK)
    }
}

/// How a job is staged, where it has to be. A working directory that is asked for goes along; the one that
/// somebody just happens to be in does not, which may be a whole home.
fn staged(input: &JobInput, place: &SlurmPlace) -> Result<Option<Staged>, ExpectedError> {
    let Some(node_dir) = &place.node_dir else {
        return Ok(None);
    };
    let name = Key::generate().map_err(|error| ExpectedError::failed("choose a name", error))?;
    let name = name.to_hex();
    let name = name.get(..16).unwrap_or_default();
    Ok(Some(Staged {
        there: format!("{}/herd-{name}", node_dir.display()),
        workdir: input
            .workdir_given
            .then(|| input.spec.workdir.clone())
            .flatten()
            .map(PathBuf::from),
    }))
}

/// Sees to it that a process stages a job that has not ended, where its nodes need it.
pub(crate) fn look_after(job: &JobDir, record: &Record) -> Result<(), ExpectedError> {
    if record.staged_to.is_none() || here::is_staged(job) {
        return Ok(());
    }
    let failed = |error: std::io::Error| ExpectedError::failed("start what stages the job", error);
    let home = job.path().ancestors().nth(2).unwrap_or_else(|| job.path());
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(job.path().join("stage.log"))
        .map_err(failed)?;
    // Not waited for: it leaves this session and lives as long as the job.
    std::process::Command::new(std::env::current_exe().map_err(failed)?)
        .arg("stage")
        .arg(home)
        .arg(job.id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    Ok(())
}

/// `herd stage HOME JOB`: stages a job until it has ended.
pub(crate) fn stage(args: &[OsString]) -> Result<u8, ExpectedError> {
    let [home, job] = args else {
        return Err(ExpectedError::failed(
            "stage a job",
            "expected a home and a job id",
        ));
    };
    let _leader = rustix::process::setsid();
    let home = jobs::open_home(Some(Path::new(home)))?;
    let id = job.to_string_lossy().parse::<JobId>();
    let id = id.map_err(|_bad| ExpectedError::failed("stage a job", "that is no id"))?;
    let dir = home
        .open(id)
        .map_err(|error| ExpectedError::failed("open the job", error))?;
    let tell = |text: &str| drop(writeln!(std::io::stderr(), "{} {text}", text::now_ms()));
    here::run(&dir, &node_program()?, tell)
        .map(|()| 0)
        .map_err(|error| ExpectedError::failed("stage the job", error))
}

/// The batch script of a job.
pub(crate) fn script(home: &Home, input: &JobInput, plan: &Plan) -> Result<String, ExpectedError> {
    let place = place(input)?;
    let after = dependencies(home, plan)?;
    let none = SlurmOptions::default();
    let program = node_program()?;
    let staged = staged(input, place)?;
    let submission = Submission {
        job_yaml: b"",
        secrets: &BTreeMap::new(),
        options: input.spec.slurm.as_ref().unwrap_or(&none),
        image: input.spec.image.as_deref(),
        after: &after,
        program: &program,
        user: "",
        staged_to: staged.as_ref().map(|staged| staged.there.as_str()),
        workdir: None,
    };
    submit::render(home, plan, &submission, &place.facts).map_err(|refused| refusals(&refused))
}

/// What Slurm says of jobs, all of them in one question.
pub(crate) fn observe(records: &[Record]) -> Result<BTreeMap<u32, View>, CommandError> {
    let mut views = BTreeMap::new();
    let Ok(runtime) = runtime() else {
        return Ok(views);
    };
    let mut by_cluster: BTreeMap<Option<String>, Vec<Record>> = BTreeMap::new();
    for record in records {
        let of = by_cluster.entry(record.cluster.clone()).or_default();
        of.push(record.clone());
    }
    for (name, records) in by_cluster {
        let cluster = Cluster { name };
        views.extend(runtime.block_on(observe::observe(&cluster, &records))?);
    }
    Ok(views)
}

/// Why a job waits, as far as its cluster tells.
pub(crate) fn evidence(job: &JobDir, record: &Record, view: &View) -> Option<Evidence> {
    let plan = job.latest_attempt().ok()??.read_plan().ok()??;
    let cluster = record.on();
    let gathered = evidence::gather(
        &cluster,
        record.job,
        &plan.resources,
        plan.nodes,
        &view.reason,
    );
    Some(runtime().ok()?.block_on(gathered))
}

/// Writes the result of a job that has ended in Slurm alone.
pub(crate) fn settle(job: &JobDir, view: &View) -> Result<(), ExpectedError> {
    observe::settle(job, view, text::now_ms())
        .map(drop)
        .map_err(|error| ExpectedError::failed("end the job", error))
}

/// Asks for a job's end: its driver where it can be reached, else Slurm.
pub(crate) fn cancel(
    job: &JobDir,
    record: &Record,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let cluster = record.on();
    let asked = cancel::cancel(
        job,
        record,
        &cluster,
        i32::from(signal),
        grace,
        "herd cancel",
    );
    runtime()?
        .block_on(asked)
        .map_err(|error| ExpectedError::failed("cancel the job", error))
}

/// What can be done to a job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Keep it from starting.
    Hold,
    /// Let it go.
    Release,
    /// Stop it and queue it again.
    Requeue,
    /// The same, held.
    RequeueHold,
}

/// Does it.
pub(crate) fn control(record: &Record, control: Control) -> Result<(), ExpectedError> {
    let id = Id::job(record.job);
    let (call, what) = match control {
        Control::Hold => (control::hold_call(id), "hold the job"),
        Control::Release => (control::release_call(id), "release the job"),
        Control::Requeue => (control::requeue_call(id), "requeue the job"),
        Control::RequeueHold => (control::requeue_hold_call(id), "requeue the job"),
    };
    let cluster = record.on();
    let done = runtime()?.block_on(cluster.control(call));
    done.map_err(|error| ExpectedError::failed(what, error))
}

/// What to say of a directory for jobs that the nodes may not see.
pub(crate) fn home_warning(home: &Home) -> Option<String> {
    let why = file_system::of_one_machine(home.path())?;
    Some(format!(
        "{why}, which each machine has for itself: where the nodes do not see it the job fails; \
         HERD_HOME names another directory"
    ))
}

fn place(input: &JobInput) -> Result<&SlurmPlace, ExpectedError> {
    match &input.place {
        Place::Slurm(place) => Ok(place),
        Place::Local => Err(ExpectedError::failed(
            "hand the job to Slurm",
            "its backend is another",
        )),
    }
}

fn refusals(refused: &[Unsupported]) -> ExpectedError {
    ExpectedError::Faults {
        file: None,
        faults: refused.iter().map(refusal).collect(),
    }
}

/// Slurm's numbers of the jobs that must end first. One that has ended as it must is left out.
fn dependencies(home: &Home, plan: &Plan) -> Result<Vec<Dependency>, ExpectedError> {
    let mut all = Vec::new();
    let mut faults = Vec::new();
    for (index, after) in plan.after.iter().enumerate() {
        let job = jobs::open(home, &after.job)?;
        let fault = |text: String| Fault::of(format!("after[{index}]"), text);
        let result = job.dir.read_result();
        if let Some(ended) = result.map_err(|error| ExpectedError::failed("read the job", error))? {
            if !after.when.is_met_by(ended.state) {
                let code = ended.exit_code;
                faults.push(fault(format!("{} has ended with code {code}", job.short())));
            }
            continue;
        }
        match Record::read(&job.dir) {
            Ok(Some(record)) => all.push(Dependency {
                job: record.job,
                when: after.when,
            }),
            Ok(None) => faults.push(
                fault(format!("{} does not run on Slurm", job.short()))
                    .hint("only jobs of the same cluster can come first there"),
            ),
            Err(error) => return Err(ExpectedError::failed("read the job", error)),
        }
    }
    if faults.is_empty() {
        Ok(all)
    } else {
        Err(ExpectedError::Faults { file: None, faults })
    }
}

/// The small binary beside this one, which nodes see where they see this one.
pub(crate) fn node_program() -> Result<PathBuf, ExpectedError> {
    let own = std::env::current_exe()
        .map_err(|error| ExpectedError::failed("find herd's own program", error))?;
    let node = own.with_file_name("herd-node");
    if node.is_file() {
        return Ok(node);
    }
    Err(ExpectedError::Surroundings {
        what: "find herd-node, which runs on the nodes",
        source: format!("{} does not exist", node.display()).into(),
        hint: "install it beside herd, in a directory that the nodes see",
    })
}

/// The user's name; the number, which Slurm takes too, where nobody knows it.
fn user_name() -> String {
    let own = nix::unistd::Uid::effective();
    match nix::unistd::User::from_uid(own) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => own.to_string(),
    }
}
