//! From a file or a command plus the flags to one specification, with every fault at once.
//!
//! Everything that can be wrong is looked at before anything starts; nothing here starts anything.

pub(crate) mod backend;
pub(crate) mod env_file;
pub(crate) mod flags;
pub(crate) mod mounts;
mod origin;
pub(crate) mod program;
mod received;
pub(crate) mod secrets;
pub(crate) mod size;
pub(crate) mod source;
pub(crate) mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use herd_core::JobId;
use herd_core::jobfile::Unread;
use herd_core::plan::{self, Plan, Submission, Unsupported};
use herd_core::spec::{After, Command, JobSpec};
use herd_core::text::error_line;

use crate::backends::Place;
use crate::cli::job::JobArgs;
use crate::config::{self, Config};
use crate::error::{ExpectedError, Fault};
use crate::jobs;
use secrets::Secrets;
use source::JobFile;

/// What the process stands in; tests make their own.
pub(crate) struct Surroundings<'a> {
    /// Where relative paths start.
    pub(crate) cwd: PathBuf,
    /// Variables of the environment.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// What the configuration says.
    pub(crate) config: Config,
    /// The job that a selector means, or why it means none.
    pub(crate) job: &'a dyn Fn(&str) -> Result<JobId, ExpectedError>,
    /// The words of the command line behind the program's name.
    pub(crate) words: Vec<String>,
    /// Standard input, read for `-`.
    pub(crate) stdin: &'a mut dyn Read,
}

/// A job, complete and checked.
#[derive(Debug)]
pub(crate) struct JobInput {
    /// The job.
    pub(crate) spec: JobSpec,
    /// Values of its secrets.
    pub(crate) secrets: Secrets,
    /// The backend that runs it.
    pub(crate) backend: String,
    /// What is known of that backend.
    pub(crate) place: Place,
    /// The job file's content as the user wrote it; absent for a command.
    pub(crate) original: Option<Vec<u8>>,
    /// Name of the job file, for jobs whose command has no name.
    pub(crate) file_name: Option<String>,
    /// Values of the variables that the job passes on.
    pub(crate) env: BTreeMap<String, String>,
    /// Whether a working directory was asked for.
    pub(crate) workdir_given: bool,
    /// What to say about all this before it starts.
    pub(crate) notes: Vec<String>,
    /// What may surprise.
    pub(crate) warnings: Vec<String>,
}

/// Reads the job of this process's own surroundings. Jobs that it comes after are looked for in
/// `home`.
pub(crate) fn read(args: &JobArgs, home: Option<&Path>) -> Result<JobInput, ExpectedError> {
    let cwd = std::env::current_dir().map_err(|error| ExpectedError::Surroundings {
        what: "find the current directory",
        source: error.into(),
        hint: "it may be gone: change into a directory that exists",
    })?;
    let variable = |name: &str| std::env::var_os(name);
    let job = |selector: &str| jobs::find(home, selector);
    let mut stdin = std::io::stdin().lock();
    read_in(
        args,
        &mut Surroundings {
            cwd,
            config: config::read(&variable)?,
            variable: &variable,
            job: &job,
            words: std::env::args().skip(1).collect(),
            stdin: &mut stdin,
        },
    )
}

/// Reads a job in given surroundings.
pub(crate) fn read_in(
    args: &JobArgs,
    around: &mut Surroundings<'_>,
) -> Result<JobInput, ExpectedError> {
    let mut faults = Vec::new();
    let mut notes = Vec::new();
    let from_files = env_files(args, around, &mut faults);
    let given = given(args, &from_files);
    let mut file = job_file(args, &given, around, &mut faults);
    let (spec, unread) = (&mut file.spec, &mut file.unread);
    spec.env.extend(from_files);
    flags::apply(args, spec, unread, &mut faults);
    let workdir_given = args.workdir.is_some() || spec.workdir.is_some();
    let placed = args.workdir.is_some() || unread.knows("workdir");
    if placed && workdir(args, around, &file.base, spec, &mut faults) {
        mounts::check(&file.mounts, spec, around, &mut faults);
    }
    let facts = backend::Facts {
        has_sbatch: on_path("sbatch", around.variable),
        allocation: (around.variable)("SLURM_JOB_ID").and_then(|id| id.into_string().ok()),
        wants_gpus: spec.resources.gpus.is_some_and(|gpus| gpus > 0),
        configured: around.config.backends.keys().cloned().collect(),
        default: around.config.backend.clone(),
    };
    let named = args.backend.as_deref().filter(|name| *name != "auto");
    let mut place = Place::Local;
    let chosen = match backend::resolve(named, spec.backend.as_deref(), &facts) {
        // One that the file names wrongly is not known.
        _ if named.is_none() && !unread.knows("backend") => String::new(),
        Ok(choice) => {
            notes.extend(choice.note);
            flags::refuse_unsupported(args, &choice.backend, &mut faults);
            match Place::open(&choice.backend, &around.config, spec) {
                Ok(mut opened) => {
                    if let Place::Login(login) = &mut opened {
                        faults.extend(login.look_at_workdir(spec, workdir_given));
                    }
                    place = opened;
                    choice.backend
                }
                Err(fault) => {
                    faults.push(fault);
                    String::new()
                }
            }
        }
        Err(fault) => {
            faults.push(fault);
            String::new()
        }
    };
    spec.backend = Some(chosen.clone()).filter(|name| !name.is_empty());
    spec.after = resolve_after(&spec.after, around.job, &mut faults);
    let secrets = secrets::read(&spec.secrets, &file.base, around.variable, &mut faults);
    let env = passed_on(spec, around.variable, &mut faults);
    let input = JobInput {
        spec: file.spec,
        secrets,
        backend: chosen,
        place,
        original: file.bytes,
        file_name: file.file_name,
        env,
        workdir_given,
        notes,
        warnings: file.warnings,
    };
    faults.extend(input.refusals().into_iter().filter(|fault| {
        // The size of the whole has no key.
        let key = fault.key.as_deref().unwrap_or_default();
        file.unread.can_judge(key)
    }));
    let name = input.file_name.as_deref().unwrap_or(source::STDIN);
    let placed = origin::place(args, input.original.as_deref(), name, &mut faults);
    let of_file = match (file.faults, placed) {
        (Some(found), Some(placed)) => Some(found.with(placed)),
        (found, placed) => found.or(placed),
    };
    if of_file.is_some() || !faults.is_empty() {
        return Err(ExpectedError::Faults {
            file: of_file.map(Box::new),
            faults,
        });
    }
    Ok(input)
}

