//! What three releases of Slurm printed is read to the same facts (row 37 of the platform's
//! acceptance table). `recordings/README.md` says how it was recorded.

use herd_slurm::config::Config;
use herd_slurm::exit::ExitCode;
use herd_slurm::job::{self, Id, ShowError};
use herd_slurm::outcome::{Condition, End};
use herd_slurm::reason::Reason;
use herd_slurm::sbatch::{self, Refusal};
use herd_slurm::state::State;
use herd_slurm::{Version, accounting, charge, mpi, node, partition, sacct, squeue};

/// One release: its recordings, and the numbers of the jobs in them.
struct Release {
    version: &'static str,
    failed: u32,
    signalled: u32,
    requeued: u32,
    array: u32,
    waiting: u32,
    cancelled: u32,
}

const OLD: Release = Release {
    version: "22.05",
    failed: 117,
    signalled: 118,
    requeued: 125,
    array: 124,
    waiting: 120,
    cancelled: 122,
};

const fn new(version: &'static str) -> Release {
    Release {
        version,
        failed: 74,
        signalled: 75,
        requeued: 82,
        array: 81,
        waiting: 77,
        cancelled: 79,
    }
}

const RELEASES: [Release; 3] = [OLD, new("24.11"), new("26.05")];

impl Release {
    fn text(&self, name: &str) -> String {
        let root = env!("CARGO_MANIFEST_DIR");
        let path = format!("{root}/tests/recordings/{}/{name}.txt", self.version);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn rows(&self) -> Vec<squeue::Row> {
        squeue::parse(&self.text("squeue"))
    }

    fn row(&self, id: Id) -> squeue::Row {
        let mut rows = self.rows();
        rows.retain(|row| row.id == id);
        assert_eq!(rows.len(), 1, "{id} in {}", self.version);
        rows.remove(0)
    }

    fn condition(&self, job: u32) -> Condition {
        let row = self.row(Id::job(job));
        Condition::of(&row.state, &row.reason, None)
    }
}

fn task(job: u32, task: u32) -> Id {
    Id {
        job,
        task: Some(task),
    }
}

#[test]
fn row_37_the_queue_of_every_release_reads_the_same() {
    for release in &RELEASES {
        let version = release.version;
        assert_eq!(release.rows().len(), 16, "{version}");
        let ended = |end| Condition::Ended(end);
        for (job, condition) in [
            (release.failed, ended(End::Failed(None))),
            (release.signalled, ended(End::Failed(None))),
            (release.cancelled, ended(End::Cancelled)),
        ] {
            assert_eq!(release.condition(job), condition, "{version}");
        }
        let waiting = release.row(Id::job(release.waiting));
        assert_eq!(waiting.reason.code(), "Resources");
        assert_eq!((waiting.nodes, waiting.node_list), (3, None));
        assert!(waiting.start > waiting.submit && waiting.end > waiting.start);
        let requeued = release.row(Id::job(release.requeued));
        assert_eq!(requeued.reason.code(), "BeginTime", "{version}");
        let running = release.row(task(release.array, 1));
        assert_eq!(running.state, State::Running);
        assert_ne!(running.raw, release.array);
        assert_eq!(running.node_list.as_deref(), Some("node1"));
        let rest = release.row(task(release.array, 5));
        assert_eq!(rest.reason.code(), "JobArrayTaskLimit");
        for row in release.rows() {
            assert!(!matches!(row.state, State::Unknown(_)), "{:?}", row.state);
            assert!(row.reason.explain().is_some(), "{}", row.reason);
        }
    }
}

#[test]
fn row_37_accounting_of_every_release_reads_the_same() {
    for release in &RELEASES {
        let rows = sacct::parse(&release.text("sacct"));
        let latest = sacct::latest(&rows);
        let of = |job| latest[&Id::job(job)];
        let failed = of(release.failed);
        assert_eq!(failed.exit, ExitCode::parse("7:0"));
        assert_eq!(of(release.signalled).exit.unwrap().signal, 11);
        let cancelled = of(release.cancelled);
        assert_eq!(
            (&cancelled.state, cancelled.cancelled_by),
            (&State::Cancelled, Some(0))
        );
        assert!(cancelled.end > cancelled.start && cancelled.elapsed > 0);
        // 22.05 has no row for an attempt that waits, newer releases have.
        let attempts: Vec<_> = rows
            .iter()
            .filter(|row| row.id == Id::job(release.requeued))
            .map(|row| (row.state.clone(), row.gpus))
            .collect();
        let first = (State::Requeued, 2);
        let second = (State::Pending, 0);
        if release.version == "22.05" {
            assert_eq!(attempts, [first]);
        } else {
            assert_eq!(attempts, [first, second]);
        }
        let row = of(release.requeued);
        let condition = Condition::of(&row.state, &Reason::parse(""), row.exit);
        assert!(
            matches!(condition, Condition::Pending { .. }),
            "I3: {condition:?}"
        );
        assert_eq!(latest[&task(release.array, 0)].state, State::Running);
    }
}

#[test]
fn row_37_one_job_of_every_release_reads_the_same() {
    for release in &RELEASES {
        let failed = job::parse(&release.text("job-failed")).unwrap();
        assert_eq!(
            (failed.raw, &failed.state),
            (release.failed, &State::Failed)
        );
        assert_eq!(failed.exit, ExitCode::parse("7:0"));
        let requeued = job::parse(&release.text("job-requeued")).unwrap();
        assert_eq!((requeued.restarts, requeued.nodes), (1, None));
        assert_eq!(requeued.reason.code(), "BeginTime");
        assert!(requeued.start.is_some());
        let task = job::parse(&release.text("job-task")).unwrap();
        assert_eq!(
            (task.state, task.nodes.as_deref()),
            (State::Running, Some("node1"))
        );
        // A job's name holds "\n   JobState=COMPLETED".
        let forged = job::parse(&release.text("job-forged"));
        assert_eq!(
            forged,
            Err(ShowError::Ambiguous("JobState")),
            "{}",
            release.version
        );
    }
}

#[test]
fn estimates_of_starts_are_read() {
    for release in &RELEASES {
        let estimates = squeue::parse_start(&release.text("squeue-start"));
        let of = |job| {
            estimates
                .iter()
                .find(|estimate| estimate.job == job)
                .unwrap()
        };
        assert!(of(release.waiting).start.is_some());
        assert_eq!(of(release.array).start, None);
    }
}

#[test]
fn the_cluster_of_every_release_reads_the_same() {
    for release in &RELEASES {
        let version = Version::parse(&release.text("version")).unwrap();
        assert!(version.to_string().starts_with(release.version));
        let config = Config::parse(&release.text("config"));
        assert_eq!(config.version(), Some(version));
        assert_eq!(config.cluster(), Some("lab"));
        assert_eq!(
            (config.max_array_size(), config.max_array_tasks()),
            (20_001, None)
        );
        assert_eq!(config.kill_wait().ms, 10_000);
        assert_eq!(config.requeue_wait().ms, 5_000);
        assert_eq!(config.proctrack(), Some("linuxproc"));
        assert_eq!(config.max_nodes(), Some(3));
        for holds in [
            config.accounting(),
            config.enforces("limits"),
            config.divides_memory(),
            !config.binds_cpus(),
            config.preempts(),
            config.sends_user_signal(version),
        ] {
            assert!(holds, "{version}");
        }
        let partitions = partition::parse(&release.text("partition"));
        assert_eq!(partitions.len(), 1);
        assert!(partitions[0].default && partitions[0].max_time.is_none());
        assert_eq!(partitions[0].nodes, "node[1-3]");
        let listed = node::parse_list(&release.text("sinfo"));
        let shown = node::parse_show(&release.text("node"));
        assert_eq!((listed.len(), shown.len()), (3, 3));
        for (listed, shown) in listed.iter().zip(&shown) {
            assert_eq!((&listed.name, &listed.gres), (&shown.name, &shown.gres));
            assert_eq!((listed.cpus, listed.memory), (8, 4000));
            assert_eq!((listed.cpus, listed.memory), (shown.cpus, shown.memory));
            assert!(listed.state.is_usable() && shown.state.is_usable());
        }
        assert!(shown[0].cpus_used > 0 && shown[0].memory_used > Some(0));
        assert_eq!(shown[1].memory_used, Some(0));
        let plugins = mpi::parse(&release.text("mpi"));
        assert_eq!(mpi::choose(mpi::Library::Mpich, &plugins), Some("pmi2"));
    }
}

#[test]
fn limits_and_shares_of_every_release_read_the_same() {
    for release in &RELEASES {
        let shares = accounting::parse_shares(&release.text("sshare"));
        assert_eq!(shares.len(), 4);
        assert!(
            shares
                .iter()
                .all(|share| share.used_minutes.contains_key("gres/gpu"))
        );
        assert!(shares.iter().any(|share| share.running_minutes["cpu"] > 0));
        let use_ = accounting::parse_use(&release.text("assoc-mgr"));
        let lab = use_.iter().find(|of| of.user.is_none()).unwrap();
        assert_eq!(lab.group["gres/gpu"].limit, Some(4));
        assert_eq!(lab.group_minutes["gres/gpu"].limit, Some(1000));
        assert_eq!(lab.group["cpu"].limit, None);
        let qos = accounting::parse_qos(&release.text("qos"));
        let high = qos.iter().find(|qos| qos.name == "high").unwrap();
        assert_eq!((high.grace.ms, high.preempts.len()), (15_000, 1));
        assert_eq!(
            (high.max_jobs_per_user, high.max_per_user["gres/gpu"]),
            (Some(3), 8)
        );
        let associations = accounting::parse_associations(&release.text("assoc"));
        let lab = associations.iter().find(|of| of.account == "lab").unwrap();
        assert_eq!((lab.group["gres/gpu"], lab.max_jobs), (4, Some(5)));
    }
}

#[test]
fn what_is_used_of_a_qos_reads_the_same() {
    for release in RELEASES.iter().filter(|release| release.version != "26.05") {
        let found = accounting::parse_qos_use(&release.text("assoc-mgr-qos"));
        let [low] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((low.name.as_str(), low.group["cpu"].used), ("low", 2));
        assert_eq!(low.group["cpu"].limit, Some(4));
        assert_eq!(low.accounts[0].of, "lab");
        let root = low.users.iter().find(|user| user.is_of("root", 0)).unwrap();
        assert_eq!(
            root.jobs.map(|jobs| (jobs.limit, jobs.used)),
            Some((Some(1), 1))
        );
        assert_eq!(root.amounts["gres/gpu"].limit, Some(1));
        let wanted = charge::parse_wanted(&release.text("squeue-tres"));
        assert_eq!((wanted["gres/gpu"], wanted["mem"]), (4, 3000));
    }
}

#[test]
fn row_14_refusals_of_every_release_are_understood() {
    for release in &RELEASES {
        let text = release.text("sbatch-errors");
        let mut seen = 0;
        for case in text.split("# ").filter(|case| !case.is_empty()) {
            let (option, errors) = case.split_once('\n').unwrap();
            let expected = match option {
                "-A nope" => Refusal::Account,
                "-p nope" => Refusal::Partition,
                "-q nope" => Refusal::Qos,
                "--gres=gpu:zz:1" => Refusal::Nodes,
                "-C nofeature" => Refusal::Constraint,
                "--mem=999999" => Refusal::Memory,
                "--reservation=nope" => Refusal::Reservation,
                "-w nonode" => Refusal::NodeName,
                "--array=0-99999" => Refusal::Array,
                "-L foo" => Refusal::License,
                "--nope" => Refusal::Option,
                other => panic!("{other}"),
            };
            // 26.05 accepts a type of GPU that no node has, and lets the job wait.
            if sbatch::parse(errors).is_some() {
                continue;
            }
            let (refusal, words) = sbatch::explain(errors);
            assert_eq!(refusal, expected, "{option} in {}", release.version);
            assert!(!words.is_empty() && !words.contains("sbatch"), "{words}");
            seen += 1;
        }
        assert!(seen >= 10, "{seen}");
    }
}
