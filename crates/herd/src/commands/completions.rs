//! `herd completions SHELL`: a completion script on standard output.
//!
//! clap writes what the command line tells; where a job is named, a script asks `herd selectors`.

use clap::{Arg, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::cli::machine::CompletionsArgs;
use crate::printer::Printer;

/// Commands that are for jobs that have not ended.
const FOR_ACTIVE: &[&str] = &["cancel", "exec", "hold", "release", "requeue"];

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, printer: &mut Printer) -> u8 {
    let mut script = Vec::new();
    let mut command = shown();
    clap_complete::generate(args.shell, &mut command, "herd", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => bash(&script, &command),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script, &command),
        _ => script.into_owned(),
    };
    printer.data(script.as_bytes());
    0
}

/// The command line without what only backends call: clap would complete that too.
fn shown() -> clap::Command {
    let all = Cli::command();
    let visible = all.get_subcommands().filter(|sub| !sub.is_hide_set());
    clap::Command::new("herd")
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(visible.cloned())
}

/// Names of the commands that take a job.
fn of_jobs(command: &clap::Command) -> Vec<&str> {
    let takes_job = |sub: &&clap::Command| sub.get_positionals().any(names_job);
    let subs = command.get_subcommands().filter(takes_job);
    subs.map(clap::Command::get_name).collect()
}

fn names_job(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names == ["JOB"])
}

/// Options of the commands that take a job, and of herd itself, after which a value stands.
fn with_values(command: &clap::Command) -> Vec<String> {
    let subs = command.get_subcommands();
    let subs = subs.filter(|sub| sub.get_positionals().any(names_job));
    let args = subs.chain([command]).flat_map(clap::Command::get_arguments);
    let mut options = Vec::new();
    for arg in args.filter(|arg| !arg.is_positional() && arg.get_action().takes_values()) {
        options.extend(arg.get_short().map(|short| format!("-{short}")));
        options.extend(arg.get_long().map(|long| format!("--{long}")));
    }
    options.sort_unstable();
    options.dedup();
    options
}

/// bash has one function for all words, so one before it answers where a job is to be named. Words
/// are compared here and not by `compgen -W`, which would expand them.
fn bash(script: &str, command: &clap::Command) -> String {
    let own = r#"
_herd_or_jobs() {
    local current=$2 command= word at
    local -a ask=("$1")
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        case $word in
            --) command=; break ;;
            --home) ((++at)); ask+=(--home "${COMP_WORDS[at]}") ;;
            VALUES) ((++at)) ;;
            -*) ;;
            *) [[ $command ]] || command=$word ;;
        esac
    done
    ask+=(selectors)
    case $command in
        ACTIVE) ask+=(--active) ;;
        JOBS) ;;
        *) command= ;;
    esac
    # `at` is beyond the current word where that is an option's value.
    if [[ -z $command || $current == -* ]] || ((at > COMP_CWORD)); then
        _herd "$@"
        return
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        [[ $word == "$current"* ]] && COMPREPLY+=("$word")
    done < <("${ask[@]}" 2>/dev/null)
}

complete -F _herd_or_jobs -o bashdefault -o default herd
"#;
    let own = own
        .replace("VALUES", &with_values(command).join("|"))
        .replace("JOBS", &of_jobs(command).join("|"))
        .replace("ACTIVE", &FOR_ACTIVE.join("|"));
    format!("{script}{own}")
}

/// zsh names a function for each place; those of a job get one that asks herd.
fn zsh(script: &str) -> String {
    let own = r#"
_herd_jobs() {
    local only line
    local -a jobs
    [[ $curcontext == *herd-command-(ACTIVE):* ]] && only=--active
    for line in ${(f)"$(_call_program jobs herd selectors $only 2>/dev/null)"}; do
        jobs+=("${line/$'\t'/:}")
    done
    _describe -V job jobs
}
"#;
    let own = own.replace("ACTIVE", &FOR_ACTIVE.join("|"));
    let mut whole = String::with_capacity(script.len() + own.len());
    for line in script.split_inclusive('\n') {
        let of_job = ["':job -- ", "'::job -- ", "'*::jobs -- "];
        let at_job = of_job.iter().any(|start| line.starts_with(start));
        match line.rsplit_once(":_default'").filter(|_| at_job) {
            Some((before, after)) => whole.extend([before, ":_herd_jobs'", after]),
            None => whole.push_str(line),
        }
        // Before anything that calls it.
        if line.starts_with("autoload ") {
            whole.push_str(&own);
        }
    }
    whole
}

fn fish(script: &str, command: &clap::Command) -> String {
    let mut whole = script.to_owned();
    for name in of_jobs(command) {
        let only = if FOR_ACTIVE.contains(&name) {
            " --active"
        } else {
            ""
        };
        let line = format!(
            "complete -c herd -n \"__fish_herd_using_subcommand {name}; and not contains -- -- \
             (commandline -opc)\" -f -k -a \"(herd selectors{only} 2>/dev/null)\"\n"
        );
        whole.push_str(&line);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_people_call_is_completed() {
        let offered: Vec<_> = shown()
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in ["run", "logs", "completions"] {
            assert!(offered.iter().any(|offer| offer == name), "{offered:?}");
        }
        for name in ["executor", "driver", "rsh", "shim", "stage", "selectors"] {
            assert!(!offered.iter().any(|offer| offer == name), "{offered:?}");
        }
    }

    #[test]
    fn every_place_of_a_job_asks_herd() {
        let command = shown();
        let jobs = of_jobs(&command);
        assert_eq!(
            jobs,
            [
                "status", "logs", "events", "wait", "cancel", "hold", "release", "requeue", "why",
                "exec", "get"
            ]
        );
        let mut script = Vec::new();
        clap_complete::generate(Shell::Zsh, &mut shown(), "herd", &mut script);
        let script = zsh(&String::from_utf8(script).unwrap());
        assert_eq!(script.matches(":_herd_jobs'").count(), jobs.len());
        for option in ["-o", "--rank", "--home"] {
            assert!(with_values(&command).iter().any(|known| known == option));
        }
    }
}
