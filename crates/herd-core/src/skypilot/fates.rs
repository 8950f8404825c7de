//! Every key of a SkyPilot task file and what becomes of it.

/// What becomes of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is carried over.
    Read,
    /// The job gives the same result without it; the reason says so.
    Ignored(&'static str),
    /// The job would give another result without it; the reason and what to do.
    Refused(&'static str, &'static str),
}

use Fate::{Ignored, Read, Refused};

const NO_CLOUD: &str = "herd provisions no machines";
const NO_CLUSTER: &str = "herd keeps no cluster alive after the job";

/// The keys of a task.
pub(super) const TASK: &[(&str, Fate)] = &[
    ("name", Read),
    ("workdir", Read),
    ("num_nodes", Read),
    ("resources", Read),
    ("envs", Read),
    ("secrets", Read),
    ("file_mounts", Read),
    ("setup", Read),
    ("run", Read),
    (
        "volumes",
        Refused(
            "volumes cannot be mounted",
            "name the data's path in the command",
        ),
    ),
    (
        "service",
        Refused(
            "services are not supported",
            "run the server as an ordinary job",
        ),
    ),
    (
        "pool",
        Refused("pools are not supported", "submit the jobs one by one"),
    ),
    ("inputs", Ignored("only used by SkyPilot's optimizer")),
    ("outputs", Ignored("only used by SkyPilot's optimizer")),
    (
        "event_callback",
        Ignored("herd writes events into the job's directory"),
    ),
    ("config", Ignored("SkyPilot's own settings")),
    ("experimental", Ignored("SkyPilot's own settings")),
];

/// The keys of `resources`.
pub(super) const RESOURCES: &[(&str, Fate)] = &[
    ("accelerators", Read),
    ("cpus", Read),
    ("memory", Read),
    ("infra", Ignored("choose the place to run with `--backend`")),
    ("cloud", Ignored(NO_CLOUD)),
    ("region", Ignored(NO_CLOUD)),
    ("zone", Ignored(NO_CLOUD)),
    ("instance_type", Ignored(NO_CLOUD)),
    ("use_spot", Ignored(NO_CLOUD)),
    (
        "spot_recovery",
        Ignored("write `retry` in a job file instead"),
    ),
    (
        "job_recovery",
        Ignored("write `retry` in a job file instead"),
    ),
    ("max_hourly_cost", Ignored(NO_CLOUD)),
    ("disk_size", Ignored(NO_CLOUD)),
    ("disk_tier", Ignored(NO_CLOUD)),
    ("local_disk", Ignored(NO_CLOUD)),
    ("network_tier", Ignored(NO_CLOUD)),
    (
        "ports",
        Ignored("herd opens no ports; the nodes' own rules hold"),
    ),
    ("labels", Ignored(NO_CLOUD)),
    ("autostop", Ignored(NO_CLUSTER)),
    (
        "priority",
        Ignored("write `priority` in a job file instead"),
    ),
    (
        "accelerator_args",
        Refused("settings of TPUs cannot be honoured", "remove it"),
    ),
    (
        "image_id",
        Refused(
            "a SkyPilot image cannot be used",
            "remove it; this release runs no containers, so install what the job needs in `setup`",
        ),
    ),
    (
        "any_of",
        Refused("alternatives cannot be honoured", "keep one of them"),
    ),
    (
        "ordered",
        Refused("alternatives cannot be honoured", "keep one of them"),
    ),
    (
        "_cluster_config_overrides",
        Ignored("SkyPilot's own settings"),
    ),
];
