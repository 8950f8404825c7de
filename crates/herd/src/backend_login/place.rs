//! A cluster behind a login node, as a place for a job that is being read.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

use herd_core::JobId;
use herd_core::spec::JobSpec;
use herd_core::text::error_line;
use herd_login::program::HELLO_BOUND;
use herd_login::protocol::{Checked, Job, Reply, Request, ask};
use herd_login::{Channel, LoginError, Target};
use herd_workdir::{IGNORE, Tree, TreeError};
use serde::de::DeserializeOwned;

use super::{ANSWER_BOUND, Login, fault, refused};
use crate::config::SlurmBackend;
use crate::error::{ExpectedError, Fault};
use crate::job_input::JobInput;
use crate::text;

/// Copies of at least this size are said.
const WORTH_SAYING: u64 = 16 << 20;

/// A login node that answered, and the job that it is asked about.
#[derive(Debug)]
pub(crate) struct LoginPlace {
    /// The backend's name.
    pub(super) name: String,
    /// The login node, with its directory for jobs.
    pub(super) target: Target,
    cluster: Option<String>,
    node_dir: Option<PathBuf>,
    login: Login,
    session: RefCell<Option<Channel>>,
    /// The job's id, by which its directory of work is named.
    pub(super) id: JobId,
    home: String,
    /// What is copied there for the job to work in.
    pub(super) tree: Tree,
    note: Option<String>,
    checked: OnceCell<Result<Checked, Vec<Fault>>>,
}

impl LoginPlace {
    /// Connects.
    pub(crate) fn open(name: &str, target: &Target, slurm: &SlurmBackend) -> Result<Self, Fault> {
        let unreached = |error: &LoginError| {
            let fault = Fault::new(format!("backend {name}: {}", error_line(error)));
            match error.hint() {
                Some(hint) => fault.hint(hint),
                None => fault,
            }
        };
        let login = Login::to(target).map_err(|error| unreached(&error))?;
        let (channel, hello) = login
            .start(HELLO_BOUND)
            .map_err(|error| unreached(&error))?;
        Ok(Self {
            name: name.to_owned(),
            target: Target {
                home: Some(hello.home.clone()),
                ..target.clone()
            },
            cluster: slurm.cluster.clone(),
            node_dir: slurm.node_dir.clone(),
            login,
            session: RefCell::new(Some(channel)),
            id: JobId::generate(),
            home: hello.home,
            tree: Tree::default(),
            note: None,
            checked: OnceCell::new(),
        })
    }

    /// Looks at the directory that the job is to work in, and gives it its place there. One that was not
    /// named and holds the user's whole home is left where it is.
    pub(crate) fn look_at_workdir(&mut self, spec: &mut JobSpec, named: bool) -> Option<Fault> {
        let here = spec.workdir.take()?;
        spec.workdir = Some(format!("{}/workdirs/{}", self.home, self.id));
        let home = std::env::var_os("HOME");
        if !named && home.is_some_and(|home| Path::new(&home).starts_with(&here)) {
            self.note = Some(format!(
                "the job works in an empty directory: {here} is not copied unless `workdir` names it"
            ));
            return None;
        }
        match Tree::survey(Path::new(&here)) {
            Ok(tree) => {
                if tree.bytes >= WORTH_SAYING {
                    self.note = Some(format!(
                        "copies {} to {} ({IGNORE} leaves out what it names)",
                        text::size(tree.bytes),
                        self.target.host
                    ));
                }
                self.tree = tree;
                None
            }
            Err(error @ TreeError::TooLarge { .. }) => Some(
                Fault::of("workdir", format!("{here}: {error}")).hint(format!(
                    "name what is not needed in {here}/{IGNORE}, as in a .gitignore, or choose another \
                     directory with `--workdir`"
                )),
            ),
            Err(error) => Some(Fault::of("workdir", format!("{here}: {error}"))),
        }
    }

    /// The job's plan, or what stands against it; asked once.
    pub(crate) fn check(&self, input: &JobInput) -> Result<Checked, Vec<Fault>> {
        let checked = self.checked.get_or_init(|| {
            let asked = self.ask(&Request::Check(self.job(input)));
            let reply: Reply<Checked> = asked.map_err(|error| vec![self.broken(&error)])?;
            reply.map_err(|refusal| {
                if refusal.faults.is_empty() {
                    let text = format!("backend {}: {}", self.name, refusal.text);
                    let hint = refusal.hints.into_iter().next();
                    return vec![Fault {
                        hint,
                        ..Fault::new(text)
                    }];
                }
                refusal.faults.into_iter().map(fault).collect()
            })
        });
        match checked {
            Ok(checked) => Ok(Checked {
                plan: checked.plan.clone(),
                notes: checked.notes.clone(),
            }),
            Err(faults) => Err(faults.clone()),
        }
    }

    /// What to know about the job.
    pub(crate) fn notes(&self, input: &JobInput) -> Vec<String> {
        let checked = self.check(input).map(|checked| checked.notes);
        self.note
            .iter()
            .cloned()
            .chain(checked.unwrap_or_default())
            .collect()
    }

    /// Its batch script.
    pub(crate) fn render(&self, input: &JobInput) -> Result<String, ExpectedError> {
        let what = format!("have {} render the job", self.target.host);
        let asked: Result<Reply<String>, _> = self.ask(&Request::Render(self.job(input)));
        let reply = asked.map_err(|error| super::failed(&what, error))?;
        reply.map_err(|refusal| refused(&what, refusal))
    }

    /// The job as the other side is told of it.
    pub(super) fn job(&self, input: &JobInput) -> Job {
        Job {
            id: self.id,
            backend: self.name.clone(),
            cluster: self.cluster.clone(),
            node_dir: self.node_dir.clone(),
            spec: input.spec.clone(),
            file_name: input.file_name.clone(),
            env: input.env.clone(),
        }
    }

    /// Asks over the connection that is open, or a new one.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
    ) -> Result<Reply<T>, LoginError> {
        self.with(|channel| ask(channel, request, ANSWER_BOUND))
    }

    /// Does something over the connection that is open, or a new one. One that failed is not used again.
    pub(super) fn with<T>(
        &self,
        action: impl FnOnce(&mut Channel) -> Result<T, LoginError>,
    ) -> Result<T, LoginError> {
        let open = self.session.borrow_mut().take();
        let mut channel = match open {
            Some(channel) => channel,
            None => self.login.start(HELLO_BOUND)?.0,
        };
        let done = action(&mut channel)?;
        *self.session.borrow_mut() = Some(channel);
        Ok(done)
    }

    fn broken(&self, error: &LoginError) -> Fault {
        let fault = Fault::new(format!("backend {}: {}", self.name, error_line(error)));
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}
