//! What the command line does not say is taken from the environment.

use crate::nodes::{Nodes, printed};
use crate::{FOUR, PLACE, all_end};

/// Variables of the node with this rank.
type Variables = Vec<(&'static str, String)>;

/// Two nodes, told apart by these variables alone, meet; the second says this.
#[track_caller]
fn meet_by(test: &Nodes, flags: &[&str], said: &str, variables: impl Fn(usize) -> Variables) {
    let port = format!("--master-port={}", test.port);
    let mut both = [0, 1].map(|rank| {
        let own = [&port, "--nproc-per-node=2", "--verbose"];
        let mut command = test.command(&[], &[&own, flags].concat());
        test.start(&format!("node{rank}"), command.envs(variables(rank)))
    });
    all_end(&mut both, 0);
    let place = test.host.as_str();
    let expected = [&FOUR[..], &[place; 4]].concat();
    let mut expected: Vec<&str> = expected;
    expected.sort_unstable();
    assert_eq!(printed(&both), expected, "{said}");
    both[1].says(said);
}

#[test]
fn surroundings_say_what_the_command_line_leaves_open() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR"));
    let address = format!("--master-addr={}", test.host);
    meet_by(&test, &[], "2 nodes, from SLURM_STEP_NUM_NODES", |rank| {
        vec![
            ("SLURM_NODEID", rank.to_string()),
            ("SLURM_STEP_NUM_NODES", "2".into()),
            ("SLURM_STEP_NUM_TASKS", "2".into()),
            ("SLURM_STEP_NODELIST", format!("{},other", test.host)),
        ]
    });
    let said = "node rank 1, from SKYPILOT_NODE_RANK";
    meet_by(&test, &[], said, |rank| {
        vec![
            ("SKYPILOT_NODE_RANK", rank.to_string()),
            ("SKYPILOT_NUM_NODES", "2".into()),
            ("SKYPILOT_NODE_IPS", format!("{0}\n{0}", test.host)),
        ]
    });
    let open_mpi = |rank: usize| -> Variables {
        vec![
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "2".into()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "1".into()),
        ]
    };
    let said = "node rank 1, from OMPI_COMM_WORLD_RANK";
    meet_by(&test, &[&address], said, open_mpi);
    let said = "node rank 1, from JOB_COMPLETION_INDEX";
    meet_by(&test, &[&address, "--nnodes=2"], said, |rank| {
        vec![("JOB_COMPLETION_INDEX", rank.to_string())]
    });
    // Several nodes and nowhere to meet.
    let mut command = test.command(&[], &[]);
    let mut nowhere = test.start("nowhere", command.envs(open_mpi(0)));
    nowhere.ends(2);
    nowhere.says("hint: give --master-addr or --rdzv-endpoint");
}

#[test]
fn row_44_the_rendezvous_by_torchruns_variables() {
    let test = Nodes::new(&format!("{PLACE}; echo $MASTER_ADDR"));
    let said = "node 1 of 2, ranks 2 to 3 of 4";
    meet_by(&test, &[], said, |rank| {
        vec![
            ("PET_NNODES", "2".into()),
            ("PET_NODE_RANK", rank.to_string()),
            ("PET_MASTER_ADDR", test.host.clone()),
        ]
    });
    let mut both = [0, 1].map(|rank| {
        let mut command = test.command(&[], &[]);
        command.envs([
            ("PET_NNODES", "2"),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_RDZV_ENDPOINT", &format!("{}:{}", test.host, test.port)),
            ("PET_RDZV_CONF", "join_timeout=100"),
        ]);
        test.start(&format!("node{rank}"), &mut command)
    });
    all_end(&mut both, 0);
    assert_eq!(printed(&both).len(), 8);
}