/// The job file, or the command in its place, or nothing and the fault that says why.
fn job_file(
    args: &JobArgs,
    given: &BTreeSet<String>,
    around: &mut Surroundings<'_>,
    faults: &mut Vec<Fault>,
) -> JobFile {
    let mut file = JobFile::none(around);
    match (&args.file, args.command.is_empty()) {
        (Some(path), _) => match source::read(path, &args.command, given, around) {
            Ok(read) => return read,
            Err(fault) => {
                file.unread = Unread::everything();
                faults.push(fault);
            }
        },
        (None, false) => file.spec.run = Some(Command::Argv(args.command.clone())),
        (None, true) => {
            file.unread.wrong("run");
            faults.push(
                Fault::new("no job: neither FILE nor a command after `--`")
                    .hint("`herd run job.yaml` or `herd run -- COMMAND`"),
            );
        }
    }
    file
}

impl JobInput {
    /// The plan of the first attempt.
    pub(crate) fn plan(&self, job: JobId) -> Result<Plan, ExpectedError> {
        let planned = match &self.place {
            Place::Login(login) => login.check(self).map(|checked| Plan {
                job,
                ..checked.plan
            }),
            Place::Local | Place::Slurm(_) => self.planned(job),
        };
        planned.map_err(|faults| ExpectedError::Faults { file: None, faults })
    }

    /// Everything that stands against the job: what the backend cannot honour (I13), or, where that
    /// is not known, what no backend can.
    pub(crate) fn refusals(&self) -> Vec<Fault> {
        if self.backend.is_empty() {
            return plan::faults(&self.spec).iter().map(refusal).collect();
        }
        if let Place::Login(login) = &self.place {
            return login.check(self).err().unwrap_or_default();
        }
        self.planned(JobId::generate()).err().unwrap_or_default()
    }

    fn planned(&self, job: JobId) -> Result<Plan, Vec<Fault>> {
        let facts = self.place.facts(&self.spec);
        let plan = plan::plan(&self.spec, &facts, self.submission(job))
            .map_err(|refused| refused.iter().map(refusal).collect::<Vec<_>>())?;
        let limits = size::Limits::of_this_process(plan.inherit_env);
        let mut faults = size::faults(&plan, self.secrets.values(), &limits);
        faults.extend(self.place.refusals(&self.spec, &plan).iter().map(refusal));
        if faults.is_empty() {
            Ok(plan)
        } else {
            Err(faults)
        }
    }

    /// What is kept as `job.yaml`: the user's file as it was, or a command in the same form. What
    /// the flags changed is in the plan.
    pub(crate) fn job_yaml(&self) -> Vec<u8> {
        match &self.original {
            Some(bytes) => bytes.clone(),
            None => written::job_file(&self.spec),
        }
    }

    /// What to know about a job that is accepted.
    pub(crate) fn plan_notes(&self) -> Vec<String> {
        if let Place::Login(login) = &self.place {
            return login.notes(self);
        }
        let submission = self.submission(JobId::generate());
        let facts = self.place.facts(&self.spec);
        let mut notes = plan::notes(&self.spec, &facts, &submission);
        if let Ok(plan) = self.planned(submission.job) {
            notes.extend(self.place.notes(&self.spec, &plan));
        }
        notes
    }

