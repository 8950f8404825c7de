//! Nodes with no command of Slurm but `srun`. The first three know no names of others; on the others each
//! node's own name stands for a network that ends on the node, so that nobody reaches it there.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::lab::{Cluster, User};

const NODES: u32 = 6;
const NAMELESS: &str = "--nodelist=node[1-3]";
const TWO_NETWORKS: &str = "--nodelist=node[4-6]";

fn cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| {
        let cluster = Cluster::up(NODES, &[]);
        for node in 1..=NODES {
            let script = format!(
                "set -e\n\
                 for name in sbatch sbcast scancel scontrol squeue sacct sacctmgr salloc sattach sinfo sstat; do\n\
                 mount --bind /dev/null $(command -v $name)\n\
                 done\n\
                 echo 127.0.0.1 localhost >/run/hosts\n\
                 if [ {node} -gt 3 ]; then\n\
                 ip link add other type veth peer name nowhere\n\
                 ip address add 172.31.7.{node}/24 dev other\n\
                 ip link set other up; ip link set nowhere up\n\
                 for each in 4 5 6; do echo 172.31.7.$each node$each >>/run/hosts; done\n\
                 fi\n\
                 mount --bind /run/hosts /etc/hosts"
            );
            cluster.lab.slurm(&["node", "in", &node.to_string(), "sh", "-c", &script]);
        }
        cluster
    })
}

fn on(nodes: &str, mut job: Value) -> Value {
    job["nodes"] = 3.into();
    job["slurm"] = json!({"extra": [nodes]});
    job
}

/// Ranks that reach rank 0 where they were told it is, and fail once.
fn meeting() -> Value {
    let script = "for name in scontrol squeue sbcast; do ! $name 2>/dev/null || exit 99; done\n\
        python3 -c \"\nimport os, socket, time\n\
        place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n\
        if os.environ['HERD_RANK'] == '0':\n\
        \x20   server = socket.create_server(place)\n\
        \x20   print('met', len([server.accept() for _ in range(2)]))\n\
        else:\n\
        \x20   for _ in range(600):\n\
        \x20       try: socket.create_connection(place); break\n\
        \x20       except OSError: time.sleep(0.1)\n\
        \"\n[ $HERD_ATTEMPT$HERD_RANK != 10 ] || exit 75";
    json!({"type": "pytorch", "run": script, "retry": {"max": 1, "on": ["exit:75"], "backoff": "1s"}})
}

fn meets(nodes: &str, shared: bool) {
    let user = if shared {
        User::sharing(cluster())
    } else {
        User::of(cluster())
    };
    let job = user.submit(on(nodes, meeting()));
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{result}");
    let log = job.text("run.log");
    assert_eq!(log.matches("met 2").count(), 2, "{log}");
    if !shared {
        job.leaves_nothing();
    }
}

#[test]
fn srun_alone_and_no_names_do_with_a_shared_home() {
    meets(NAMELESS, true);
}

#[test]
fn srun_alone_and_no_names_do_without_one() {
    meets(NAMELESS, false);
}

#[test]
fn a_name_that_leads_nowhere_does_with_a_shared_home() {
    meets(TWO_NETWORKS, true);
}

#[test]
fn a_name_that_leads_nowhere_does_without_one() {
    meets(TWO_NETWORKS, false);
}
