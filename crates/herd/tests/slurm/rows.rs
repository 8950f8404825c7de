//! Rows about what a job finds and how it ends by itself.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use herd_testing::within;
use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, User, files};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(rows::r02_r03_r09_r11_nodes_are_told_apart_and_setup_comes_first),
        case!(rows::r06_r24_what_confines_steps_is_scrubbed_and_the_rest_is_there),
        case!(rows::r07_a_nested_srun_uses_the_whole_allocation),
        case!(rows::r08_a_poisoned_environment_and_a_step_change_nothing),
        case!(rows::r10_values_arrive_byte_for_byte),
        case!(rows::r12_setup_that_fails_on_one_node_ends_the_job),
        case!(rows::r13_a_step_that_srun_refuses_ends_the_job),
        case!(rows::r14_the_code_of_the_first_rank_that_fails_is_the_jobs),
        case!(rows::r15_what_an_early_rank_leaves_serves_until_the_end),
        case!(rows::r20_a_script_of_200_kb_runs_on_both_nodes),
        case!(rows::r21_i8_codes_and_signals_come_through),
        case!(rows::r23_i7_output_is_seen_at_once_and_kept_byte_for_byte),
        case!(rows::r24_two_jobs_at_once_have_gpus_of_their_own),
        case!(rows::r26_i12_secrets_are_nowhere_and_gone_at_the_end),
    ]
}

/// Lines of one rank in the merged log, without the mark.
fn of_rank(log: &str, rank: u32) -> Vec<String> {
    let mark = format!("rank={rank}) ");
    log.lines()
        .filter_map(|line| Some(line.split_once(&mark)?.1.to_owned()))
        .collect()
}

pub(crate) fn r02_r03_r09_r11_nodes_are_told_apart_and_setup_comes_first(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let job = user.submit(json!({
        "nodes": 2,
        "slurm": {"extra": ["--nodelist=node[2-3]"]},
        "setup": {"on": "each", "run": format!("sleep 0.5; echo prepared; touch {dir}/setup-$SKYPILOT_SETUP_NODE_RANK")},
        "run": format!(
            "ls {dir}/setup-0 {dir}/setup-1\necho $HERD_RANK $HERD_NODE_RANK $HERD_NODE_NAME $(hostname) $(echo $HERD_NODE_IPS)\n\
             echo $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES $(echo \"$SKYPILOT_NODE_IPS\" | wc -l)\n\
             echo $HERD_NODE_IPS | tr ' ' '\\n' | sed -n $((HERD_NODE_RANK + 1))p\nhostname -I | tr ' ' '\\n'"
        ),
    }));
    job.ends("SUCCEEDED", 0);
    let mut addresses = BTreeSet::new();
    for rank in 0..2_u32 {
        let lines = of_rank(&job.log(), rank);
        let node = format!("node{}", rank + 2);
        assert!(
            lines[2].starts_with(&format!("{rank} {rank} {node} {node} ")),
            "{lines:?}"
        );
        assert_eq!(lines[3], format!("{rank} 2 2"));
        assert!(
            lines[5..].contains(&lines[4]),
            "no address of its own: {lines:?}"
        );
        addresses.insert(lines[4].clone());
        let own = fs::read_to_string(job.dir.join(format!("attempts/1/ranks/{rank}/stdout.log")));
        // The file has no mark.
        assert!(own.unwrap().contains(&format!("\n{rank} {rank} {node}")));
        let setup = job.dir.join(format!("attempts/1/nodes/{node}/setup.log"));
        assert_eq!(fs::read_to_string(setup).unwrap(), "prepared\n");
    }
    assert_eq!(addresses.len(), 2);
    job.gone();
}

