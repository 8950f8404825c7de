//! What flags say over a job: each value read, every fault kept.

use std::fmt::Display;
use std::str::FromStr;

use herd_core::jobfile::{Unread, keys};
use herd_core::spec::{JobSpec, JobType, ProcsPerNode};
use herd_core::units::{Bytes, Span};

use super::env_file::is_name;
use super::secrets;
use crate::backends::LOCAL;
use crate::cli::job::JobArgs;
use crate::error::Fault;

/// Puts the flags over the specification. A fault of a value names its key; `origin` names the flag.
pub(crate) fn apply(
    args: &JobArgs,
    spec: &mut JobSpec,
    unread: &mut Unread,
    faults: &mut Vec<Fault>,
) {
    let mut over = Over { unread, faults };
    let resources = &mut spec.resources;
    over.set("nodes", args.nodes.as_ref(), &mut spec.nodes, |text| {
        count(text, keys::NODES)
    });
    let procs = &mut spec.procs_per_node;
    over.set(
        "procs_per_node",
        args.procs_per_node.as_ref(),
        procs,
        |text| match text {
            "gpu" => Ok(ProcsPerNode::Gpu),
            _ => count(text, keys::PROCS).map(ProcsPerNode::Count),
        },
    );
    over.set(
        "resources.cpus",
        args.cpus.as_ref(),
        &mut resources.cpus,
        |text| count(text, keys::CPUS).map(Some),
    );
    let memory = &mut resources.memory;
    over.set("resources.memory", args.mem.as_ref(), memory, |text| {
        parsed::<Bytes>(text).map(Some)
    });
    over.set("walltime", args.time.as_ref(), &mut spec.walltime, |text| {
        positive(parsed::<Span>(text)?, |span| span.ms).map(Some)
    });
    over.set("type", args.job_type.as_ref(), &mut spec.job_type, job_type);
    let kind = resources.gpu_type.take();
    let mut asked = (resources.gpus, kind.clone());
    over.set("resources.gpus", args.gpus.as_ref(), &mut asked, |text| {
        gpus(text).map(|(number, given)| (Some(number), given.or(kind)))
    });
    (resources.gpus, resources.gpu_type) = asked;
    over.set("name", args.name.as_ref(), &mut spec.name, |text| {
        Ok(Some(text.to_owned()))
    });
    slurm(args, spec);
    for text in &args.env {
        match text.split_once('=') {
            Some((name, value)) if is_name(name) => {
                spec.env.insert(name.to_owned(), value.to_owned());
            }
            given => faults.push(malformed(
                given.map_or(text, |(name, _)| name),
                given.is_some(),
            )),
        }
    }
    for text in &args.secret {
        match secrets::parse_flag(text) {
            Ok((name, source)) => {
                spec.secrets.insert(name, source);
            }
            Err(fault) => faults.push(fault),
        }
    }
}

/// Slurm's flags; another backend refuses them ([`refuse_unsupported`]).
fn slurm(args: &JobArgs, spec: &mut JobSpec) {
    let given = [
        &args.partition,
        &args.account,
        &args.qos,
        &args.nodelist,
        &args.exclude,
    ];
    if given.iter().all(|flag| flag.is_none()) {
        return;
    }
    let options = spec.slurm.get_or_insert_default();
    for (flag, option) in [
        (&args.partition, &mut options.partition),
        (&args.account, &mut options.account),
        (&args.qos, &mut options.qos),
    ] {
        if flag.is_some() {
            option.clone_from(flag);
        }
    }
    for (name, flag) in [("nodelist", &args.nodelist), ("exclude", &args.exclude)] {
        if let Some(nodes) = flag {
            let is_it = |extra: &String| {
                let bare = extra.trim_start_matches('-');
                bare.split('=').next() == Some(name)
            };
            options.extra.retain(|extra| !is_it(extra));
            options.extra.push(format!("--{name}={nodes}"));
        }
    }
}

/// What is wrong with an `--env`, of which `name` stands before the first `=`. Without one it may be a
/// value, which may be private: then it is shown only where it looks like a name.
fn malformed(name: &str, has_value: bool) -> Fault {
    let like_a_name = is_name(name) && !name.contains(|c: char| c.is_lowercase() || c.is_numeric());
    if has_value {
        let name = herd_core::text::quoted(name);
        return Fault::new(format!(
            "--env {name}=…: {name} is not the name of a variable"
        ))
        .hint("use letters, digits and `_`, and no digit at the start");
    }
    let length = name.chars().count();
    let shown = if like_a_name {
        name.to_owned()
    } else {
        format!("(a text of {length} characters)")
    };
    let fault = Fault::new(format!("--env {shown}: is not of the form NAME=VALUE"));
    if like_a_name {
        return fault.hint(format!("`--env \"{name}=${name}\"` passes on yours"));
    }
    fault
}

/// Refuses the flags that mean nothing to a backend (I13).
pub(crate) fn refuse_unsupported(args: &JobArgs, backend: &str, faults: &mut Vec<Fault>) {
    if backend != LOCAL {
        return;
    }
    for (flag, value) in [
        ("--partition", &args.partition),
        ("--account", &args.account),
        ("--qos", &args.qos),
        ("--nodelist", &args.nodelist),
        ("--exclude", &args.exclude),
    ] {
        if value.is_some() {
            let text = format!("{flag}: the local backend has one machine and nothing to choose");
            faults.push(Fault::new(text).hint(format!("leave {flag} out")));
        }
    }
}

