//! `herd render`: what would be submitted, with every value resolved; nothing is sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::spec::{Command, JobType, ProcsPerNode, Retry, RetryOn, SetupOn};
use serde_json::{Value, json};

use super::Outcome;
use crate::backend_slurm;
use crate::backends::Place;
use crate::cli::Format;
use crate::cli::job::RenderArgs;
use crate::error::ExpectedError;
use crate::job_input::program::RENDERED;
use crate::job_input::{self, JobInput};
use crate::jobs;
use crate::printer::{Printer, yaml};

/// Shows the plan.
pub(crate) fn run(args: &RenderArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let input = job_input::read(&args.job, home)?;
    for warning in &input.warnings {
        printer.warn(warning);
    }
    for note in &input.notes {
        printer.note(note);
    }
    let plan = input.plan(JobId::generate())?;
    let notes = input.plan_notes();
    match args.output.output {
        Format::Table | Format::Wide if !matches!(input.place, Place::Local) => {
            for note in &notes {
                printer.note(note);
            }
            let script = match &input.place {
                Place::Login(login) => login.render(&input)?,
                Place::Slurm(_) | Place::Local => {
                    backend_slurm::script(&jobs::open_home(home)?, &input, &plan)?
                }
            };
            printer.data(script.as_bytes());
        }
        Format::Table | Format::Wide => {
            let text = people(&plan, &input, &notes);
            printer.data(text.as_bytes());
        }
        Format::Id => printer.line(&plan.name),
        Format::Json => printer.json(&machine(&plan)?)?,
        Format::Yaml => printer.data(yaml::render(&machine(&plan)?).as_bytes()),
    }
    Ok(0)
}

/// The plan as a program reads it, without what only a submission gives it.
fn machine(plan: &Plan) -> Result<Value, ExpectedError> {
    let mut value =
        serde_json::to_value(plan).map_err(|error| ExpectedError::failed("write JSON", error))?;
    if let Some(map) = value.as_object_mut() {
        map.remove("job");
        map.remove("generation");
    }
    Ok(value)
}

fn people(plan: &Plan, input: &JobInput, notes: &[String]) -> String {
    let mut out = String::new();
    writeln!(out, "{RENDERED} Nothing was sent.").expect("a String takes everything");
    for note in notes {
        writeln!(out, "# Note: {note}").expect("a String takes everything");
    }
    let mut put = |key: &str, value: Value| yaml::entry(&mut out, key, &value, 0);
    put("name", json!(plan.name));
    put("type", json!(jobs::type_name(plan.job_type)));
    put("backend", json!(plan.backend));
    put("nodes", json!(plan.nodes));
    if matches!(input.spec.procs_per_node, ProcsPerNode::Gpu) || plan.procs_per_node != 1 {
        put("procs_per_node", json!(plan.procs_per_node));
    }
    put("ranks", json!(plan.world_size()));
    let resources = resources(plan);
    if !resources.is_empty() {
        put("resources_per_node", json!(resources));
    }
    if let Some(limit) = plan.walltime {
        put("walltime", json!(limit.to_string()));
    }
    put("grace", json!(plan.grace.to_string()));
    put("workdir", json!(plan.workdir));
    if plan.inherit_env {
        put("environment", json!("inherited from the caller"));
    }
    if !plan.env.is_empty() {
        put("env", json!(plan.env));
    }
    if !plan.secret_names.is_empty() {
        put("secrets", json!(plan.secret_names));
    }
    if let Some(setup) = &plan.setup {
        let on = match setup.on {
            SetupOn::First => "first",
            SetupOn::Each => "each",
        };
        put("setup", json!({"on": on, "run": command(&setup.run)}));
    }
    if plan.job_type == JobType::Ray {
        put("services", services(plan));
    }
    if let Some(run) = &plan.run {
        put("run", command(run));
    }
    if let Some(array) = &plan.array {
        let first = array.indices.first().copied().unwrap_or(0);
        let last = array.indices.last().copied().unwrap_or(0);
        let mut value = json!({"tasks": array.indices.len(), "first": first, "last": last});
        if let Some(limit) = array.limit {
            value["at_once"] = json!(limit);
        }
        put("array", value);
    }
    if let Some(rules) = &plan.retry {
        put("retry", retry(rules));
    }
    if !plan.after.is_empty() {
        let jobs: Vec<&str> = plan.after.iter().map(|after| after.job.as_str()).collect();
        put("after", json!(jobs));
    }
    put("priority", json!(plan.priority));
    out
}

fn resources(plan: &Plan) -> BTreeMap<&'static str, Value> {
    let asked = &plan.resources;
    [
        ("cpus", asked.cpus.map(|number| json!(number))),
        ("memory", asked.memory.map(|bytes| json!(bytes.to_string()))),
        ("gpus", asked.gpus.map(|number| json!(number))),
        ("gpu_type", asked.gpu_type.as_ref().map(|kind| json!(kind))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}

/// The daemons of a Ray job; their ports are chosen when they start.
fn services(plan: &Plan) -> Value {
    let of = |node: u32| match node {
        0 => "ray start --head".to_owned(),
        _ => "ray start --address=(node0)".to_owned(),
    };
    let all = (0..plan.nodes).map(|node| (format!("node{node}"), json!(of(node))));
    Value::Object(all.collect())
}

fn command(command: &Command) -> Value {
    match command {
        Command::Shell(text) => json!(text),
        Command::Argv(words) => json!(words),
    }
}

fn retry(retry: &Retry) -> Value {
    let on: Vec<String> = retry
        .on
        .iter()
        .map(|on| match on {
            RetryOn::Reason(kind) => kind.name().to_owned(),
            RetryOn::Exit(code) => format!("exit:{code}"),
        })
        .collect();
    let mut value = json!({"max": retry.max});
    if !on.is_empty() {
        value["on"] = json!(on);
    }
    if let Some(backoff) = retry.backoff {
        value["backoff"] = json!(backoff.to_string());
    }
    value
}
