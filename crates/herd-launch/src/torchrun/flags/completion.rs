//! Completion of the flags in three shells.

use super::table::{FLAGS, Flag, Takes};
use super::values::Shell;

/// A script that completes the flags of a program of this name, and files after them. The name must
/// be one word.
pub fn completion(shell: Shell, program: &str) -> String {
    match shell {
        Shell::Bash => bash(program),
        Shell::Zsh => zsh(program),
        Shell::Tcsh => tcsh(program),
    }
}

fn words(flag: &Flag) -> Option<String> {
    match flag.takes {
        Takes::OneOf(words) => Some(words.join(" ")),
        Takes::Nothing | Takes::Value(_) => None,
    }
}

/// A name for a shell function.
fn identifier(program: &str) -> String {
    program
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

fn bash(program: &str) -> String {
    let function = format!("_{}", identifier(program));
    let choices: String = FLAGS
        .iter()
        .filter_map(|flag| {
            Some(format!(
                "    --{}) COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return ;;\n",
                flag.name,
                words(flag)?
            ))
        })
        .collect();
    let all: Vec<_> = FLAGS
        .iter()
        .map(|flag| format!("--{}", flag.name))
        .collect();
    format!(
        "{function}() {{\n  \
           local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n  \
           case \"$previous\" in\n{choices}  esac\n  \
           if [[ \"$current\" == -* ]]; then\n    \
             COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))\n  \
           else\n    COMPREPLY=($(compgen -f -- \"$current\"))\n  fi\n}}\n\
         complete -o filenames -F {function} {program}\n",
        all.join(" ")
    )
}

fn zsh(program: &str) -> String {
    let specs: Vec<_> = FLAGS.iter().map(zsh_flag).collect();
    format!(
        "#compdef {program}\n_arguments -s \\\n{}  '1:script:_files' \\\n  '*::argument:_files'\n",
        specs.concat()
    )
}

fn zsh_flag(flag: &Flag) -> String {
    let help = zsh_escaped(flag.help);
    let value = match flag.takes {
        Takes::Nothing => String::new(),
        Takes::Value(form) => format!(":{}:_files", zsh_escaped(form)),
        Takes::OneOf(words) => format!(":value:({})", words.join(" ")),
    };
    format!("  '--{}[{help}]{value}' \\\n", flag.name)
}

/// For a description inside single quotes and brackets.
fn zsh_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '\'' => escaped += "'\\''",
            '[' | ']' | ':' | '\\' => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn tcsh(program: &str) -> String {
    let all: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
    let choices: String = FLAGS
        .iter()
        .filter_map(|flag| Some(format!(" 'n/--{}/({})/'", flag.name, words(flag)?)))
        .collect();
    format!(
        "complete {program}{choices} 'c/--/({})/' 'p/*/f/'\n",
        all.join(" ")
    )
}
