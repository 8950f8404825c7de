//! The seam to the Slurm backend: every call that asks Slurm or hands something to it.
//!
//! It translates between the command line's types and the backend's; it decides nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use herd_backends::slurm::CommandError;
use herd_backends::slurm::array;
use herd_backends::slurm::cancel::{self, CancelError};
use herd_backends::slurm::cluster::{Cluster, ClusterError, Survey};
use herd_backends::slurm::evidence::{self, Evidence};
use herd_backends::slurm::observe::{self, Asked, View, Views};
use herd_backends::slurm::parts;
use herd_backends::slurm::record::Record;
use herd_backends::slurm::staging::here;
use herd_backends::slurm::submit::{self, Submission, SubmitError};
use herd_core::JobId;
use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::{AfterWhen, SlurmOptions};
use herd_core::units::Span;
use herd_jobdir::{Home, JobDir};
use herd_link::Key;
use herd_slurm::control;
use herd_slurm::facts::{ClusterFacts, Images};
use herd_slurm::job::Id;
use herd_slurm::sbatch::Refusal;
use herd_slurm::script::Dependency;
use herd_slurm::staging;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::backend_local::runtime;
use crate::backends::{Place, SlurmPlace};
use crate::error::{self, ExpectedError, Fault};
use crate::file_system;
use crate::job_input::{JobInput, refusal};
use crate::jobs;
use crate::text;

/// How long Slurm is waited for in silence.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What a cluster has and can do.
pub(crate) fn facts(cluster: &Cluster) -> Result<ClusterFacts, ClusterError> {
    match runtime() {
        Ok(runtime) => patiently(&runtime, cluster.facts()),
        Err(_) => Err(ClusterError::Output {
            command: "(the event loop did not start)",
        }),
    }
}

/// The containers that a cluster runs.
pub(crate) fn images(cluster: &Cluster, facts: &ClusterFacts) -> Images {
    match runtime() {
        Ok(runtime) => patiently(&runtime, cluster.images(facts)),
        Err(_) => Images::No,
    }
}

/// Everything about a cluster that a person may want to check.
pub(crate) fn survey(cluster: &Cluster) -> Result<Survey, ExpectedError> {
    let asked = patiently(&runtime()?, cluster.survey());
    asked.map_err(|error| ExpectedError::failed("ask Slurm", error))
}

/// Hands a job to Slurm; its id here, and Slurm's number.
pub(crate) fn submit(home: &Home, input: &JobInput) -> Result<(JobId, Record), ExpectedError> {
    submit_as(home, input, JobId::generate())
}

/// The same with an id that was chosen before.
pub(crate) fn submit_as(
    home: &Home,
    input: &JobInput,
    id: JobId,
) -> Result<(JobId, Record), ExpectedError> {
    let mut plan = input.plan(id)?;
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
    let (id, apart) = (plan.job, plan.tasks_apart);
    let submitting = submit::submit(home, plan, &submission, &place.cluster, &place.facts);
    let submitted = patiently(&runtime()?, submitting);
    match submitted {
        Ok((job, record)) => {
            look_after(&job, &record)?;
            Ok((id, record))
        }
        Err(SubmitError::Unsupported(refused)) => Err(refusals(&refused)),
        Err(SubmitError::Refused { refusal, text }) => {
            let mut key = refusal.key();
            let mut short = "`herd render` shows the script that Slurm was given";
            if apart && refusal == Refusal::Limit {
                key = Some("array");
                short = "each task counts as a job: use fewer tasks, or run them in one allocation, \
                         `slurm: {allocation: job}`";
            }
            let fault = Fault {
                key: key.map(str::to_owned),
                ..Fault::new(format!("sbatch says: {text}"))
            };
            Err(ExpectedError::Faults {
                file: None,
                faults: vec![fault.hint(short)],
            })
        }
        Err(error) => Err(ExpectedError::failed("hand the job to Slurm", error)),
    }
}

/// What became of a submission that broke off before it was written down.
pub(crate) fn find_again(job: &JobDir, cluster: &Cluster) -> Result<Option<Record>, ExpectedError> {
    let user = user_name();
    let facts = facts(cluster)
        .map_err(|error| ExpectedError::failed("ask Slurm what the cluster has", error))?;
    let found = parts::find_again(job, cluster, &facts, &user);
    let found = patiently(&runtime()?, found);
    found.map_err(|error| ExpectedError::failed("look for the job in Slurm", error))
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
    let scripts = submit::render(home, plan, &submission, &place.facts);
    let scripts = scripts.map_err(|refused| refusals(&refused))?;
    let others = scripts.len().saturating_sub(1);
    let mut script = scripts.into_iter().next().unwrap_or_default();
    if others > 0 {
        let count = error::count(others, "more script");
        let note = "# The cluster takes no array as large; for the tasks after these it gets";
        script = format!("{script}{note} {count} like this one.\n");
    }
    Ok(script)
}