pub(crate) fn r06_r24_what_confines_steps_is_scrubbed_and_the_rest_is_there(lab: &Lab) {
    const UNSET: &[&str] = &[
        "SLURM_CPUS_PER_TASK",
        "SLURM_TRES_PER_TASK",
        "SLURM_CPUS_ON_NODE",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_DISTRIBUTION",
        "SLURM_SRUN_COMM_HOST",
        "SLURM_SRUN_COMM_PORT",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_TASK_PID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_GTIDS",
        "SLURM_STEPID",
        "SLURM_MEM_PER_CPU",
    ];
    const SURVIVE: &[&str] = &[
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "SLURM_JOB_NUM_NODES",
        "SLURM_NNODES",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_GPUS_ON_NODE",
        "SLURM_JOB_PARTITION",
        "SLURM_CONF",
    ];
    // Not every release sets them for a step.
    const SURVIVE_WHERE_SET: &[&str] = &["SLURM_GPUS_PER_NODE", "SLURM_MEM_PER_NODE"];
    let _shared = lab.shared();
    let user = User::new(lab);
    for resources in [
        json!({"cpus": 2, "gpus": 2, "gpu_type": "h800"}),
        json!({"cpus": 2, "gpus": 1}),
    ] {
        let gpus = resources["gpus"].as_u64().unwrap();
        let job = user.submit(json!({
            "nodes": 2,
            "resources": resources,
            "run": "env; tr '\\0' '\\n' < /proc/$PPID/environ | sed 's/^/executor: /'",
        }));
        job.ends("SUCCEEDED", 0);
        for rank in 0..2 {
            let lines = of_rank(&job.log(), rank);
            let of_executor = |name: &str| {
                let wanted = format!("executor: {name}=");
                let mut found = lines.iter().filter_map(|line| line.strip_prefix(&wanted));
                found.next().map(|value| format!("{name}={value}"))
            };
            assert!(of_executor("SLURM_STEP_ID").is_some(), "{lines:?}");
            for line in SURVIVE_WHERE_SET
                .iter()
                .filter_map(|name| of_executor(name))
            {
                assert!(lines.contains(&line), "{line} is not there");
            }
            let has = |name: &str| {
                lines
                    .iter()
                    .any(|line| line.starts_with(&format!("{name}=")))
            };
            for name in UNSET {
                assert!(!has(name), "{name} is set");
            }
            for prefix in ["SLURM_STEP_", "SLURM_CPU_BIND", "SLURM_MEM_BIND"] {
                let found = lines.iter().find(|line| line.starts_with(prefix));
                assert_eq!(found, None, "rank {rank}");
            }
            for name in SURVIVE {
                assert!(has(name), "{name} is not set");
            }
            let devices = lines
                .iter()
                .find_map(|line| line.strip_prefix("CUDA_VISIBLE_DEVICES="));
            assert_eq!(devices.unwrap().split(',').count() as u64, gpus);
        }
    }
    let none =
        user.submit(json!({"run": "echo \"[${CUDA_VISIBLE_DEVICES-}][$HERD_NUM_GPUS_PER_NODE]\""}));
    none.ends("SUCCEEDED", 0);
    assert!(
        ["[][0]\n", "[NoDevFiles][0]\n"].contains(&none.log().as_str()),
        "{}",
        none.log()
    );
}

