//! The help text.

use std::fmt::Write as _;

use super::table::{FLAGS, Flag, Group, Takes};

/// Where the second column begins.
const COLUMN: usize = 34;
/// Where lines end.
const WIDTH: usize = 96;

/// The help, for a program called so (`herdrun`, `herd launch`).
pub fn help(program: &str) -> String {
    let mut text = format!(
        "Runs a training script in several processes, on one node or many: torchrun's flags, without Python.\n\n\
         usage: {program} [FLAG...] SCRIPT [ARGUMENT...]\n\n\
         Flags stand before the script; all after it is passed on. A flag may be written with dashes or\n\
         underscores and shortened where it stays clear; the variable PET_<FLAG> (PET_NNODES, …) stands in\n\
         for one that is not given. Defaults are in parentheses.\n"
    );
    for (group, title) in Group::ALL {
        writeln_to(&mut text, &format!("\n{title}:"));
        for flag in FLAGS.iter().filter(|flag| flag.group == *group) {
            entry(&mut text, flag);
        }
    }
    writeln_to(
        &mut text,
        &format!("\nexample: {program} --standalone --nproc-per-node=4 train.py --lr 0.1"),
    );
    text
}

fn entry(text: &mut String, flag: &Flag) {
    let mut left = flag
        .short
        .map_or_else(|| "      ".to_owned(), |short| format!("  -{short}, "));
    left += "--";
    left += flag.name;
    match flag.takes {
        Takes::Nothing => {}
        Takes::Value(form) => left = format!("{left} {form}"),
        Takes::OneOf(words) => left = format!("{left} {}", words.join("|")),
    }
    let mut line = left;
    if line.chars().count() + 2 > COLUMN {
        writeln_to(text, &line);
        line = String::new();
    }
    for word in flag.help.split(' ') {
        let length = line.chars().count();
        if length < COLUMN {
            line += &" ".repeat(COLUMN - length);
        } else if length + 1 + word.chars().count() > WIDTH {
            writeln_to(text, &line);
            line = " ".repeat(COLUMN);
        } else {
            line.push(' ');
        }
        line += word;
    }
    writeln_to(text, &line);
}

fn writeln_to(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _infallible = writeln!(text, "{line}");
}
