//! The kinds of values that flags take, each from its text.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use rustix::process::Signal;

use super::reader::Bad;

/// Most nodes, and most workers of a node: their product is a number of ranks.
const COUNT_MAX: u32 = 32_768;
/// Longest time in seconds that is told apart from forever (about 30 years).
const SECONDS_MAX: f64 = 1e9;

/// Least and greatest number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount {
    /// At least so many, 1 or more.
    pub min: u32,
    /// At most so many.
    pub max: u32,
}

/// How many workers a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NprocPerNode {
    /// So many, 1 or more.
    Count(u32),
    /// One per usable CPU.
    Cpu,
    /// One per GPU.
    Gpu,
    /// One per XPU.
    Xpu,
    /// One per accelerator, or per usable CPU where there is none.
    Auto,
}

/// How nodes find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdzvBackend {
    /// Every node knows its number and node 0's address.
    Static,
    /// Nodes come and go.
    C10d,
}

/// How workers are bound to processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityMode {
    /// All CPUs of the accelerator's NUMA node.
    Node,
    /// All CPUs of its socket.
    Socket,
    /// A share of the node's cores that no other worker has.
    Exclusive,
    /// The cores behind one last-level cache.
    CoreComplex,
}

impl AffinityMode {
    /// The mode with this name, as torchrun and its options object have them.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "node" => Some(Self::Node),
            "socket" => Some(Self::Socket),
            "exclusive" => Some(Self::Exclusive),
            "core-complex" => Some(Self::CoreComplex),
            _ => None,
        }
    }
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventLog {
    /// Nowhere.
    Null,
    /// Standard error, one JSON line each.
    Console,
    /// Appended to this file, one JSON line each.
    File(PathBuf),
}

/// The status after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitRule {
    /// 1, as torchrun's.
    One,
    /// The code of the worker that failed first, 128 + n for signal n.
    Worker,
}

/// A shell that completes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// GNU bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// The TENEX C shell.
    Tcsh,
}

/// Signals that are passed on and end the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalList {
    /// Those that are known and can be handled, each once.
    pub signals: Vec<Signal>,
    /// What else was named: worth a warning, nothing more.
    pub unknown: Vec<String>,
    /// As given: workers see it as `TORCHELASTIC_SIGNALS_TO_HANDLE`.
    pub text: String,
}

/// torchrun's list.
pub(super) const DEFAULT_SIGNALS: &str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, Bad> {
    text.trim().parse().map_err(|_error| {
        Bad::new(
            "is no whole number of the right size",
            "give a number like 2",
        )
    })
}

fn count(text: &str) -> Result<u32, Bad> {
    let count = number(text)?;
    if count > COUNT_MAX {
        return Err(Bad::new(
            "is too large",
            format!("give at most {COUNT_MAX}"),
        ));
    }
    Ok(count)
}

pub(super) fn nnodes(text: &str) -> Result<NodeCount, Bad> {
    let form = || {
        Bad::new(
            "is not `N` or `MIN:MAX`",
            "give `2` for two nodes, `1:4` for one to four",
        )
    };
    let count = |text: &str| {
        count(text).map_err(|bad| {
            if text.trim().parse::<u64>().is_ok() {
                bad
            } else {
                form()
            }
        })
    };
    let nodes = match text.split_once(':') {
        None => {
            let nodes = count(text)?;
            NodeCount {
                min: nodes,
                max: nodes,
            }
        }
        Some((min, max)) => NodeCount {
            min: count(min)?,
            max: count(max)?,
        },
    };
    if nodes.min == 0 || nodes.min > nodes.max {
        return Err(Bad::new(
            "needs 0 < MIN <= MAX",
            "the least number of nodes comes first, as in `1:4`",
        ));
    }
    Ok(nodes)
}

pub(super) fn nproc_per_node(text: &str) -> Result<NprocPerNode, Bad> {
    match text.trim() {
        "cpu" => Ok(NprocPerNode::Cpu),
        "gpu" => Ok(NprocPerNode::Gpu),
        "xpu" => Ok(NprocPerNode::Xpu),
        "auto" => Ok(NprocPerNode::Auto),
        other => match count(other) {
            Ok(0) => Err(Bad::new("is no number of workers", "give 1 or more")),
            Ok(count) => Ok(NprocPerNode::Count(count)),
            Err(bad) if other.parse::<u64>().is_ok() => Err(bad),
            Err(_) => Err(Bad::new(
                "is no number of workers",
                "give a number, cpu, gpu, xpu or auto",
            )),
        },
    }
}

pub(super) fn max_restarts(text: &str) -> Result<u32, Bad> {
    number(text).map_err(|_bad| Bad::new("is no number of restarts", "give 0 or more"))
}

pub(super) fn affinity_mode(text: &str) -> Result<AffinityMode, Bad> {
    AffinityMode::from_name(text)
        .ok_or_else(|| Bad::new("is no mode", "give node, socket, exclusive or core-complex"))
}

pub(super) fn exit_rule(text: &str) -> Result<ExitRule, Bad> {
    match text {
        "one" => Ok(ExitRule::One),
        "worker" => Ok(ExitRule::Worker),
        _ => Err(Bad::new("is no rule", "give one or worker")),
    }
}

pub(super) fn shell(text: &str) -> Result<Shell, Bad> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "tcsh" => Ok(Shell::Tcsh),
        _ => Err(Bad::new("is no shell herd knows", "give bash, zsh or tcsh")),
    }
}

pub(super) fn event_log(text: &str) -> Result<EventLog, Bad> {
    match (text, text.strip_prefix("file:")) {
        ("null", _) => Ok(EventLog::Null),
        ("console", _) => Ok(EventLog::Console),
        (_, Some(path)) if !path.is_empty() => Ok(EventLog::File(PathBuf::from(path))),
        _ => Err(Bad::new(
            "is no handler of events that herd has",
            "give null, console, or file:PATH for one JSON line an event",
        )),
    }
}

/// Seconds, with a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, Bad> {
    let bad = || Bad::new("is no number of seconds", "give seconds like 30 or 0.5");
    let seconds: f64 = text.trim().parse().map_err(|_error| bad())?;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_error| bad())
}

/// Seconds, more than none.
pub(super) fn interval(text: &str) -> Result<Duration, Bad> {
    let interval = seconds(text)?;
    if interval.is_zero() {
        return Err(Bad::new("is no interval", "give more than 0 seconds"));
    }
    Ok(interval)
}

/// A time with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, Bad> {
    let hint = "give a time with its unit, like 90s or 30m";
    let span = herd_core::units::Span::from_str(text)
        .map_err(|error| Bad::new(error.to_string(), hint))?;
    if span.ms == 0 {
        return Err(Bad::new("is no time", hint));
    }
    Ok(span.as_duration())
}

/// Names of signals; those that are none, or that no program can handle, are kept apart.
pub(super) fn signals(text: &str) -> SignalList {
    let mut list = SignalList {
        signals: Vec::new(),
        unknown: Vec::new(),
        text: text.to_owned(),
    };
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        match signal(name) {
            Some(signal) if list.signals.contains(&signal) => {}
            Some(signal) => list.signals.push(signal),
            None => list.unknown.push(
                name.chars()
                    .take(100)
                    .map(herd_core::text::visible)
                    .collect(),
            ),
        }
    }
    list
}

fn signal(name: &str) -> Option<Signal> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = nix::sys::signal::Signal::from_str(&format!("SIG{bare}")).ok()?;
    Signal::from_named_raw(known as i32)
        .filter(|signal| ![Signal::KILL, Signal::STOP].contains(signal))
}