pub(crate) fn r07_a_nested_srun_uses_the_whole_allocation(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "nodes": 2,
        "resources": {"cpus": 2},
        "run": "[ $HERD_RANK = 0 ] || exit 0\n\
                srun --overlap --jobid=$SLURM_JOB_ID --ntasks=4 sh -c 'echo all $(hostname)'\n\
                srun --overlap --jobid=$SLURM_JOB_ID --nodes=2 --ntasks=2 --cpus-per-task=2 sh -c 'echo wide $(hostname)'",
    }));
    let shapes = user.submit(json!({
        "nodes": 2,
        "resources": {"cpus": 2, "gpus": 2},
        "run": "[ $HERD_RANK = 0 ] || exit 0\n\
                seen='echo $0 $(echo $CUDA_VISIBLE_DEVICES | tr -dc 0-9 | wc -c)'\n\
                srun --gpus=1 -N1 -n1 sh -c \"$seen\" one\n\
                srun --gres=none -N1 -n1 sh -c \"$seen\" none\n\
                srun -N1 -n1 sh -c \"$seen\" all\n\
                srun --mem-per-cpu=10 -n2 sh -c \"$seen\" two\n\
                srun --overlap --gpus-per-task=1 -n2 sh -c \"$seen\" each\n",
    }));
    shapes.ends("SUCCEEDED", 0);
    let mut seen = of_rank(&shapes.log(), 0);
    // It says so when a step has had to wait for the one before.
    seen.retain(|line| !line.starts_with("srun: "));
    seen.sort();
    let wanted = [
        "all 2", "each 1", "each 1", "none 0", "one 1", "two 2", "two 2",
    ];
    assert_eq!(seen, wanted);
    job.ends("SUCCEEDED", 0);
    let lines = of_rank(&job.log(), 0);
    let (all, wide): (Vec<&String>, Vec<&String>) =
        lines.iter().partition(|line| line.starts_with("all "));
    assert_eq!((all.len(), wide.len()), (4, 2), "{lines:?}");
    let nodes = |lines: &[&String]| {
        lines
            .iter()
            .map(|line| (*line).clone())
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert_eq!((nodes(&all), nodes(&wide)), (2, 2), "{lines:?}");
}

pub(crate) fn r08_a_poisoned_environment_and_a_step_change_nothing(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let file = user.file("job.yaml", json!({
        "nodes": 2,
        "resources": {"cpus": 2},
        "run": "[ $HERD_RANK = 0 ] || exit 0\nsrun --overlap --jobid=$SLURM_JOB_ID --ntasks=2 echo nested",
    }));
    let poison = [
        ("SLURM_CPU_BIND", "quiet,mask_cpu:0x1"),
        ("SLURM_NNODES", "1"),
        ("SBATCH_NTASKS", "7"),
    ];
    let output = user.herd(&["run", &file]).envs(poison).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", user.last().story());
    assert_eq!(text.matches("nested").count(), 2, "{text}");
    // The same from within a step of another job.
    let herd = env!("CARGO_BIN_EXE_herd");
    let home = user.path("home").display().to_string();
    let inner = lab
        .command("srun")
        .args([
            "--mem=64",
            "--ntasks=1",
            herd,
            "--home",
            &home,
            "run",
            "-b",
            "slurm",
            &file,
        ])
        .envs(
            poison
                .iter()
                .filter(|(name, _)| *name == "SLURM_CPU_BIND")
                .copied(),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&inner.stdout).into_owned();
    assert!(
        inner.status.success(),
        "{} {}",
        String::from_utf8_lossy(&inner.stderr),
        user.last().story()
    );
    assert_eq!(text.matches("nested").count(), 2, "{text}");
}

pub(crate) fn r10_values_arrive_byte_for_byte(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let value = "it's \"quoted\" $HOME `x` \\n\nsecond ünï line\t!";
    let job =
        user.submit(json!({"nodes": 2, "env": {"VALUE": value}, "run": "printf %s \"$VALUE\""}));
    job.ends("SUCCEEDED", 0);
    for rank in 0..2 {
        let path = job.dir.join(format!("attempts/1/ranks/{rank}/stdout.log"));
        assert_eq!(fs::read_to_string(path).unwrap(), value);
    }
}

pub(crate) fn r12_setup_that_fails_on_one_node_ends_the_job(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "nodes": 2,
        "setup": {"on": "each", "run": "if [ $HERD_NODE_RANK = 1 ]; then echo broken; exit 7; fi; sleep 600"},
        "run": "echo never",
    }));
    let result = job.ends("FAILED", 7);
    assert!(result["failure"].to_string().contains("broken"), "{result}");
    assert!(!job.log().contains("never"));
    job.gone();
}

