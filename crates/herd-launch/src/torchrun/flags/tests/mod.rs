//! Rows 44 and 45 of the launcher's acceptance, as far as they need no process.

mod values;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::table::{FLAGS, Takes};
use super::*;
use crate::Signal;
use crate::torchrun::mask::{Std, StdMap};

fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Command, FlagError> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    parse(&arguments, &|name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn with(arguments: &[&str], environment: &[(&str, &str)]) -> Flags {
    match command(arguments, environment).unwrap() {
        Command::Launch(flags) => *flags,
        other => panic!("{other:?}"),
    }
}

fn flags(arguments: &[&str]) -> Flags {
    with(arguments, &[])
}

fn error(arguments: &[&str]) -> FlagError {
    command(arguments, &[]).unwrap_err()
}

/// A value for each flag that takes one, another one than its default.
fn sample(name: &str) -> &'static str {
    match name {
        "nnodes" => "2:3",
        "nproc-per-node" => "cpu",
        "node-rank" | "tee-ranks" | "local-ranks-filter" | "max-restarts" => "1",
        "rdzv-backend" => "c10d",
        "rdzv-endpoint" => "h:1",
        "rdzv-conf" => "a=b",
        "master-port" => "77",
        "monitor-interval" | "shutdown-timeout" => "2.5",
        "signals-to-handle" => "SIGUSR1",
        "redirects" | "tee" => "3",
        "event-log-handler" => "console",
        "exit-code" => "worker",
        "hang-timeout" => "3m",
        "store-allow" => "10.0.0.0/8",
        "start-method" => "fork",
        "numa-binding" => "node",
        "logs-specs" => "default",
        _ => "x",
    }
}

/// What must stand beside a flag so that the whole is valid.
fn company(name: &str) -> &'static [&'static str] {
    match name {
        "node-rank" => &["--nnodes=2"],
        _ => &[],
    }
}

#[test]
fn row44_each_flag_in_both_spellings_with_its_variable_and_precedence() {
    for flag in FLAGS
        .iter()
        .filter(|flag| flag.group != super::table::Group::About)
    {
        let value = sample(flag.name);
        let mut results = Vec::new();
        for spelling in flag.spellings() {
            let joined = format!("{spelling}={value}");
            let forms: Vec<Vec<&str>> = match flag.takes {
                Takes::Nothing => vec![vec![&spelling]],
                Takes::Value(_) | Takes::OneOf(_) => vec![vec![&spelling, value], vec![&joined]],
            };
            for form in forms {
                results.push(flags(
                    &[company(flag.name), &form, &["s.py", "--nnodes", "9"]].concat(),
                ));
            }
        }
        let variable = format!("PET_{}", flag.name.to_uppercase().replace('-', "_"));
        let set = if flag.takes == Takes::Nothing {
            "1"
        } else {
            value
        };
        let arguments = [company(flag.name), &["s.py", "--nnodes", "9"]].concat();
        let by_variable = with(&arguments, &[(&variable, set)]);
        let unset = flags(&arguments);
        if flag.has_variable {
            results.push(by_variable);
            // The command line wins over a variable, even over one that is wrong.
            if flag.takes != Takes::Nothing {
                let long = format!("--{}={value}", flag.name);
                let arguments = [&[long.as_str()], arguments.as_slice()].concat();
                results.push(with(&arguments, &[(&variable, "\u{1}?")]));
            }
        } else {
            assert_eq!(by_variable, unset, "{}", flag.name);
        }
        let first = results.first().unwrap();
        assert_eq!(first.args, ["--nnodes", "9"]);
        assert!(first.given.contains(flag.name), "{}", flag.name);
        assert_ne!(*first, unset);
        for result in &results {
            assert_eq!(result, first, "{}", flag.name);
        }
    }
}

#[test]
fn row44_defaults() {
    let flags = flags(&["s.py"]);
    assert_eq!(flags.nnodes, NodeCount { min: 1, max: 1 });
    assert_eq!(flags.nproc_per_node, NprocPerNode::Count(1));
    assert_eq!(
        (flags.role.as_str(), flags.rdzv_id.as_str()),
        ("default", "none")
    );
    assert_eq!(flags.max_restarts, 0);
    assert_eq!(flags.monitor_interval, Duration::from_millis(100));
    assert_eq!(flags.shutdown_timeout, Duration::from_secs(30));
    assert_eq!(
        flags.signals_to_handle.signals,
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]
    );
    assert_eq!(flags.tee, StdMap::Same(Std::None));
    assert_eq!(flags.event_log, EventLog::Null);
    assert_eq!(flags.exit_rule, ExitRule::One);
    assert_eq!(flags.rendezvous().unwrap(), Rendezvous::Standalone);
    assert!(flags.given.is_empty() && flags.warnings.is_empty());
}

