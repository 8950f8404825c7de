//! From the parts of a command line to complete, valid flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{FlagError, Origin};
use super::reader::{Bad, Reader, refused};
use super::scan::Scanned;
use super::table::FLAGS;
use super::values::{
    AffinityMode, DEFAULT_SIGNALS, EventLog, ExitRule, NodeCount, NprocPerNode, RdzvBackend,
};
use super::{Command, Flags, endpoint, lists, rdzv_conf, values};
use crate::store::Network;
use crate::torchrun::mask::StdMap;

/// What torchrun waits between the request to end and SIGKILL.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// How often torchrun looks at its workers.
const MONITOR_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn command(
    scanned: Scanned,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Command, FlagError> {
    let reader = Reader {
        scanned: &scanned,
        variable,
    };
    if scanned.has("help") {
        return Ok(Command::Help);
    }
    if let Some(shell) = reader.value("print-completion", values::shell)? {
        return Ok(Command::PrintCompletion(shell));
    }
    let mut flags = flags(&reader)?;
    flags.script = scanned.script.ok_or(FlagError::NoScript)?;
    flags.args = scanned.args;
    if flags.script.is_empty() {
        return Err(FlagError::NoScript);
    }
    check(&flags)?;
    warn(&mut flags);
    Ok(Command::Launch(Box::new(flags)))
}

/// All but the script.
fn flags(reader: &Reader<'_>) -> Result<Flags, FlagError> {
    logs_specs(reader)?;
    // Checked, though every worker is a process of its own.
    reader.text("start-method")?;
    let own = |name: &str| (reader.variable)(name).and_then(|value| value.into_string().ok());
    let mask = |text: &str| {
        text.parse::<StdMap>().map_err(|_error| {
            Bad::new(
                "is no mask of streams",
                "give 0 (none), 1 (stdout), 2 (stderr), 3 (both), or RANK:MASK,… as in `0:3,1:2`",
            )
        })
    };
    let texts = |name| reader.value(name, |text| Ok(lists::filters(text)));
    let prefix = reader.value("log-line-prefix-template", |text| Ok(text.to_owned()))?;
    Ok(Flags {
        nnodes: reader
            .value("nnodes", values::nnodes)?
            .unwrap_or(NodeCount { min: 1, max: 1 }),
        nproc_per_node: reader
            .value("nproc-per-node", values::nproc_per_node)?
            .unwrap_or(NprocPerNode::Count(1)),
        node_rank: reader.value("node-rank", |text| {
            values::number(text)
                .map_err(|_bad| Bad::new("is no number of a node", "nodes are numbered from 0"))
        })?,
        role: reader
            .value("role", |text| Ok(text.to_owned()))?
            .unwrap_or_else(|| "default".to_owned()),
        standalone: reader.switch("standalone")?,
        rdzv_backend: backend(reader)?,
        rdzv_endpoint: reader
            .value("rdzv-endpoint", |text| {
                let text = text.trim();
                (!text.is_empty())
                    .then(|| endpoint::parse(text))
                    .transpose()
            })?
            .flatten(),
        rdzv_id: reader
            .value("rdzv-id", |text| Ok(text.to_owned()))?
            .unwrap_or_else(|| "none".to_owned()),
        rdzv_conf: reader
            .value("rdzv-conf", rdzv_conf::parse)?
            .unwrap_or_default(),
        master_addr: reader.value("master-addr", endpoint::host)?,
        master_port: reader.value("master-port", endpoint::port)?,
        local_addr: reader.value("local-addr", endpoint::host)?,
        module: reader.switch("module")?,
        no_python: reader.switch("no-python")?,
        run_path: reader.switch("run-path")?,
        virtual_local_rank: reader.switch("virtual-local-rank")?,
        numa_binding: numa_binding(reader)?,
        max_restarts: reader
            .value("max-restarts", values::max_restarts)?
            .unwrap_or(0),
        monitor_interval: reader
            .value("monitor-interval", values::interval)?
            .unwrap_or(MONITOR_INTERVAL),
        signals_to_handle: reader
            .value("signals-to-handle", |text| Ok(values::signals(text)))?
            .unwrap_or_else(|| values::signals(DEFAULT_SIGNALS)),
        shutdown_timeout: shutdown_timeout(reader)?,
        log_dir: reader
            .raw("log-dir")
            .map(|(_, path)| PathBuf::from(path))
            .filter(|path| !path.as_os_str().is_empty()),
        redirects: reader.value("redirects", mask)?.unwrap_or_default(),
        tee: reader.value("tee", mask)?.unwrap_or_default(),
        local_ranks_filter: rank_set(reader, "local-ranks-filter")?,
        log_line_prefix_template: prefix
            .or_else(|| own("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"))
            .filter(|template| !template.is_empty()),
        duplicate_stdout_filters: texts("duplicate-stdout-filters")?.unwrap_or_default(),
        duplicate_stderr_filters: texts("duplicate-stderr-filters")?.unwrap_or_default(),
        event_log: reader
            .value("event-log-handler", values::event_log)?
            .unwrap_or(EventLog::Null),
        exit_rule: reader
            .value("exit-code", values::exit_rule)?
            .unwrap_or(ExitRule::One),
        tee_ranks: rank_set(reader, "tee-ranks")?,
        hang_timeout: reader.value("hang-timeout", values::duration)?,
        summary: reader.switch("summary")?,
        verbose: reader.switch("verbose")?,
        store_allow: store_allow(reader)?,
        script: OsString::new(),
        args: Vec::new(),
        given: FLAGS
            .iter()
            .filter(|flag| reader.is_given(flag))
            .map(|flag| flag.name)
            .collect(),
        warnings: Vec::new(),
    })
}

fn rank_set(reader: &Reader<'_>, name: &str) -> Result<Option<lists::RankSet>, FlagError> {
    let set = reader.value(name, |text| {
        (!text.is_empty()).then(|| lists::ranks(text)).transpose()
    })?;
    Ok(set.flatten())
}

fn numa_binding(reader: &Reader<'_>) -> Result<Option<AffinityMode>, FlagError> {
    reader.value("numa-binding", values::affinity_mode)
}

/// The flag may come several times.
fn store_allow(reader: &Reader<'_>) -> Result<Vec<Network>, FlagError> {
    let mut all = Vec::new();
    for (flag, value) in &reader.scanned.given {
        if flag.name == "store-allow"
            && let Some(value) = value
        {
            let text = value.to_string_lossy();
            let networks = endpoint::networks(&text)
                .map_err(|bad| refused(Origin::Flag(flag.name), &text, bad))?;
            all.extend(networks);
        }
    }
    if all.is_empty() {
        all = reader
            .value("store-allow", endpoint::networks)?
            .unwrap_or_default();
    }
    Ok(all)
}

fn backend(reader: &Reader<'_>) -> Result<RdzvBackend, FlagError> {
    let Some((origin, name)) = reader.text("rdzv-backend")? else {
        return Ok(RdzvBackend::Static);
    };
    let (reason, hint) = match name.to_ascii_lowercase().as_str() {
        "static" => return Ok(RdzvBackend::Static),
        "c10d" => return Ok(RdzvBackend::C10d),
        "etcd" | "etcd-v2" => (
            format!("herd has no etcd client, so there is no `{name}` rendezvous"),
            "use `--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT`: one of the launchers serves it, and no etcd is needed",
        ),
        _ => (
            format!(
                "there is no rendezvous {}; torchrun's plug-ins are Python and cannot be loaded here",
                herd_core::text::quoted(&name)
            ),
            "use `--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT`, or `static` with `--node-rank` and `--master-addr`",
        ),
    };
    Err(FlagError::Refused {
        origin,
        reason,
        hint: hint.to_owned(),
    })
}

/// torchrun loads a Python class here; the one it has itself is what herd does.
fn logs_specs(reader: &Reader<'_>) -> Result<(), FlagError> {
    match reader.text("logs-specs")? {
        Some((origin, name)) if name != "default" => Err(FlagError::Refused {
            origin,
            reason: format!(
                "{} would be a Python plug-in, which cannot be loaded here",
                herd_core::text::quoted(&name)
            ),
            hint: "use `--log-dir`, `--redirects`, `--tee` and `--local-ranks-filter`".to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

fn shutdown_timeout(reader: &Reader<'_>) -> Result<Duration, FlagError> {
    const VARIABLE: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    if let Some(timeout) = reader.value("shutdown-timeout", values::seconds)? {
        return Ok(timeout);
    }
    let value = (reader.variable)(VARIABLE).filter(|value| !value.is_empty());
    let Some(value) = value else {
        return Ok(SHUTDOWN_TIMEOUT);
    };
    let text = value.to_string_lossy();
    values::seconds(&text).map_err(|bad| refused(Origin::Variable(VARIABLE.to_owned()), &text, bad))
}

/// What no single flag can tell.
fn check(flags: &Flags) -> Result<(), FlagError> {
    if flags.module && flags.no_python && !flags.run_path {
        return Err(FlagError::Conflict {
            reason: "--module and --no-python exclude each other".to_owned(),
            hint: "leave out --no-python: a module needs Python".to_owned(),
        });
    }
    flags.rendezvous().map(drop)
}

fn warn(flags: &mut Flags) {
    let unknown = &flags.signals_to_handle.unknown;
    if !unknown.is_empty() {
        flags.warnings.push(format!(
            "--signals-to-handle: no signal that can be handled: {}; left out",
            unknown.join(", ")
        ));
    }
    let ignored: Vec<_> = ["rdzv-backend", "rdzv-endpoint", "rdzv-id"]
        .into_iter()
        .filter(|name| flags.standalone && flags.given.contains(name))
        .map(|name| format!("--{name}"))
        .collect();
    if !ignored.is_empty() {
        flags.warnings.push(format!(
            "--standalone chooses the rendezvous itself; ignored: {}",
            ignored.join(", ")
        ));
    }
}
