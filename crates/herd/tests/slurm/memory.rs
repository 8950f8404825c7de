//! A rank that uses more memory than its job has, where Slurm's control groups bound it.

use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::User;

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![case!(memory::a_rank_out_of_memory_is_told_so)]
}

pub(crate) fn a_rank_out_of_memory_is_told_so(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let doctor = user.ask(&["doctor", "-b", "slurm"]).out;
    assert!(doctor.contains("which are kept within it"), "{doctor}");
    // It keeps all of a line that never ends.
    for (eats, node) in [
        ("exec tail /dev/zero", "node2"),
        ("tail /dev/zero", "node2"),
        ("tail /dev/zero; exit 3", "node2"),
    ] {
        let job = user.submit(json!({
            "nodes": 2,
            "slurm": {"extra": ["--nodelist=node[1-2]"]},
            "run": format!("[ $HERD_RANK = 1 ] || exec sleep 600\n{eats}"),
        }));
        // By `set -e` the script ends with the code of what was killed.
        let result = job.ends("FAILED", 137);
        let failure = result["failure"].to_string();
        assert!(failure.contains("out-of-memory"), "{eats}: {failure}");
        let said = user.ask(&["status", &job.id]);
        assert!(
            said.out.contains("memory") && said.out.contains(node),
            "{said:?}"
        );
        job.gone();
    }
}
