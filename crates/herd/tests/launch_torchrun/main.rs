//! Command lines out of public training repositories, each run by torchrun and by `herd launch` beside
//! it: every worker gets the same arguments and, variable by variable, the same environment. What may
//! differ is listed in [`explained`], with the reason.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lines::{LINES, Line};
use serde_json::Value;
use tempfile::TempDir;

/// Takes the place of every script.
const DUMP: &str = "
import json, os, sys
place = os.environ['DUMP'] + '/' + os.environ['RANK']
with open(place + '.part', 'w') as out:
    json.dump({'argv': sys.argv[1:], 'env': dict(os.environ)}, out)
os.rename(place + '.part', place)
";

/// One worker's arguments and variables.
#[derive(Debug)]
struct Worker {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
}

type Workers = BTreeMap<u32, Worker>;

/// Whether two values of a variable may differ as these do.
fn explained(line: &Line, name: &str, torchrun: &str, herd: &str) -> bool {
    let both = |test: fn(&str) -> bool| test(torchrun) && test(herd);
    let chosen = !line.text.contains("{port}");
    match name {
        // The two ran in directories of their own.
        "DUMP" | "PWD" | "OLDPWD" | "TMPDIR" => true,
        // A port that each of them has chosen, or, in a c10d rendezvous, that of a store of its own.
        "MASTER_PORT" => {
            (chosen || line.text.contains("c10d")) && both(|text| text.parse::<u16>().is_ok())
        }
        // herd gives an address where torchrun gives this machine's name: a name need not resolve.
        "MASTER_ADDR" => (chosen || line.text.contains("c10d")) && herd == "127.0.0.1",
        // A random name where nobody has given one.
        "TORCHELASTIC_RUN_ID" => !line.text.contains("--rdzv_id"),
        // The same place below directories with random names; below one that nobody named, workers
        // without logs have no directories of their own.
        "TORCHELASTIC_ERROR_FILE" => {
            let end = |text: &str, parts: usize| {
                let mut parts: Vec<&str> = text.rsplit('/').take(parts).collect();
                parts.reverse();
                parts.join("/")
            };
            let theirs = end(torchrun, 3);
            theirs.starts_with("attempt_")
                && if ["log_dir", "log-dir", "redirect", "tee"]
                    .iter()
                    .any(|flag| line.text.contains(flag))
                {
                    end(herd, 3) == theirs
                } else {
                    end(herd, 2) == theirs.replace("/error.json", ".error.json")
                }
        }
        _ => false,
    }
}

struct Pair {
    directory: TempDir,
    python: PathBuf,
}

impl Pair {
    fn new(script: &str) -> Self {
        let python = std::env::var_os("HERD_LAB_TORCH_PYTHON")
            .expect("HERD_LAB_TORCH_PYTHON is not set: run lab/torch, then eval \"$(lab/env)\"");
        let directory = TempDir::new().unwrap();
        for side in ["torchrun", "herd"] {
            let path = directory.path().join(side).join(script);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::create_dir_all(directory.path().join(side).join("dump")).unwrap();
            fs::write(path, DUMP).unwrap();
        }
        Self {
            directory,
            python: python.into(),
        }
    }

