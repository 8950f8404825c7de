//! Starting the processes of a phase.

use std::path::{Path, PathBuf};

use herd_core::exit::ProcessEnd;
use herd_core::result::RankResult;
use herd_core::text::error_line;
use herd_launch::{Child, Group, Output, ProcessSpec, SpawnError, Stdin, spawn};
use herd_link::message::{Assign, SetupResult};

use super::{LAUNCHER, PhaseEvent, PhaseRun, Process};
use crate::command;
use crate::environment::{self, Meeting};
use crate::inherited::complete;
use crate::merge::{LAUNCHER_STREAM, SETUP_RANK};
use crate::rank_files::RankFiles;

impl PhaseRun {
    pub(super) fn start_setup(&mut self, assign: &Assign, children: &mut Vec<Child>) -> bool {
        let Some(setup) = &assign.plan.setup else {
            return true;
        };
        let name = assign
            .node_names
            .get(assign.node as usize)
            .cloned()
            .unwrap_or_default();
        let log = Path::new(&assign.attempt_dir)
            .join("nodes")
            .join(name)
            .join("setup.log");
        let mut env = environment::of_setup(assign);
        command::say_again(&setup.run, assign.plan.login_shell, &mut env);
        let spec = ProcessSpec {
            stdout: Output::File(log.clone()),
            stderr: Output::SameAsStdout,
            cpus: assign.cpus.clone(),
            ..ProcessSpec::new(
                command::argv(&setup.run, assign.plan.login_shell),
                complete(assign, env),
                &assign.plan.workdir,
            )
        };
        match spawn(spec) {
            Ok(child) => {
                self.follow(SETUP_RANK, 0, &log);
                self.processes.push(Process {
                    rank: SETUP_RANK,
                    files: RankFiles {
                        stdout: log.clone(),
                        stderr: log,
                        error_file: PathBuf::new(),
                    },
                });
                children.push(child);
                true
            }
            Err(error) => {
                self.setup = Some(SetupResult {
                    end: ProcessEnd::Exited(error.exit_code()),
                    last_lines: Vec::new(),
                    start_error: Some(error_line(&error)),
                });
                false
            }
        }
    }

    pub(super) fn start_ranks(
        &mut self,
        assign: &Assign,
        meeting: &Meeting,
        children: &mut Vec<Child>,
    ) -> bool {
        let Some(run) = &assign.plan.run else {
            return true;
        };
        let argv = command::argv(run, assign.plan.login_shell);
        for local_rank in 0..assign.plan.ranks_per_node {
            let rank = assign.first_rank + local_rank;
            let files = RankFiles::of(Path::new(&assign.attempt_dir), rank);
            let mut env = environment::of_rank(assign, local_rank, meeting);
            env.insert(
                "TORCHELASTIC_ERROR_FILE".to_owned(),
                files.error_file.to_string_lossy().into_owned(),
            );
            command::say_again(run, assign.plan.login_shell, &mut env);
            let spec = ProcessSpec {
                stdin: if assign.pass_stdin {
                    Stdin::Inherit
                } else {
                    Stdin::Null
                },
                stdout: Output::File(files.stdout.clone()),
                stderr: Output::File(files.stderr.clone()),
                cpus: assign.cpus.clone(),
                ..ProcessSpec::new(argv.clone(), complete(assign, env), &assign.plan.workdir)
            };
            match spawn(spec) {
                Ok(child) => {
                    self.follow(rank, 1, &files.stdout);
                    self.follow(rank, 2, &files.stderr);
                    self.processes.push(Process { rank, files });
                    self.pending.push_back(PhaseEvent::Started {
                        rank,
                        pid: child.pid(),
                    });
                    children.push(child);
                }
                Err(error) => {
                    let result = Box::new(self.not_started(rank, &error));
                    self.pending.push_back(PhaseEvent::Ended(result));
                    return false;
                }
            }
        }
        true
    }

    /// Starts the process that starts the ranks; what it writes is followed.
    pub(crate) fn launch(&mut self, spec: ProcessSpec) -> Result<(), SpawnError> {
        let log = match &spec.stdout {
            Output::File(path) => path.clone(),
            _ => PathBuf::new(),
        };
        let child = spawn(spec)?;
        self.follow(SETUP_RANK, LAUNCHER_STREAM, &log);
        self.processes.push(Process {
            rank: LAUNCHER,
            files: RankFiles {
                stdout: log.clone(),
                stderr: log,
                error_file: PathBuf::new(),
            },
        });
        self.group = Group::from_children(vec![child]);
        Ok(())
    }

    fn not_started(&self, rank: u32, error: &SpawnError) -> RankResult {
        RankResult {
            start_error: Some(error_line(error)),
            ..self.without_start(rank, error.exit_code())
        }
    }

    pub(super) fn without_start(&self, rank: u32, code: u8) -> RankResult {
        RankResult::ended(
            rank,
            self.node,
            ProcessEnd::Exited(code),
            self.clock.now_ms(),
        )
    }
}