pub(crate) fn r13_a_step_that_srun_refuses_ends_the_job(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let refused = user.run(json!({"nodes": 99, "run": "true"}));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("nodes"), "{refused:?}");
    // A step that asks for what the allocation has not got, which the site's record makes it do.
    let first = user.submit(
        json!({"run": format!("while [ ! -e {} ]; do sleep 0.1; done", user.path("go").display())}),
    );
    let job = user.submit(json!({"nodes": 2, "run": "echo never", "after": [first.id]}));
    fs::write(job.dir.join("slurm-site.json"), "{\"gres\":\"gpu:h800:4\"}").unwrap();
    user.touch("go");
    let started = Instant::now();
    let result = job.ends("FAILED", 125);
    assert!(started.elapsed() < Duration::from_mins(2));
    assert!(result["failure"].to_string().contains("srun"), "{result}");
    assert!(!job.log().contains("never"));
    job.gone();
}

pub(crate) fn r14_the_code_of_the_first_rank_that_fails_is_the_jobs(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "nodes": 3,
        "run": format!("touch {0}/up-$HERD_RANK; [ $HERD_RANK = 1 ] || exec sleep 600\n\
                        while [ ! -e {0}/up-0 ] || [ ! -e {0}/up-2 ]; do sleep 0.1; done; exit 5", user.path("").display()),
    }));
    let result = job.ends("FAILED", 5);
    assert!(
        result["failure"].to_string().contains("\"rank\":1"),
        "{result}"
    );
    job.gone();
}

pub(crate) fn r15_what_an_early_rank_leaves_serves_until_the_end(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let job = user.submit(json!({
        "nodes": 2,
        "run": format!(
            "cd {dir}\n\
             if [ $HERD_RANK = 1 ]; then setsid --fork sh -c 'while :; do echo $((i += 1)) > beat.new; mv beat.new beat; sleep 0.1; done' </dev/null >/dev/null 2>&1\n\
             while [ ! -e beat ]; do sleep 0.1; done; exit 0; fi\n\
             while [ ! -e ended ]; do sleep 0.1; done; first=$(cat beat)\n\
             while [ $(cat beat) -le $((first + 10)) ]; do sleep 0.1; done"
        ),
    }));
    // Rank 1 has ended, and Slurm had its time to end what it left.
    within(DEADLINE, "the end of rank 1", || {
        job.status()["rank_list"][1]["end"].is_object()
    });
    user.touch("ended");
    job.ends("SUCCEEDED", 0);
    job.gone();
}

pub(crate) fn r20_a_script_of_200_kb_runs_on_both_nodes(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let script = format!(
        "{}\necho end $HERD_RANK",
        ": 'filler of a long script, in every line of it'\n".repeat(4_300)
    );
    assert!(script.len() > 200_000);
    let job = user.submit(json!({"nodes": 2, "setup": script, "run": script}));
    job.ends("SUCCEEDED", 0);
    for rank in 0..2 {
        assert_eq!(of_rank(&job.log(), rank), [format!("end {rank}")]);
    }
}

pub(crate) fn r21_i8_codes_and_signals_come_through(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let jobs = [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -SEGV $$", 139),
        ("kill -KILL $$", 137),
    ]
    .map(|(run, code)| (user.submit(json!({"run": run})), code));
    for (job, code) in jobs {
        job.ends(if code == 0 { "SUCCEEDED" } else { "FAILED" }, code);
        let end = job.record("attempts/1/end");
        assert_eq!(end["exit_code"], code, "{end}");
    }
    let seen = user.run(json!({"run": "echo out; exit 9"}));
    assert_eq!((seen.code, seen.out.as_str()), (9, "out\n"), "{seen:?}");
}