    /// Runs the line on every node and returns what its workers saw.
    fn run(&self, side: &str, line: &Line) -> Result<Workers, String> {
        let directory = self.directory.path().join(side);
        let programs = self.python.parent().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let children: Vec<_> = (0..line.nodes)
            .map(|node| {
                let text = line.text.replace("{port}", &port.to_string());
                let text = text.replace("{node}", &node.to_string());
                let mut command = if side == "herd" {
                    let mut command = Command::new(env!("CARGO_BIN_EXE_herd"));
                    command.arg("launch");
                    command
                } else {
                    Command::new(programs.join("torchrun"))
                };
                let path = std::env::var("PATH").unwrap();
                command
                    .args(text.split_whitespace())
                    .current_dir(&directory)
                    // What this test itself was started with.
                    .env_clear()
                    .env("PATH", format!("{}:{path}", programs.display()))
                    .env("HOME", std::env::var_os("HOME").unwrap_or_default())
                    .env("TMPDIR", &directory)
                    .env("DUMP", directory.join("dump"))
                    .env("PYTHONPATH", &directory)
                    .envs(line.env.iter().copied())
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            if !output.status.success() {
                return Err(format!(
                    "{side} ended with {}: {}{}",
                    output.status,
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
        let mut workers = read(&directory.join("dump"));
        // The two had a port each: the one that was given is what has to come out.
        if !line.text.contains("c10d") {
            for value in workers
                .values_mut()
                .filter_map(|own| own.env.get_mut("MASTER_PORT"))
            {
                *value = value.replace(&port.to_string(), "{port}");
            }
        }
        Ok(workers)
    }
}

fn read(dump: &Path) -> Workers {
    let worker = |path: PathBuf| {
        let rank = path.file_name()?.to_str()?.parse().ok()?;
        let value: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let argv = serde_json::from_value(value["argv"].clone()).ok()?;
        let env = serde_json::from_value(value["env"].clone()).ok()?;
        Some((rank, Worker { argv, env }))
    };
    let files = fs::read_dir(dump).unwrap().flatten();
    files.filter_map(|entry| worker(entry.path())).collect()
}

/// The path of the script, from the line: the first word that is neither a flag nor a flag's value.
fn script(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut module = false;
    while let Some(word) = words.next() {
        match word {
            "-m" => module = true,
            "--standalone" | "--virtual-local-rank" => {}
            flag if flag.starts_with("--") && flag.contains('=') => {}
            flag if flag.starts_with("--") => drop(words.next()),
            name if module => return format!("{}.py", name.replace('.', "/")),
            name => return name.to_owned(),
        }
    }
    panic!("no script in {line}")
}

/// Everything that differs and should not.
fn differences(line: &Line) -> Vec<String> {
    let pair = Pair::new(&script(line.text));
    let torchrun = pair.run("torchrun", line);
    let both = torchrun.and_then(|theirs| Ok((theirs, pair.run("herd", line)?)));
    let found = match both {
        Ok((torchrun, herd)) => compare(&pair, line, &torchrun, &herd),
        Err(failure) => vec![failure],
    };
    let named = |text: &String| format!("{}: {}: {text}", line.source, line.text);
    found.iter().map(named).collect()
}

fn compare(pair: &Pair, line: &Line, torchrun: &Workers, herd: &Workers) -> Vec<String> {
    let mut found = Vec::new();
    let ranks = |workers: &Workers| workers.keys().copied().collect::<Vec<_>>();
    if ranks(torchrun) != ranks(herd) || herd.is_empty() {
        found.push(format!("ranks {:?} and {:?}", ranks(torchrun), ranks(herd)));
    }
    for ((rank, theirs), ours) in torchrun.iter().zip(herd.values()) {
        if theirs.argv != ours.argv {
            let (theirs, ours) = (&theirs.argv, &ours.argv);
            found.push(format!("rank {rank}: arguments {theirs:?} and {ours:?}"));
        }
        let names: BTreeSet<&String> = theirs.env.keys().chain(ours.env.keys()).collect();
        for name in names {
            let (theirs, ours) = (theirs.env.get(name), ours.env.get(name));
            let same = match (theirs, ours) {
                (Some(theirs), Some(ours)) => {
                    // Values with the name of the side's directory are alike without it.
                    let own = |text: &str, side: &str| {
                        text.replace(&*pair.directory.path().join(side).to_string_lossy(), "@")
                    };
                    own(theirs, "torchrun") == own(ours, "herd")
                        || explained(line, name, theirs, ours)
                }
                // Neither sets a variable that the other does not.
                (one, other) => one == other,
            };
            if !same {
                found.push(format!("rank {rank}: {name} is {theirs:?} and {ours:?}"));
            }
        }
    }
    found
}

#[test]
fn the_environment_of_workers_is_torchruns() {
    assert!(LINES.iter().filter(|line| line.nodes == 1).count() >= 20);
    // torchrun imports torch for seconds: two at a time.
    let (first, second): (Vec<_>, Vec<_>) = LINES
        .iter()
        .enumerate()
        .partition(|(index, _)| index % 2 == 0);
    let found = std::thread::scope(|scope| {
        let run = |lines: Vec<(usize, &'static Line)>| {
            scope.spawn(move || {
                let found = lines.into_iter().flat_map(|(_, line)| differences(line));
                found.collect::<Vec<_>>()
            })
        };
        let both = [run(first), run(second)];
        both.map(|thread| thread.join().unwrap()).concat()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