/// What Slurm says of jobs, all of them in one question; by cluster. Each may take as long as `bound`.
pub(crate) fn observe(
    asked: Vec<Asked>,
    bound: Duration,
) -> Result<BTreeMap<Option<String>, Views>, CommandError> {
    let mut all = BTreeMap::new();
    let Ok(runtime) = runtime() else {
        return Ok(all);
    };
    let mut by_cluster: BTreeMap<Option<String>, Vec<Asked>> = BTreeMap::new();
    for job in asked {
        let of = by_cluster.entry(job.record.cluster.clone()).or_default();
        of.push(job);
    }
    for (name, asked) in by_cluster {
        let cluster = Cluster {
            name: name.clone(),
            silent: false,
        };
        let question = async {
            let answer = timeout(bound, observe::observe(&cluster, &asked)).await;
            answer.unwrap_or_else(|_elapsed| {
                Err(CommandError::TimedOut {
                    program: "squeue".to_owned(),
                    seconds: bound.as_secs(),
                })
            })
        };
        let views = patiently(&runtime, question)?;
        all.insert(name, views);
    }
    Ok(all)
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
    Some(patiently(&runtime().ok()?, gathered))
}

/// Writes the result of a job that has ended in Slurm alone.
pub(crate) fn settle(job: &JobDir, view: &View) -> Result<(), ExpectedError> {
    observe::settle(job, view, text::now_ms())
        .map(drop)
        .map_err(|error| ExpectedError::failed("end the job", error))
}

/// The same for a job whose tasks are Slurm's, task by task; then for the job, where all have ended.
pub(crate) fn settle_tasks(
    job: &JobDir,
    plan: &Plan,
    tasks: &BTreeMap<u32, View>,
) -> Result<bool, ExpectedError> {
    array::settle(job, plan, tasks, text::now_ms())
        .map(|result| result.is_some())
        .map_err(|error| ExpectedError::failed("end the job", error))
}

/// Asks for a job's end: its driver where it can be reached, else Slurm.
pub(crate) fn cancel(
    job: &JobDir,
    record: &Record,
    silent: bool,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let cluster = Cluster {
        silent,
        ..record.on()
    };
    let (signal, by) = (i32::from(signal), "herd cancel");
    let asked = async {
        if record.parts.is_empty() {
            cancel::cancel(job, record, &cluster, signal, grace, by).await
        } else {
            array::cancel(job, record, &cluster, signal, grace, by).await
        }
    };
    patiently(&runtime()?, asked).map_err(|error| match error {
        CancelError::Slurm(error) => undone("cancel the job", error),
        error => ExpectedError::failed("cancel the job", error),
    })
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
pub(crate) fn control(
    record: &Record,
    silent: bool,
    ids: &[Id],
    control: Control,
) -> Result<(), ExpectedError> {
    let (calls, what) = match control {
        Control::Hold => (control::hold_calls(ids), "hold the job"),
        Control::Release => (control::release_calls(ids), "release the job"),
        Control::Requeue => (control::requeue_calls(ids), "requeue the job"),
        Control::RequeueHold => (control::requeue_hold_calls(ids), "requeue the job"),
    };
    let cluster = Cluster {
        silent,
        ..record.on()
    };
    let runtime = runtime()?;
    for call in calls {
        patiently(&runtime, cluster.control(call)).map_err(|error| undone(what, error))?;
    }
    Ok(())
}

/// What Slurm did not do. Of a controller that is not there its commands say strange things.
fn undone(what: &'static str, error: CommandError) -> ExpectedError {
    if error.is_silence() {
        return ExpectedError::Surroundings {
            what,
            source: format!("Slurm's controller does not answer: {error}").into(),
            hint: "the job is as it was; try again when `scontrol ping` says that the controller is up",
        };
    }
    ExpectedError::failed(what, error)
}

/// Waits for Slurm, and says so where that is long.
fn patiently<T>(runtime: &Runtime, question: impl Future<Output = T>) -> T {
    static SAID: AtomicBool = AtomicBool::new(false);
    runtime.block_on(async {
        let mut question = pin!(question);
        tokio::select! {
            answer = &mut question => return answer,
            () = sleep(PATIENCE) => {}
        }
        if !SAID.swap(true, Ordering::Relaxed) {
            let seconds = PATIENCE.as_secs();
            let text = format!("herd: waits for Slurm, which has not answered for {seconds} s");
            // A closed standard error leaves nobody to tell.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        question.await
    })
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
        Place::Local | Place::Login(_) => Err(ExpectedError::failed(
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
            Ok(Some(record)) if record.parts.len() > 1 && after.when == AfterWhen::Failed => {
                let text = format!("{} is several arrays of Slurm", job.short());
                faults.push(fault(text).hint(
                    "Slurm waits for the failure of one of them alone; `when: any` waits for the end",
                ));
            }
            Ok(Some(record)) => {
                let depend = |job| Dependency {
                    job,
                    when: after.when,
                };
                all.extend(record.numbers().into_iter().map(depend));
            }
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
