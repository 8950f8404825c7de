//! What to say to a command line that clap refuses: what its author probably meant.
//!
//! clap offers the nearest spelling; people bring words of other tools, whose spelling is near to
//! something else. So the words are listed here, and only then is spelling compared.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Parser};
use herd_core::jobfile::keys;
use herd_core::text::{nearest, quoted};
use herd_slurm::import;

use super::Cli;
use crate::job_input::source::{MAX_BYTES, read_bounded};

/// Commands that take a job.
const JOB: &[&str] = &["run", "submit", "render"];
/// Words of one command that another tool has, and what says it here.
type Said = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// Flags of other tools.
const FLAGS: &[Said] = &[
    (
        JOB,
        &["-n", "--ntasks", "--np", "--num-procs"],
        "`-N NODES` is the number of nodes, `--procs-per-node N` that of processes on each",
    ),
    (
        JOB,
        &["--nnodes", "--num-nodes", "--node-count"],
        "`-N NODES` is the number of nodes",
    ),
    (
        JOB,
        &["--nproc", "--nproc-per-node", "--ntasks-per-node", "--ppn"],
        "`--procs-per-node N` is the number of processes on each node",
    ),
    (
        JOB,
        &["--cpu", "--cpus-per-task", "--cpus-per-node"],
        "`-c N` is the number of CPUs, per node",
    ),
    (
        JOB,
        &["--gpu", "--gres", "--gpus-per-node", "--num-gpus"],
        "`--gpus N` is the number of GPUs, per node",
    ),
    (
        JOB,
        &["-m", "--memory"],
        "`--mem SIZE` is the memory, per node",
    ),
    (
        JOB,
        &["--walltime", "--timeout", "--time-limit"],
        "`-t TIME` is the time limit",
    ),
    (
        JOB,
        &["-D", "-C", "--chdir", "--cwd", "--dir"],
        "`--workdir DIR` is the directory to run in",
    ),
    (JOB, &["-e", "--envs"], "`--env NAME=VALUE` sets a variable"),
    (JOB, &["--job-name"], "`--name NAME` names the job"),
    (JOB, &["--secrets"], "`--secret NAME` passes a secret"),
    (
        JOB,
        &["-a", "--array"],
        "write `array: 0-9` in a job file: there is no flag for it",
    ),
    (
        JOB,
        &["--after", "--dependency", "--depends-on"],
        "write `after: [JOB]` in a job file: there is no flag for it",
    ),
    (
        JOB,
        &["--retry", "--retries", "--max-retries", "--max-restarts"],
        "write `retry: {max: 3}` in a job file: there is no flag for it",
    ),
    (
        JOB,
        &["--dry-run", "--dryrun", "--test-only"],
        "`herd render` shows what would run and starts nothing",
    ),
    (
        JOB,
        &["-d", "--detach", "--detach-run", "--background"],
        "`herd submit` hands the job over and returns; `after: [JOB]` in a job file has it wait for another job",
    ),
    (
        JOB,
        &["-i", "--interactive", "--pty"],
        "a job has no terminal; `herd exec` runs a command inside one",
    ),
    (
        &["logs"],
        &["-n", "--lines", "--tail-lines"],
        "`--tail N` shows the last N lines",
    ),
    (
        &["logs"],
        &["--stderr", "--stdout"],
        "`--stream stderr` or `--stream stdout` shows one of both",
    ),
    (
        &["status", "why"],
        &["-f", "-w", "--follow", "--watch"],
        "`herd events -f` follows what happens to a job, `herd logs -f` what it writes",
    ),
    (
        &["cancel"],
        &["-9", "-f", "--force", "--kill"],
        "`--grace 0s` gives no time to end",
    ),
    (&["cancel"], &["-s"], "`--signal SIGNAL` chooses the signal"),
    (
        &["wait"],
        &["-t", "--time"],
        "`--timeout TIME` bounds the wait",
    ),
    (
        &["gc"],
        &["-a", "--all", "-f", "--force"],
        "`--older-than 0s` removes every job that has ended",
    ),
    (
        &["gc"],
        &["-n", "--dryrun"],
        "`--dry-run` only says what would be removed",
    ),
];

/// Formats that other tools have a flag for.
const FORMATS: &[(&[&str], &str)] = &[
    (&["--json"], "`-o json` prints JSON"),
    (&["--yaml"], "`-o yaml` prints YAML"),
    (
        &["-l", "-w", "--wide", "--long"],
        "`-o wide` shows more columns",
    ),
    (&["-q", "--quiet"], "`-o id` prints ids alone"),
    (&["--format"], "`-o FORMAT` chooses the format"),
];

