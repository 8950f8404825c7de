//! Programs that start ranks by themselves, found in a job's command.
//!
//! Where herd starts the ranks, each of them would be such a program and start a world of its own:
//! every copy trains alone and ends well, so nothing would ever tell.

use crate::spec::{Command, JobSpec, JobType, Launcher};

/// Start MPI ranks.
const OF_MPI: &[&str] = &[
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "srun",
];
/// Start torch's ranks.
const OF_TORCH: &[&str] = &["torchrun", "deepspeed", "horovodrun", "herdrun"];
/// Do so with this word after them.
const WITH_A_WORD: &[(&str, &str)] = &[
    ("accelerate", "launch"),
    ("colossalai", "run"),
    ("herd", "launch"),
];
/// Modules that do so under `python -m`.
const MODULES: &[&str] = &[
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
];
/// What may stand before the program of a shell's command.
const BEFORE: &[&str] = &[
    "!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "exec", "command",
    "env", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "numactl",
];
/// Programs that run another in an environment, `uv run torchrun`.
const ENVIRONMENTS: &[&str] = &[
    "uv",
    "poetry",
    "pipenv",
    "pdm",
    "hatch",
    "pixi",
    "conda",
    "mamba",
    "micromamba",
];

/// A program that starts ranks by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Starter {
    /// As it stands in the command.
    pub(super) shown: String,
    /// Whether it starts MPI ranks rather than torch's.
    pub(super) of_mpi: bool,
}

/// The first one in the command of a job whose ranks herd starts.
pub(super) fn find(spec: &JobSpec) -> Option<Starter> {
    let herd_starts = match spec.job_type {
        JobType::Mpi => true,
        JobType::Pytorch => spec.launcher == Launcher::Herd,
        JobType::Command | JobType::Ray => false,
    };
    let run = spec.run.as_ref().filter(|_| herd_starts)?;
    let commands = match run {
        Command::Shell(text) => commands(text),
        Command::Argv(words) => match words.as_slice() {
            [shell, flag, text, ..] if is_shell(shell) && flag.starts_with('-') => commands(text),
            words => vec![words.to_vec()],
        },
    };
    commands.iter().find_map(|words| of_command(words))
}

