//! What a rank's script finds in its environment: what the job says stands over the login shell's profile.

use std::fs;

use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::User;

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(environment::r10_what_the_job_says_stands_over_the_profile),
        case!(environment::r06_slurm_variables_of_the_job_itself_reach_ranks_and_their_srun),
    ]
}

pub(crate) fn r10_what_the_job_says_stands_over_the_profile(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    fs::write(
        user.path(".profile"),
        "export PATH=/site/bin:$PATH VALUE=theirs OMP_NUM_THREADS=1 SITE=yes TOKEN=theirs HERD_RANK=9\n\
         readonly TMOUT=7; export TMOUT; module() { echo \"loaded $1\"; }\n",
    )
    .unwrap();
    fs::write(user.path("token"), "secret").unwrap();
    let path = "/own/bin:/usr/bin:/bin";
    let show = "echo $PATH $VALUE $OMP_NUM_THREADS $SITE $TOKEN $HERD_NODE_RANK $TMOUT; module gcc; env | grep AFTER_PROFILE || :";
    let wanted = |rank: u32| format!("{path} it's mine 8 yes secret {rank} 7\nloaded gcc\n");
    let job = user.submit(json!({
        "nodes": 2,
        "env": {"PATH": path, "VALUE": "it's mine", "OMP_NUM_THREADS": "8", "TMOUT": "5"},
        "secrets": {"TOKEN": {"file": user.path("token")}},
        "setup": {"on": "each", "run": show},
        "run": format!("{show}; echo $HERD_RANK"),
    }));
    job.ends("SUCCEEDED", 0);
    for rank in 0..2 {
        let own = job.dir.join(format!("attempts/1/ranks/{rank}/stdout.log"));
        let own = fs::read_to_string(own).unwrap();
        assert_eq!(own, format!("{}{rank}\n", wanted(rank)));
    }
    let log = job.log();
    for rank in 0..2 {
        for line in wanted(rank).lines() {
            assert!(log.contains(&format!("setup) {line}\n")), "{line} in {log}");
        }
    }
    // Tasks of arrays have the same.
    let array = user.submit(json!({
        "array": "0-1",
        "env": {"PATH": path, "VALUE": "it's mine"},
        "run": "echo $HERD_ARRAY_INDEX $VALUE $PATH $SITE",
    }));
    array.ends("SUCCEEDED", 0);
    for task in 0..2 {
        let said = user.ask(&["logs", &array.id, "--task", &task.to_string()]);
        assert_eq!(
            said.out,
            format!("{task} it's mine {path} yes\n"),
            "{said:?}"
        );
    }
}

pub(crate) fn r06_slurm_variables_of_the_job_itself_reach_ranks_and_their_srun(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "nodes": 2,
        "resources": {"cpus": 2},
        "env": {"SLURM_NTASKS": "3", "SLURM_GPUS_PER_NODE": "7", "SLURM_OF_MINE": "a b"},
        "run": "echo \"$SLURM_NTASKS $SLURM_GPUS_PER_NODE $SLURM_OF_MINE\"; [ $HERD_RANK = 0 ] || exit 0\n\
                unset SLURM_GPUS_PER_NODE; srun --overlap sh -c 'echo task'",
    }));
    job.ends("SUCCEEDED", 0);
    let log = job.log();
    assert_eq!(log.matches(") 3 7 a b\n").count(), 2, "{log}");
    assert_eq!(log.matches(") task\n").count(), 3, "{log}");
}