/// Commands of other tools.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["stop", "kill", "scancel", "down", "abort", "terminate"],
        "`herd cancel JOB` asks a job to end",
    ),
    (&["ps", "jobs", "queue", "squeue"], "`herd ls` lists jobs"),
    (
        &["rerun", "restart", "resubmit", "resume"],
        "give `herd run` or `herd submit` the file or the command again; `retry` in a job file does \
         so by itself",
    ),
    (
        &["rm", "remove", "delete", "del", "prune", "clean"],
        "`herd gc` removes jobs that have ended, `herd cancel JOB` asks one to end",
    ),
    (&["log", "tail"], "`herd logs JOB` shows what a job wrote"),
    (
        &["show", "info", "describe", "inspect", "stat"],
        "`herd status JOB` shows one job",
    ),
    (
        &["start", "srun"],
        "`herd run` runs a job now, `herd submit` hands one over",
    ),
    (&["sbatch"], "`herd submit` hands a job over"),
    (
        &["ssh", "attach", "shell"],
        "`herd exec JOB -- CMD` runs a command inside a job",
    ),
    (
        &["validate", "check", "plan", "dry-run"],
        "`herd render FILE` shows what would run, `herd doctor` checks this machine",
    ),
];

/// The answer to a command line that was refused, its text ending with hints.
pub(crate) fn refusal(mut error: clap::Error, args: &[OsString], color: bool) -> String {
    let words: Vec<String> = args
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let hints = hints(&error, &words);
    for kind in [
        ContextKind::Suggested,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedCommand,
    ] {
        error.remove(kind);
    }
    let shown = error.render();
    let mut text = if color {
        shown.ansi().to_string()
    } else {
        shown.to_string()
    };
    let (bold, reset) = if color {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    for hint in hints {
        for part in [bold, "hint:", reset, " ", &hint, "\n"] {
            text.push_str(part);
        }
    }
    text
}

fn hints(error: &clap::Error, words: &[String]) -> Vec<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let line = Line::new(words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => context(ContextKind::InvalidSubcommand)
            .map(|word| vec![command(word, words)])
            .unwrap_or_default(),
        ErrorKind::UnknownArgument => context(ContextKind::InvalidArg)
            .map(|word| argument(word, &line))
            .unwrap_or_default(),
        ErrorKind::ArgumentConflict => line.with_dashes().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// What to say about a command that does not exist.
fn command(word: &str, words: &[String]) -> String {
    let after: Vec<&String> = words
        .iter()
        .skip_while(|other| *other != word)
        .skip(1)
        .collect();
    match word {
        "help" => {
            return match after.first() {
                Some(name) => format!("`herd {} --help`", shell(name)),
                None => "`herd --help`, or `herd COMMAND --help`".to_owned(),
            };
        }
        "version" => return "`herd --version`".to_owned(),
        _ => {}
    }
    if let Some((_, advice)) = COMMANDS.iter().find(|(names, _)| names.contains(&word)) {
        return (*advice).to_owned();
    }
    let all = Cli::command();
    let names = all.get_subcommands().filter(|sub| !sub.is_hide_set());
    if let Some(name) = nearest(word, names.map(Command::get_name)) {
        return format!("did you mean `herd {name}`?");
    }
    if is_job_file(word) {
        return format!("`herd run {}` runs a job file", shell(word));
    }
    let program: Vec<String> = std::iter::once(word)
        .chain(after.iter().map(|word| word.as_str()))
        .map(shell)
        .collect();
    format!("`herd run -- {}` runs a program", program.join(" "))
}

/// What to say about an argument that its command does not take.
fn argument(word: &str, line: &Line) -> Vec<String> {
    let name = line.name.as_str();
    let dashed = word.starts_with('-');
    if let Some(hint) = line.with_dashes().filter(|_| line.is_after_first(word)) {
        return vec![hint];
    }
    if !dashed {
        return match line.first_plain() {
            Some(file) if JOB.contains(&name) => {
                vec![format!(
                    "{} is read as a job file, which takes no arguments",
                    quoted(file)
                )]
            }
            _ => Vec::new(),
        };
    }
    let said = FLAGS
        .iter()
        .find(|(commands, flags, _)| commands.contains(&name) && flags.contains(&word));
    if let Some((_, _, advice)) = said {
        return vec![(*advice).to_owned()];
    }
    let known = |id: &str| line.args.iter().any(|arg| arg.get_id() == id);
    let format = FORMATS.iter().find(|(flags, _)| flags.contains(&word));
    if let Some((_, advice)) = format.filter(|_| known("output")) {
        return vec![(*advice).to_owned()];
    }
    let longs = || line.args.iter().filter_map(Arg::get_long);
    let bare = word.trim_start_matches('-');
    if !word.starts_with("--") {
        return Vec::new();
    }
    let key = bare.replace('-', "_");
    if JOB.contains(&name) && keys::JOB.iter().any(|known| known.name == key) {
        return vec![format!(
            "write `{key}` in a job file: there is no flag for it"
        )];
    }
    match nearest(bare, longs()) {
        Some(name) => vec![format!("did you mean `--{name}`?")],
        None => Vec::new(),
    }
}

/// A command line as far as it can be read without its faults.
struct Line {
    /// The command; empty where there is none.
    name: String,
    /// What follows it.
    words: Vec<String>,
    /// The arguments that it takes, the global ones among them.
    args: Vec<Arg>,
}

impl Line {
    fn new(words: &[String]) -> Self {
        let all = Cli::command();
        let global: Vec<Arg> = all.get_arguments().cloned().collect();
        let at = plain(&global, words)
            .first()
            .copied()
            .unwrap_or(words.len());
        let name = words.get(at).cloned().unwrap_or_default();
        let own = all.find_subcommand(&name).into_iter();
        let own = own.flat_map(Command::get_arguments).cloned();
        Self {
            args: own.chain(global).collect(),
            words: words.iter().skip(at + 1).cloned().collect(),
            name,
        }
    }

    fn first_plain(&self) -> Option<&str> {
        let at = *plain(&self.args, &self.words).first()?;
        self.words.get(at).map(String::as_str)
    }

    /// Whether a word stands behind the first one that is no flag.
    fn is_after_first(&self, word: &str) -> bool {
        let first = plain(&self.args, &self.words).first().copied();
        first.is_some_and(|at| {
            let later = self.words.iter().skip(at + 1);
            later.take_while(|other| *other != "--").any(|other| {
                // `-nx` and `--a=b` are refused by their first part.
                other == word || (word.starts_with('-') && other.starts_with(word))
            })
        })
    }

    /// The line with a command in the place of a file; its options stay.
    fn with_command(&self, file: &str, command: &str) -> Option<String> {
        let places = plain(&self.args, &self.words);
        let at = *places.first()?;
        let others = self.words.iter().enumerate();
        let others = others.filter(|(place, word)| *place != at && *word != "--");
        let options: Vec<String> = others.map(|(_, word)| shell(word)).collect();
        let fits = self.words.get(at).is_some_and(|word| word == file)
            && JOB.contains(&self.name.as_str());
        let words = [vec![self.name.clone()], options, vec!["--".to_owned()]].concat();
        fits.then(|| format!("herd {} {command}", words.join(" ")))
    }

    /// The same with `--` where the program begins, for a line that names a program without it.
    fn with_dashes(&self) -> Option<String> {
        // `exec` takes the job first.
        let skipped = match self.name.as_str() {
            "exec" => 1,
            name if JOB.contains(&name) => 0,
            _ => return None,
        };
        let places = plain(&self.args, &self.words);
        let at = *places.get(skipped)?;
        if skipped == 0 && self.words.get(at).is_some_and(|word| is_job_file(word)) {
            return None;
        }
        let script = skipped == 0 && self.words.get(at).is_some_and(|word| is_batch_script(word));
        let (before, program) = self.words.split_at_checked(at + usize::from(script))?;
        let shown = before.iter().map(|word| shell(word));
        let program = program.iter().filter(|word| *word != "--");
        let shown: Vec<String> = std::iter::once(self.name.clone())
            .chain(shown)
            .chain(std::iter::once("--".to_owned()))
            .chain(program.map(|word| shell(word)))
            .collect();
        let what = if script {
            "arguments of a batch script come"
        } else {
            "a program comes"
        };
        Some(format!("{what} after `--`: `herd {}`", shown.join(" ")))
    }
}

/// Places of the words that are neither flags nor their values, up to `--`.
fn plain(args: &[Arg], words: &[String]) -> Vec<usize> {
    let takes = |found: Option<&Arg>| found.is_some_and(|arg| arg.get_action().takes_values());
    let mut places = Vec::new();
    let mut is_value = false;
    for (place, word) in words.iter().enumerate() {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word == "--" {
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            is_value = takes(args.iter().find(|arg| arg.get_long() == Some(long)));
        } else if let Some(short) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let mut letters = short.chars();
            let first = letters.next();
            let takes_value = takes(args.iter().find(|arg| arg.get_short() == first));
            is_value = takes_value && letters.next().is_none();
        } else {
            places.push(place);
        }
    }
    places
}

/// The command line that runs `command` as the one that was given would run a job file.
pub(crate) fn with_command(words: &[String], file: &str, command: &str) -> String {
    Line::new(words)
        .with_command(file, command)
        .unwrap_or_else(|| format!("herd run -- {command}"))
}

/// Whether a word names a batch script that is there.
fn is_batch_script(word: &str) -> bool {
    read_bounded(Path::new(word), MAX_BYTES).is_ok_and(|bytes| import::looks_like_script(&bytes))
}

/// Reads a command line. A command beside a file is for batch scripts alone.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let cli = Cli::try_parse_from(args)?;
    let job = match &cli.command {
        super::Command::Run(args) => &args.job,
        super::Command::Submit(args) => &args.job,
        super::Command::Render(args) => &args.job,
        _ => return Ok(cli),
    };
    let both = job.file.as_ref().filter(|_| !job.command.is_empty());
    if both.is_some_and(|file| !is_batch_script(&file.to_string_lossy())) {
        let text = "the argument '[FILE]' cannot be used with '[CMD]...'";
        return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    Ok(cli)
}

/// Whether a word names a job file rather than a program.
fn is_job_file(word: &str) -> bool {
    word == "-"
        || [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| word.ends_with(end))
}

/// A word as a shell reads it, without what a terminal would obey.
fn shell(word: &str) -> String {
    crate::text::shell_word(
        &word
            .chars()
            .map(herd_core::text::visible)
            .collect::<String>(),
    )
}

#[cfg(test)]
mod tests;