    fn submission(&self, job: JobId) -> Submission {
        let workdir = self.spec.workdir.clone().unwrap_or_default();
        Submission {
            file_name: self.file_name.clone(),
            env: self.env.clone(),
            after: self.spec.after.clone(),
            ..Submission::first(job, workdir)
        }
    }
}

/// A refusal of the plan as a fault of the job.
pub(crate) fn refusal(refused: &Unsupported) -> Fault {
    Fault::of(&refused.key, &refused.reason).hint(&refused.hint)
}

/// The jobs that must end first, each as its full id; one that does not exist is a fault.
fn resolve_after(
    after: &[After],
    job: &dyn Fn(&str) -> Result<JobId, ExpectedError>,
    faults: &mut Vec<Fault>,
) -> Vec<After> {
    let mut resolved = Vec::with_capacity(after.len());
    for (index, wanted) in after.iter().enumerate() {
        match job(&wanted.job) {
            Ok(id) => resolved.push(After {
                job: id.to_string(),
                when: wanted.when,
            }),
            Err(error) => faults.push(Fault {
                hint: error.hints().into_iter().next(),
                ..Fault::of(format!("after[{index}]"), error_line(&error))
            }),
        }
    }
    resolved
}

/// Values of the variables that `env_from` names; one that is not set is left out.
fn passed_on(
    spec: &JobSpec,
    variable: &dyn Fn(&str) -> Option<OsString>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for name in &spec.env_from {
        match variable(name).map(OsString::into_string) {
            Some(Ok(value)) => {
                found.insert(name.clone(), value);
            }
            Some(Err(_)) => faults.push(Fault::of("env_from", format!("{name} is not UTF-8"))),
            None => {}
        }
    }
    found
}

/// Names of the variables that flags and their files set.
fn given(args: &JobArgs, from_files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let flags = args.env.iter().filter_map(|text| text.split_once('='));
    let flags = flags.map(|(name, _)| name.to_owned());
    flags.chain(from_files.keys().cloned()).collect()
}

fn env_files(
    args: &JobArgs,
    around: &Surroundings<'_>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for path in &args.env_file {
        let shown = path.display().to_string();
        let text = source::read_bounded(&around.cwd.join(path), env_file::MAX_BYTES)
            .map_err(|problem| Fault::new(format!("--env-file {shown}: {problem}")))
            .and_then(|bytes| {
                String::from_utf8(bytes)
                    .map_err(|_error| Fault::new(format!("--env-file {shown}: is not UTF-8")))
            });
        match text {
            Ok(text) => match env_file::parse(&text, &shown) {
                Ok(found) => env.extend(found),
                Err(found) => faults.extend(found),
            },
            Err(fault) => faults.push(fault),
        }
    }
    env
}

/// Makes the working directory absolute: the flag's from here, the file's from the file. False where
/// there is none.
fn workdir(
    args: &JobArgs,
    around: &Surroundings<'_>,
    base: &Path,
    spec: &mut JobSpec,
    faults: &mut Vec<Fault>,
) -> bool {
    let (given, path, origin) = match (&args.workdir, &spec.workdir) {
        (Some(path), _) => (
            path.display().to_string(),
            around.cwd.join(path),
            Fault::new("--workdir: "),
        ),
        (None, Some(path)) => (
            path.clone(),
            base.join(home_relative(path, around)),
            Fault::of("workdir", ""),
        ),
        (None, None) => (
            String::new(),
            around.cwd.clone(),
            Fault::new("current directory: "),
        ),
    };
    let shown = path.display();
    let real = std::fs::canonicalize(&path);
    let problem = match real.map(|real| (real.is_dir(), real.into_os_string().into_string())) {
        Ok((true, Ok(text))) => {
            spec.workdir = Some(text);
            return true;
        }
        Ok((false, _)) => format!("{shown} is not a directory"),
        Ok((true, Err(_))) => format!("{shown} is not UTF-8"),
        Err(error) => format!("cannot use {shown}: {error}"),
    };
    let mut fault = origin;
    fault.text.push_str(&problem);
    faults.push(match given.chars().next() {
        Some('~') if args.workdir.is_some() => {
            fault.hint("herd expands no `~`; a shell does, where it is not quoted")
        }
        _ if given.contains('$') => {
            fault.hint("variables are not expanded here: write the whole path")
        }
        _ => fault,
    });
    false
}

/// `~` and `~/x` as a shell would read them.
fn home_relative(path: &str, around: &Surroundings<'_>) -> PathBuf {
    let rest = if path == "~" {
        Some("")
    } else {
        path.strip_prefix("~/")
    };
    match (rest, (around.variable)("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        (Some(_) | None, _) => PathBuf::from(path),
    }
}

fn on_path(program: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let path = variable("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|directory| directory.is_absolute() && directory.join(program).is_file())
}

#[cfg(test)]
mod tests;