fn is_shell(word: &str) -> bool {
    matches!(base(word), "sh" | "bash" | "dash" | "zsh")
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn of_command(words: &[String]) -> Option<Starter> {
    let words = program(words);
    let (first, rest) = words.split_first()?;
    let name = base(first);
    let found = |shown: String, of_mpi| Some(Starter { shown, of_mpi });
    if OF_MPI.contains(&name) {
        return found(name.to_owned(), true);
    }
    if OF_TORCH.contains(&name) {
        return found(name.to_owned(), false);
    }
    let next = rest.first().map(String::as_str);
    if let Some((program, word)) = WITH_A_WORD
        .iter()
        .find(|(program, word)| *program == name && Some(*word) == next)
    {
        return found(format!("{program} {word}"), false);
    }
    if name.starts_with("python") {
        let at = rest.iter().position(|word| !word.starts_with('-'))?;
        let module = rest.get(at).filter(|_| at > 0 && rest[at - 1] == "-m")?;
        if MODULES.contains(&module.as_str()) {
            return found(format!("{name} -m {module}"), false);
        }
    }
    None
}

/// The words of a command from its program on.
fn program(mut words: &[String]) -> &[String] {
    while let Some((first, rest)) = words.split_first() {
        let name = base(first);
        let runs_another = ENVIRONMENTS.contains(&name) && rest.first().is_some_and(|w| w == "run");
        if !BEFORE.contains(&name) && !runs_another && !is_assignment(first) {
            break;
        }
        words = if runs_another { &rest[1..] } else { rest };
        // Its own options, each with a value where the next word can be no program's name.
        while let Some((option, after)) = words.split_first() {
            let digit = option.starts_with(|c: char| c.is_ascii_digit());
            if !option.starts_with('-') && !digit {
                break;
            }
            let takes_value = matches!(option.as_str(), "-n" | "-p" | "--with" | "--name");
            words = if takes_value && !after.is_empty() {
                &after[1..]
            } else {
                after
            };
        }
    }
    words
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The commands of a shell's text as words without their quotes. What is quoted is one word, a
/// comment none.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut comment = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if comment && c != '\n' {
            continue;
        }
        comment = false;
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => match rest.next() {
                // The line goes on.
                None | Some('\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '#') if word.is_none() => comment = true,
            (None, '\n' | ';' | '&' | '|' | '(' | ')' | '`') => {
                if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
                    command.push(word);
                }
                commands.push(Vec::new());
            }
            (None, c) if c.is_whitespace() => {
                if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
                    command.push(word);
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if let (Some(word), Some(command)) = (word, commands.last_mut()) {
        command.push(word);
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(job_type: JobType, run: Command) -> Option<String> {
        let spec = JobSpec {
            job_type,
            run: Some(run),
            ..JobSpec::default()
        };
        find(&spec).map(|starter| starter.shown)
    }

    fn in_text(text: &str) -> Option<String> {
        found(JobType::Pytorch, Command::Shell(text.to_owned()))
    }

    #[test]
    fn finds_what_starts_ranks_wherever_a_program_stands() {
        for (text, shown) in [
            ("torchrun --nproc_per_node 2 ddp.py", "torchrun"),
            ("exec /opt/bin/torchrun ddp.py", "torchrun"),
            ("OMP_NUM_THREADS=1 torchrun x", "torchrun"),
            ("set -e\ncd src && \\\n  torchrun x", "torchrun"),
            ("if true; then torchrun x; fi", "torchrun"),
            ("uv run --frozen torchrun x", "torchrun"),
            ("conda run -n env torchrun x", "torchrun"),
            ("timeout -k 5 60 torchrun x", "torchrun"),
            ("nice -n 5 env A=b deepspeed x", "deepspeed"),
            (
                "python3 -u -m torch.distributed.run x",
                "python3 -m torch.distributed.run",
            ),
            (
                "python -m torch.distributed.launch x",
                "python -m torch.distributed.launch",
            ),
            ("accelerate launch x", "accelerate launch"),
            ("out=$(\"torchrun\" x)", "torchrun"),
            ("mpirun -n 2 x", "mpirun"),
        ] {
            assert_eq!(in_text(text).as_deref(), Some(shown), "{text}");
        }
        for text in [
            "python ddp.py",
            "python ddp.py -m torch.distributed.run",
            "python -m mine.train torch.distributed.run",
            "echo torchrun",
            "echo 'x; torchrun y'",
            "# torchrun\npython x",
            "accelerate config",
            "python train.py # && torchrun",
            "",
        ] {
            assert_eq!(in_text(text), None, "{text}");
        }
    }

    #[test]
    fn lists_of_words_and_wrapped_scripts_are_looked_at_too() {
        let argv = |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            found(JobType::Mpi, Command::Argv(words))
        };
        assert_eq!(argv(&["mpirun", "x"]).as_deref(), Some("mpirun"));
        assert_eq!(
            argv(&["bash", "-c", "cd x\nmpiexec y"]).as_deref(),
            Some("mpiexec")
        );
        assert_eq!(argv(&["./x", "mpirun"]), None);
    }

    #[test]
    fn where_the_user_starts_the_ranks_nothing_is_in_the_way() {
        let run = || Command::Shell("torchrun x".to_owned());
        assert_eq!(found(JobType::Command, run()), None);
        assert_eq!(found(JobType::Ray, run()), None);
        let spec = JobSpec {
            job_type: JobType::Pytorch,
            launcher: Launcher::User,
            run: Some(run()),
            ..JobSpec::default()
        };
        assert_eq!(find(&spec), None);
    }
}
