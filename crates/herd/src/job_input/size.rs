//! Whether a job is small enough to be handed to its nodes and to be started there. What is too large
//! would fail only when the first rank starts; it is refused before there is a job (I13). Pure but for
//! [`Limits::of_this_process`].

use std::collections::BTreeMap;
use std::ffi::OsString;

use herd_core::plan::Plan;
use herd_core::spec::Command;
use rustix::process::Resource;

use crate::error::Fault;

/// Largest string that the kernel gives to a program, its NUL included: `MAX_ARG_STRLEN` of
/// `include/uapi/linux/binfmts.h`.
const STRING_MAX: usize = 128 * 1024;
/// Bounds of arguments and environment together: `bprm_stack_limits` of the kernel's `fs/exec.c`.
const TOGETHER: (usize, usize) = (128 * 1024, 6 * 1024 * 1024);
/// A pointer to each string counts, too.
const POINTER: usize = size_of::<usize>();
/// What herd's own variables, and the shell around a command, take besides the nodes' addresses.
const OWN: usize = 32 * 1024;
/// What a node's address takes in the two variables that list all of them.
const PER_ADDRESS: usize = 128;
/// What a node's name and address take in a message.
const PER_NODE: usize = 512;
const HINT: &str = "put large values into files, and give the files' names";

/// What the system and the link take.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Bytes of arguments and environment together.
    exec: usize,
    /// Bytes of one message to a node.
    message: usize,
    /// Sizes of the variables that ranks inherit, by name, where they inherit any.
    inherited: BTreeMap<OsString, usize>,
}

impl Limits {
    /// Those of this process, whose limits and environment local ranks inherit. Elsewhere the nodes'
    /// own limits count, which are not known here.
    pub(crate) fn of_this_process(inherit_env: bool) -> Self {
        if !inherit_env {
            return Self {
                exec: TOGETHER.1,
                message: herd_link::MAX_FRAME,
                inherited: BTreeMap::new(),
            };
        }
        let stack = rustix::process::getrlimit(Resource::Stack).current;
        let quarter = stack.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes / 4).unwrap_or(usize::MAX)
        });
        let sizes = std::env::vars_os().map(|(name, value)| {
            let bytes = name.len() + 1 + value.len() + 1 + POINTER;
            (name, bytes)
        });
        Self {
            exec: quarter.clamp(TOGETHER.0, TOGETHER.1),
            message: herd_link::MAX_FRAME,
            inherited: sizes.collect(),
        }
    }
}

/// What is too large of a job.
pub(super) fn faults(
    plan: &Plan,
    secrets: &BTreeMap<String, String>,
    limits: &Limits,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, value) in &plan.env {
        if name.len() + 1 + value.len() + 1 > STRING_MAX {
            let text = "is larger than 128 KiB with its name, the most that the system gives to a \
                        program in one variable";
            faults.push(Fault::of(format!("env.{name}"), text).hint(HINT));
        }
    }
    let nodes = plan.nodes as usize;
    let arguments = plan.setup.iter().map(|setup| words(&setup.run));
    let arguments = arguments.chain(plan.run.iter().map(words)).max();
    let together =
        environment(plan, secrets, limits) + arguments.unwrap_or(0) + OWN + PER_ADDRESS * nodes;
    if together > limits.exec {
        let text = format!(
            "the job's variables and arguments are {together} bytes with those of its \
             surroundings, and the system gives a program at most {}",
            limits.exec
        );
        faults.push(Fault::of("env", text).hint(HINT));
    }
    // As the driver sends it to each node, without the tasks of an array.
    let sent = Plan {
        array: None,
        ..plan.clone()
    };
    let json = |length: serde_json::Result<Vec<u8>>| length.map_or(0, |bytes| bytes.len());
    let message = json(serde_json::to_vec(&sent))
        + json(serde_json::to_vec(secrets))
        + OWN
        + PER_NODE * nodes;
    if message > limits.message {
        let text = format!(
            "the job takes {message} bytes to be told to its nodes, and {} are the most",
            limits.message
        );
        faults.push(Fault::new(text).hint(HINT));
    }
    faults
}

/// Bytes of the environment of a rank.
fn environment(plan: &Plan, secrets: &BTreeMap<String, String>, limits: &Limits) -> usize {
    let own: BTreeMap<&str, &str> = plan
        .env
        .iter()
        .chain(secrets)
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let inherited = limits.inherited.iter().filter(|(name, _)| {
        let name = name.to_str();
        !name.is_some_and(|name| own.contains_key(name))
    });
    let set = own
        .iter()
        .map(|(name, value)| name.len() + 1 + value.len() + 1 + POINTER);
    inherited.map(|(_, bytes)| bytes).sum::<usize>() + set.sum::<usize>()
}

fn words(command: &Command) -> usize {
    match command {
        Command::Shell(text) => text.len() + 1 + POINTER,
        Command::Argv(words) => words.iter().map(|word| word.len() + 1 + POINTER).sum(),
    }
}
