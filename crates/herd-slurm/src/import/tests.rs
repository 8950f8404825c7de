//! Scripts, and the jobs or faults that come of them.

use super::fates::OPTIONS;
use super::*;
use herd_core::spec::SlurmEnvironment;
use herd_core::units::{Bytes, Span};
use proptest::prelude::*;

fn read(text: &str) -> Imported {
    import(text.as_bytes(), "dir/train.sbatch", &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn faults(text: &str) -> Vec<(u32, String)> {
    import(text.as_bytes(), "s", &[])
        .unwrap_err()
        .iter()
        .map(|fault| (fault.position.line, fault.path.clone()))
        .collect()
}

#[test]
fn a_script_becomes_the_same_job() {
    let text = "#!/bin/bash -l\n#SBATCH -J digits -p gpu\n# a comment\n\n#SBATCH --account=lab --qos high\n\
                #SBATCH -t 1-12\n#SBATCH -c8 --mem=32G\n#SBATCH --gres=gpu:h800:4\n\
                #SBATCH --constraint=\"ib&nvme\" --exclusive\n#SBATCH -o slurm-%j.out # kept\n\
                #SBATCH --export=LR=0.1,VIRTUAL_ENV\n\
                module load cuda\npython train.py\n#SBATCH -N 5\n";
    let Imported { spec, notes } = read(text);
    assert_eq!(spec.name.as_deref(), Some("digits"));
    let slurm = spec.slurm.as_ref().unwrap();
    assert_eq!(slurm.partition.as_deref(), Some("gpu"));
    assert_eq!(
        (slurm.account.as_deref(), slurm.qos.as_deref()),
        (Some("lab"), Some("high"))
    );
    assert_eq!(slurm.extra, ["--constraint=ib&nvme", "--exclusive"]);
    assert_eq!(spec.walltime, Some(Span::from_secs(36 * 3600)));
    assert_eq!(spec.resources.cpus, Some(8));
    assert_eq!(spec.resources.memory, Some(Bytes(32 << 30)));
    assert_eq!(spec.resources.gpus, Some(4));
    assert_eq!(spec.resources.gpu_type.as_deref(), Some("h800"));
    assert_eq!(spec.env["LR"], "0.1");
    assert_eq!(spec.env_from, ["VIRTUAL_ENV"]);
    assert_eq!((spec.nodes, spec.workdir), (1, None));
    let Some(Command::Argv(argv)) = &spec.run else {
        panic!("{:?}", spec.run);
    };
    assert_eq!(argv[..3], ["/bin/bash", "-l", "-c"]);
    assert_eq!((argv[3].as_str(), argv[4].as_str()), (text, "train.sbatch"));
    let noted: Vec<_> = notes
        .iter()
        .map(|note| (note.position.line, note.path.as_str()))
        .collect();
    assert_eq!(noted, [(10, "--output"), (14, "#SBATCH")]);
}

#[test]
fn a_script_is_told_what_it_asked_for_in_words_that_herd_does_not_ask_in() {
    let text = "#!/bin/sh\n#SBATCH -n 1 --mem-per-cpu=1G -G h800:2\n#SBATCH --export=SLURM_NPROCS=4\ntrue\n";
    let Imported { spec, notes } = read(text);
    let env = |name: &str| spec.env.get(name).map(String::as_str);
    assert_eq!(env("SLURM_NTASKS"), Some("1"));
    assert_eq!(env("SLURM_NPROCS"), Some("4"));
    assert_eq!(env("SLURM_MEM_PER_CPU"), Some("1024"));
    assert_eq!(env("SLURM_GPUS"), Some("h800:2"));
    assert_eq!(env("SLURM_NTASKS_PER_NODE"), None);
    assert_eq!(spec.slurm.unwrap().environment, SlurmEnvironment::Script);
    assert_eq!(spec.name.as_deref(), Some("train.sbatch"));
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn heterogeneous_jobs_and_times_are_named_for_what_they_are() {
    let text = "#!/bin/sh\n#SBATCH -c 1\n#SBATCH hetjob\n#SBATCH -c 2\ntrue\n";
    let shown = import(text.as_bytes(), "s", &[]).unwrap_err().to_string();
    assert!(
        shown.contains("s:3:9: heterogeneous jobs are not supported"),
        "{shown}"
    );
    let later = read("#!/bin/sh\n#SBATCH -H -b now+1hour --nice=5\ntrue\n").spec;
    assert_eq!(
        later.slurm.unwrap().extra,
        ["--begin=now+1hour", "--hold", "--nice=5"]
    );
}

#[test]
fn every_fault_comes_at_once_with_its_line() {
    let text = "#!/bin/bash\n#SBATCH --nodes=2 -n 8\n#SBATCH --dependency=afterok:17\n#SBATCH --frobnicate\n\
                #SBATCH --time=soon\n#SBATCH --mem=lots\n#SBATCH two words\n#SBATCH --comment='open\n\
                #SBATCH --uid=0\n#SBATCH --array\n#SBATCH --array=9-0\nsrun a\n";
    let mut found = faults(text);
    found.sort();
    let expected = [
        (2, "--nodes"),
        (2, "--ntasks"),
        (3, "--dependency"),
        (4, ""),
        (5, "--time"),
        (6, "--mem"),
        (7, ""),
        (7, ""),
        (8, ""),
        (9, "--uid"),
        (10, ""),
        (11, "--array"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(line, path)| (*line, (*path).to_owned()))
        .collect();
    assert_eq!(found, expected);
    let shown = import(text.as_bytes(), "s", &[]).unwrap_err().to_string();
    assert!(
        shown.contains("s:3:9: --dependency: it names jobs by Slurm's numbers"),
        "{shown}"
    );
}

#[test]
fn amounts_are_those_of_one_node() {
    let amounts = |lines: &str| {
        let spec = read(&format!("#!/bin/sh\n{lines}\ntrue\n")).spec;
        (
            spec.resources.cpus,
            spec.resources.memory.map(|m| m.0 >> 20),
            spec.resources.gpus,
        )
    };
    assert_eq!(
        amounts("#SBATCH -c 4 --mem-per-cpu=2G"),
        (Some(4), Some(8192), None)
    );
    assert_eq!(
        amounts("#SBATCH --mem-per-gpu=1000 -G 2"),
        (None, Some(2000), Some(2))
    );
    assert_eq!(
        amounts("#SBATCH --gpus-per-node=a100:2 --mem=1.5GB"),
        (None, Some(1536), Some(2))
    );
    assert_eq!(amounts("#SBATCH -N1-1 -n1 --gres=none"), (None, None, None));
    assert_eq!(
        faults("#!/bin/sh\n#SBATCH --gres=gpu:2 -G 3\n#SBATCH --mem=0\n"),
        [(2, "--gpus".to_owned()), (3, "--mem".to_owned())]
    );
    assert_eq!(
        faults("#!/bin/sh\n#SBATCH --gres=craynetwork:1\n"),
        [(2, "--gres".to_owned())]
    );
}

#[test]
fn interpreters_get_the_text_in_their_own_way() {
    let argv = |first: &str| {
        let text = format!("{first}\n#SBATCH -c 1\nx\n");
        match import(text.as_bytes(), "a/s.py", &["one".to_owned()]) {
            Ok(Imported { spec, .. }) => match spec.run {
                Some(Command::Argv(mut argv)) => {
                    argv.retain(|word| *word != text);
                    argv.join(" ")
                }
                other => panic!("{other:?}"),
            },
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(
        argv("#!/usr/bin/env python3.11"),
        "/usr/bin/env python3.11 -c one"
    );
    assert_eq!(argv("#!/bin/bash -e"), "/bin/bash -e -c s.py one");
    assert!(argv("#!/usr/bin/awk -f").contains("cannot be given"));
    assert!(argv("echo").contains("no interpreter"));
    assert!(looks_like_script(b"#!/bin/sh\n#SBATCH -n 1\n"));
    assert!(!looks_like_script(b"#!/bin/sh\ntrue\n") && !looks_like_script(b"run: a\n"));
}

#[test]
fn the_table_is_sorted_and_keeps_to_the_allow_list() {
    for pair in OPTIONS.windows(2) {
        assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
    }
    for option in OPTIONS {
        let text = format!("--{}=x", option.name);
        if matches!(option.fate, super::fates::Fate::Extra) {
            assert!(validate::slurm_extra(&text).is_ok(), "{text}");
        }
    }
    let mut letters: Vec<_> = OPTIONS.iter().filter_map(|option| option.letter).collect();
    let count = letters.len();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters.len(), count);
}

proptest! {
    #[test]
    fn no_script_panics(
        lines in prop::collection::vec("#SBATCH (-[a-zA-Z]|--[a-z-]{1,14})(=|)[0-9a-z:,%-]{0,8}", 0..6)
    ) {
        let text = format!("#!/bin/sh\n{}\ntrue\n", lines.join("\n"));
        drop(import(text.as_bytes(), "s", &[]));
        drop(import(lines.join("\n").as_bytes(), "s", &[]));
    }
}