/// Values put over those of a file.
struct Over<'a> {
    unread: &'a mut Unread,
    faults: &'a mut Vec<Fault>,
}

impl Over<'_> {
    fn set<T>(
        &mut self,
        key: &str,
        text: Option<&String>,
        target: &mut T,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) {
        let Some(text) = text else { return };
        match read(text) {
            Ok(value) => {
                *target = value;
                self.unread.set(key);
            }
            Err(problem) => {
                self.unread.wrong(key);
                self.faults.push(Fault::of(key, problem));
            }
        }
    }
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn positive<T>(value: T, number: impl Fn(&T) -> u64) -> Result<T, String> {
    if number(&value) == 0 {
        Err("must be more than zero".to_owned())
    } else {
        Ok(value)
    }
}

/// A number within the bounds that a job file has too; what fits a machine is the backend's to say.
fn count(text: &str, (least, most): (u32, u32)) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("is not a whole number from {least} to {most}"))
}

fn gpus(text: &str) -> Result<(u32, Option<String>), String> {
    let (kind, number) = text
        .rsplit_once(':')
        .map_or((None, text), |(k, n)| (Some(k), n));
    let plain = |kind: &str| {
        !kind.is_empty()
            && kind.len() <= 64
            && kind
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    if kind.is_some_and(|kind| !plain(kind)) {
        return Err("is not of the form [TYPE:]N".to_owned());
    }
    Ok((count(number, keys::GPUS)?, kind.map(str::to_owned)))
}

fn job_type(text: &str) -> Result<JobType, String> {
    match text {
        "command" => Ok(JobType::Command),
        "pytorch" => Ok(JobType::Pytorch),
        "mpi" => Ok(JobType::Mpi),
        "ray" => Ok(JobType::Ray),
        _ => Err("is not one of command, pytorch, mpi, ray".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(args: &JobArgs) -> (JobSpec, Vec<String>) {
        let mut spec = JobSpec::default();
        let mut faults = Vec::new();
        apply(args, &mut spec, &mut Unread::default(), &mut faults);
        (spec, faults.into_iter().map(|fault| fault.text).collect())
    }

    #[test]
    fn values_reach_the_specification() {
        let text = |text: &str| Some(text.to_owned());
        let args = JobArgs {
            nodes: text("2"),
            procs_per_node: text("gpu"),
            cpus: text("4"),
            mem: text("32GiB"),
            gpus: text("h800:8"),
            time: text("1-02:00:00"),
            job_type: text("pytorch"),
            name: text("digits"),
            env: vec!["A=b=c".to_owned(), "B=".to_owned()],
            ..JobArgs::default()
        };
        let (spec, faults) = applied(&args);
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!((spec.nodes, spec.procs_per_node), (2, ProcsPerNode::Gpu));
        assert_eq!(spec.resources.memory, Some(Bytes(32 << 30)));
        assert_eq!(spec.resources.gpu_type.as_deref(), Some("h800"));
        assert_eq!(spec.walltime, Some(Span::from_secs(93_600)));
        assert_eq!(spec.env["A"], "b=c");
    }

    #[test]
    fn bounds_are_those_of_a_job_file() {
        let most = keys::NODES.1;
        let faults = |nodes: u32| {
            let args = JobArgs {
                nodes: Some(nodes.to_string()),
                ..JobArgs::default()
            };
            applied(&args).1.len()
        };
        assert_eq!((faults(most), faults(most + 1)), (0, 1));
    }

    #[test]
    fn every_fault_is_kept() {
        let text = |text: &str| Some(text.to_owned());
        let args = JobArgs {
            nodes: text("0"),
            procs_per_node: text("-1"),
            cpus: text("99999999999"),
            mem: text("3XB"),
            gpus: text("a b:1"),
            time: text("5"),
            job_type: text("slurm"),
            env: vec!["secretvalue".to_owned()],
            ..JobArgs::default()
        };
        let (_, faults) = applied(&args);
        assert_eq!(faults.len(), 8, "{faults:?}");
        assert!(!faults.iter().any(|fault| fault.contains("secretvalue")));
        let said = |text: &str| {
            let args = JobArgs {
                env: vec![text.to_owned()],
                ..JobArgs::default()
            };
            applied(&args).1.concat()
        };
        assert_eq!(
            said("MY_VAR"),
            "--env MY_VAR: is not of the form NAME=VALUE"
        );
        assert_eq!(
            said("1A=private"),
            "--env `1A`=…: `1A` is not the name of a variable"
        );
        assert!(said("AKIA123").contains("(a text of 7 characters)"));
    }

    #[test]
    fn i13_slurm_flags_are_refused_by_the_local_backend() {
        let args = JobArgs {
            partition: Some("gpu".into()),
            qos: Some("q".into()),
            ..JobArgs::default()
        };
        let mut faults = Vec::new();
        refuse_unsupported(&args, LOCAL, &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
