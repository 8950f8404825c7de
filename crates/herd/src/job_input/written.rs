//! A job that came as a command and flags, or as a batch script, written as the job file that says the same.

use herd_core::spec::{Allocation, Command, JobSpec, ProcsPerNode, SlurmEnvironment, SlurmOptions};
use serde_json::{Map, Value, json};

use crate::jobs;
use crate::printer::yaml;

/// The job file. Only what a command line or a batch script can say is looked at; defaults are left out.
pub(crate) fn job_file(spec: &JobSpec) -> Vec<u8> {
    let plain = JobSpec::default();
    let mut file = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            file.insert(key.to_owned(), value);
        }
    };
    put("name", spec.name.as_ref().map(|name| json!(name)));
    let kind = (spec.job_type != plain.job_type).then(|| json!(jobs::type_name(spec.job_type)));
    put("type", kind);
    put(
        "nodes",
        (spec.nodes != plain.nodes).then(|| json!(spec.nodes)),
    );
    put(
        "procs_per_node",
        match spec.procs_per_node {
            ProcsPerNode::Gpu => Some(json!("gpu")),
            ProcsPerNode::Count(1) => None,
            ProcsPerNode::Count(number) => Some(json!(number)),
        },
    );
    let asked = &spec.resources;
    let mut resources = Map::new();
    for (key, value) in [
        ("cpus", asked.cpus.map(|number| json!(number))),
        ("memory", asked.memory.map(|size| json!(size.to_string()))),
        ("gpus", asked.gpus.map(|number| json!(number))),
        ("gpu_type", asked.gpu_type.as_ref().map(|kind| json!(kind))),
    ] {
        if let Some(value) = value {
            resources.insert(key.to_owned(), value);
        }
    }
    put(
        "resources",
        (!resources.is_empty()).then_some(Value::Object(resources)),
    );
    put(
        "walltime",
        spec.walltime.map(|limit| json!(limit.to_string())),
    );
    put("workdir", spec.workdir.as_ref().map(|path| json!(path)));
    put("env", (!spec.env.is_empty()).then(|| json!(spec.env)));
    put(
        "secrets",
        (!spec.secrets.is_empty()).then(|| json!(spec.secrets)),
    );
    put(
        "env_from",
        (!spec.env_from.is_empty()).then(|| json!(spec.env_from)),
    );
    put(
        "array",
        spec.array.as_ref().map(|array| json!(array.to_string())),
    );
    put("slurm", spec.slurm.as_ref().and_then(slurm));
    put("backend", spec.backend.as_ref().map(|name| json!(name)));
    let run = spec.run.as_ref().map(|command| match command {
        Command::Shell(text) => json!(text),
        Command::Argv(words) => json!(words),
    });
    put("run", run);
    yaml::render(&Value::Object(file)).into_bytes()
}

/// Words for Slurm, where there are any.
fn slurm(options: &SlurmOptions) -> Option<Value> {
    let words = [
        ("partition", &options.partition),
        ("account", &options.account),
        ("qos", &options.qos),
    ];
    let given = words.into_iter();
    let mut map: Map<String, Value> = given
        .filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?))))
        .collect();
    if !options.extra.is_empty() {
        map.insert("extra".to_owned(), json!(options.extra));
    }
    if options.allocation == Allocation::Job {
        map.insert("allocation".to_owned(), json!(options.allocation));
    }
    if options.environment == SlurmEnvironment::Script {
        map.insert("environment".to_owned(), json!(options.environment));
    }
    (!map.is_empty()).then_some(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use herd_core::jobfile;
    use herd_core::spec::{JobType, Resources, SecretSource};
    use herd_core::units::{Bytes, Span};

    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same_job() {
        let words = ["sh", "-c", "echo '\"$x\" größe\n", "", "- a: b", "#"];
        let plain = JobSpec {
            run: Some(Command::Argv(words.map(str::to_owned).to_vec())),
            ..JobSpec::default()
        };
        let full = JobSpec {
            name: Some("night-1".to_owned()),
            job_type: JobType::Pytorch,
            nodes: 2,
            procs_per_node: ProcsPerNode::Count(4),
            resources: Resources {
                cpus: Some(2),
                memory: Some(Bytes(3 << 29)),
                gpus: Some(0),
                gpu_type: Some("h800".to_owned()),
            },
            walltime: Some(Span { ms: 90_500 }),
            workdir: Some("/tmp/a b".to_owned()),
            env: [("A".to_owned(), "1\n\ttrue ".to_owned())].into(),
            secrets: [("T".to_owned(), SecretSource::File("/x".to_owned()))].into(),
            backend: Some("local".to_owned()),
            env_from: vec!["PATH".to_owned()],
            slurm: Some(SlurmOptions {
                partition: Some("gpu".to_owned()),
                extra: vec!["--exclusive".to_owned()],
                ..SlurmOptions::default()
            }),
            ..plain.clone()
        };
        let gpus = JobSpec {
            job_type: JobType::Pytorch,
            procs_per_node: ProcsPerNode::Gpu,
            ..plain.clone()
        };
        let script = JobSpec {
            slurm: Some(SlurmOptions {
                environment: SlurmEnvironment::Script,
                ..SlurmOptions::default()
            }),
            ..plain.clone()
        };
        for spec in [plain, full, gpus, script] {
            let text = job_file(&spec);
            assert_eq!(jobfile::parse(&text, "f").unwrap(), spec);
        }
    }
}
