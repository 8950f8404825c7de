//! A supervisor as Python sees it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use herd_launch::supervision::client;
use herd_launch::supervision::protocol::{Report, Request, Text, Worker};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::explain;

type Variables = Vec<(OsString, OsString)>;
/// Arguments, variables over the common ones, file of stdout and of stderr (empty: the host's own
/// stream).
type Described = (Vec<OsString>, Variables, OsString, OsString);

/// The process that looks after workers: `Supervisor(program, env, workers, marker)`.
#[pyclass(module = "herdsman._native")]
pub(crate) struct Supervisor {
    inner: client::Supervisor,
}

#[pymethods]
impl Supervisor {
    /// Starts it. What it answers is among the reports.
    #[new]
    #[pyo3(signature = (program, env, workers, marker=None))]
    fn new(
        py: Python<'_>,
        program: PathBuf,
        env: Variables,
        workers: Vec<Described>,
        marker: Option<String>,
    ) -> PyResult<Self> {
        let request = Request::Start {
            env: texts(env),
            workers: workers.into_iter().map(worker).collect(),
            marker,
        };
        let started = py.detach(|| client::Supervisor::start(&program, &request));
        let inner = started.map_err(|error| fault(&error))?;
        Ok(Self { inner })
    }

    /// Its process.
    #[getter]
    fn pid(&self) -> u32 {
        self.inner.pid()
    }

    /// The descriptor that is readable when there is a report, or it has ended.
    fn fileno(&self) -> i32 {
        self.inner.channel().as_raw_fd()
    }

    /// The next report, without waiting: `("started", [pid…])`, `("failed", index, errno, subject,
    /// message)`, `("exited", index, code, at, stopped, abandoned)`, `("closed",)`, or None.
    fn report<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let report = self.inner.hear().map_err(|error| fault(&error))?;
        let tuple = match report {
            None if self.inner.is_closed() => ("closed",).into_pyobject(py)?,
            None => return Ok(None),
            Some(Report::Started { pids }) => ("started", pids).into_pyobject(py)?,
            Some(Report::Failed {
                index,
                errno,
                subject,
                message,
            }) => {
                let subject = subject.map(OsString::from);
                ("failed", index, errno, subject, message).into_pyobject(py)?
            }
            Some(Report::Exited {
                index,
                code,
                at_ms,
                stopped,
                abandoned,
            }) => {
                let at = Duration::from_millis(at_ms).as_secs_f64();
                ("exited", index, code, at, stopped, abandoned).into_pyobject(py)?
            }
        };
        Ok(Some(tuple))
    }

    /// Has it look after a worker that this process started itself.
    fn watch(&mut self, py: Python<'_>, pid: i32) -> PyResult<()> {
        self.say(py, &Request::Watch { pid })
    }

    /// Tells it that this process has seen to all of those.
    fn unwatch(&mut self, py: Python<'_>) -> PyResult<()> {
        self.say(py, &Request::Unwatch)
    }

    /// Sends a worker a signal, or its whole process group.
    fn signal(&mut self, py: Python<'_>, index: usize, signal: i32, group: bool) -> PyResult<()> {
        let request = Request::Signal {
            index,
            signal,
            group,
        };
        self.say(py, &request)
    }

    /// Asks all workers to end, and has them killed after the grace in seconds; again: at once.
    fn stop(&mut self, py: Python<'_>, signal: i32, grace: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace.max(0.0)).unwrap_or(Duration::MAX);
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.say(py, &Request::Stop { signal, grace_ms })
    }

    /// Lets go of it: it ends its workers, and itself then.
    fn leave(&mut self) {
        self.inner.leave();
    }

    /// Reaps the supervisor where it has ended or does so within the seconds; whether it has.
    fn reap(&mut self, py: Python<'_>, seconds: f64) -> bool {
        let bound = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
        py.detach(|| self.inner.reap(bound))
    }
}

impl Supervisor {
    fn say(&mut self, py: Python<'_>, request: &Request) -> PyResult<()> {
        py.detach(|| self.inner.say(request))
            .map_err(|error| fault(&error))
    }
}

/// What the system has refused is an `OSError` with its number, as `subprocess` raises it.
fn fault(error: &client::ClientError) -> PyErr {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error_here) = cause {
        let number = error_here
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if let Some(number) = number {
            return PyOSError::new_err((number, herd_core::text::error_line(error)));
        }
        cause = error_here.source();
    }
    explain(error)
}

fn worker((argv, env, stdout, stderr): Described) -> Worker {
    let file = |path: OsString| (!path.is_empty()).then(|| Text::from(path));
    Worker {
        argv: argv.into_iter().map(Text::from).collect(),
        env: texts(env),
        stdout: file(stdout),
        stderr: file(stderr),
    }
}

fn texts(variables: Variables) -> Vec<(Text, Text)> {
    let pairs = variables.into_iter();
    pairs
        .map(|(name, value)| (Text::from(name), Text::from(value)))
        .collect()
}