pub(crate) fn r23_i7_output_is_seen_at_once_and_kept_byte_for_byte(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let file = user.file("job.yaml", json!({
        "run": format!("printf 'first\\n10%%\\r20%%\\r\\n\\377\\376 bad\\n'; while [ ! -e {} ]; do sleep 0.05; done", user.path("go").display()),
    }));
    let mut herd = user.start(&["run", &file]);
    let out = || fs::read(user.path("out")).unwrap_or_default();
    within(DEADLINE, "the rank's start", || {
        user.path("home/jobs").is_dir() && {
            let dirs = files(&user.path("home/jobs"));
            let log = dirs
                .iter()
                .find(|file| file.ends_with("ranks/0/stdout.log"));
            log.is_some_and(|log| fs::read(log).is_ok_and(|bytes| bytes.ends_with(b"bad\n")))
        }
    });
    // One second is the bound.
    within(Duration::from_secs(5), "the line on the screen", || {
        out().starts_with(b"first\n")
    });
    user.touch("go");
    assert!(herd.wait().unwrap().success());
    assert!(String::from_utf8_lossy(&out()).contains("20%"));
    let raw = fs::read(user.last().dir.join("attempts/1/ranks/0/stdout.log")).unwrap();
    assert_eq!(raw, b"first\n10%\r20%\r\n\xff\xfe bad\n");
}

pub(crate) fn r24_two_jobs_at_once_have_gpus_of_their_own(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let job = |own: &str, other: &str| {
        json!({
            "resources": {"gpus": 3},
            "slurm": {"extra": ["--nodelist=node2"]},
            "run": format!("touch {dir}/{own}; while [ ! -e {dir}/{other} ]; do sleep 0.1; done; echo $CUDA_VISIBLE_DEVICES"),
        })
    };
    let first = user.submit(job("a", "b"));
    let second = user.submit(job("b", "a"));
    first.ends("SUCCEEDED", 0);
    second.ends("SUCCEEDED", 0);
    let devices: BTreeSet<String> = [first.log(), second.log()]
        .iter()
        .flat_map(|log| log.trim().split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(devices.len(), 6, "{devices:?}");
}

pub(crate) fn r26_i12_secrets_are_nowhere_and_gone_at_the_end(lab: &Lab) {
    const VALUE: &str = "hunter2-of-this-very-test";
    let _shared = lab.shared();
    let user = User::new(lab);
    fs::write(user.path("token"), VALUE).unwrap();
    let job = |run: String| json!({"secrets": {"TOKEN": {"file": user.path("token")}}, "run": run, "nodes": 2});
    let dir = user.path("").display().to_string();
    let check = format!(
        "[ ${{#TOKEN}} = {} ] && [ -z \"${{HERD_KEY-}}\" ]",
        VALUE.len()
    );
    let jobs = [
        ("SUCCEEDED", 0, user.submit(job(check.clone()))),
        ("FAILED", 3, user.submit(job(format!("{check}; exit 3")))),
        (
            "CANCELLED",
            130,
            user.submit(job(format!(
                "{check}; touch {dir}/up-$HERD_RANK; sleep 600"
            ))),
        ),
    ];
    let cancelled = &jobs[2].2;
    user.await_file("up-0");
    user.await_file("up-1");
    let key = fs::read_to_string(cancelled.dir.join("key")).unwrap();
    for secret in [VALUE, key.trim()] {
        for pid in cancelled.processes() {
            let (argv, _) = herd_testing::process::arguments_and_environment(pid);
            assert!(
                !String::from_utf8_lossy(&argv).contains(secret),
                "in the arguments of {pid}"
            );
        }
        assert!(!cancelled.in_slurm().contains(secret));
        let lines = [
            "sacct",
            "--noheader",
            "--parsable2",
            "--format=SubmitLine,Comment",
            "--jobs",
        ];
        let number = cancelled.number();
        let said = lab.ask(&[&lines[..], &[number.as_str()]].concat());
        assert!(!said.contains(secret), "{said}");
    }
    assert_eq!(user.ask(&["cancel", &cancelled.id]).code, 0);
    for (state, code, job) in jobs {
        job.ends(state, code);
        assert!(!job.dir.join("secrets.json").exists());
        for file in files(&job.dir) {
            let bytes = fs::read(&file).unwrap();
            assert!(
                !String::from_utf8_lossy(&bytes).contains(VALUE),
                "in {}",
                file.display()
            );
        }
        job.gone();
    }
}