#[test]
fn row44_short_forms() {
    for form in [&["-r", "3"][..], &["-r3"], &["-r=3"], &["--redirects", "3"]] {
        let flags = flags(&[form, &["-t", "0:1", "-m", "pkg.mod"]].concat());
        assert_eq!(flags.redirects, StdMap::Same(Std::All));
        assert_eq!(flags.tee.of(0), Std::Out);
        assert!(flags.module);
        assert_eq!(flags.script, "pkg.mod");
    }
    let cluster = flags(&["-mr3", "mod"]);
    assert!(cluster.module);
    assert_eq!(cluster.redirects.of(5), Std::All);
    assert!(matches!(error(&["-mx", "mod"]), FlagError::Unknown { .. }));
    assert!(matches!(
        error(&["-m=1", "mod"]),
        FlagError::UnexpectedValue { .. }
    ));
    assert!(matches!(error(&["-r"]), FlagError::MissingValue { .. }));
}

#[test]
fn row44_prefixes() {
    assert_eq!(flags(&["--redirect", "1:2", "s"]).redirects.of(1), Std::Err);
    assert_eq!(flags(&["--nn=2", "s"]).nnodes.max, 2);
    assert!(flags(&["--no_p", "s"]).no_python);
    let FlagError::Ambiguous { candidates, .. } = error(&["--nproc", "2", "s"]) else {
        panic!();
    };
    assert_eq!(candidates, ["--nproc-per-node", "--nproc_per_node"]);
    let text = error(&["--rdzv-e", "h:1", "--master", "x"]).to_string();
    assert!(
        text.contains("`--master`") && text.contains("--master-addr, --master_addr"),
        "{text}"
    );
    // torchrun's prefixes keep their meaning beside our own flags.
    assert_eq!(flags(&["--te", "3", "s"]).tee.of(0), Std::All);
    assert!(flags(&["--virtual-", "s"]).virtual_local_rank);
    assert_eq!(command(&["--h"], &[]).unwrap(), Command::Help);
    assert_eq!(
        flags(&["--event-", "console", "s"]).event_log,
        EventLog::Console
    );
    assert!(flags(&["--sum", "s"]).summary);
    assert!(flags(&["--verb", "s"]).verbose);
}

#[test]
fn row44_all_after_the_script_is_untouched() {
    let odd = OsStr::from_bytes(b"\xff--x");
    let mut arguments: Vec<OsString> = [
        "--nnodes=1",
        "--",
        "train.py",
        "--",
        "-m",
        "--nnodes=7",
        "--bad",
        "",
        "-r9",
    ]
    .iter()
    .map(OsString::from)
    .collect();
    arguments.push(odd.to_owned());
    let Command::Launch(flags) = parse(&arguments, &|_| None).unwrap() else {
        panic!();
    };
    assert_eq!(flags.script, "train.py");
    assert_eq!(flags.args, arguments.split_at(3).1);
    assert_eq!(flags.nnodes.max, 1);
}

/// As torchrun does, tried with Python 3.11: `torchrun -m scripts.train -- --depth=12` is common.
#[test]
fn row44_one_double_dash_right_behind_the_script_is_torchruns_own() {
    for (given, left) in [
        (&["s", "--", "--x", "--"][..], &["--x", "--"][..]),
        (&["s", "--", "--", "x"], &["--", "x"]),
        (&["s", "a", "--", "x"], &["a", "--", "x"]),
        (&["--", "s", "--", "x"], &["--", "x"]),
        (&["-m", "s", "--"], &[]),
    ] {
        assert_eq!(flags(given).args, left, "{given:?}");
    }
}

#[test]
fn row44_switches_of_the_environment_are_numbers() {
    assert!(with(&["s"], &[("PET_STANDALONE", "1")]).standalone);
    assert!(!with(&["s"], &[("PET_STANDALONE", "0")]).standalone);
    assert!(with(&["--standalone", "s"], &[("PET_STANDALONE", "0")]).standalone);
    assert!(!with(&["s"], &[("PET_STANDALONE", "")]).standalone);
    let error = command(&["s"], &[("PET_NO_PYTHON", "yes")]).unwrap_err();
    assert!(
        error.to_string().starts_with("PET_NO_PYTHON: `yes`"),
        "{error}"
    );
}

#[test]
fn help_and_completion_know_every_flag() {
    let text = help("herdrun");
    assert!(
        text.lines().all(|line| line.chars().count() <= 101),
        "{text}"
    );
    for shell in [Shell::Bash, Shell::Zsh, Shell::Tcsh] {
        let script = completion(shell, "herdrun");
        for flag in FLAGS {
            assert!(text.contains(&format!("--{}", flag.name)));
            assert!(script.contains(flag.name), "{}", flag.name);
        }
    }
    assert_eq!(
        command(&["--nnodes=2", "-h", "s"], &[]).unwrap(),
        Command::Help
    );
    assert_eq!(
        command(&["--print-completion", "zsh"], &[]).unwrap(),
        Command::PrintCompletion(Shell::Zsh)
    );
}

#[test]
fn bash_completes_flags_and_words() {
    let script = completion(Shell::Bash, "herdrun");
    for (words, expected) in [
        ("herdrun --numa-binding co", "core-complex"),
        ("herdrun --standa", "--standalone"),
    ] {
        let complete = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_herdrun; echo \"${{COMPREPLY[*]}}\""
        );
        let output = std::process::Command::new("bash")
            .args(["--norc", "-c", &complete])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
    }
}
