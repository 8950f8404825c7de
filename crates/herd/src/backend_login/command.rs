//! herd's own commands, run on the login node for a job that is there.

use std::io::{self, Read, Write};
use std::process::Stdio;

use herd_core::units::Span;
use herd_jobdir::JobDir;
use herd_login::mirror::Record;
use herd_login::program::HELLO_BOUND;
use herd_login::protocol::{Request, send};
use herd_login::{Ended, LoginError};

use super::{ANSWER_BOUND, Login, failed};
use crate::error::ExpectedError;
use crate::printer::Printer;

/// Most bytes that a command may answer which is not shown as it comes.
const MOST: usize = 16 << 20;

/// Asks for the end of a job.
pub(crate) fn cancel(
    dir: &JobDir,
    record: &Record,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let mut args = vec![
        "cancel".to_owned(),
        "--signal".to_owned(),
        signal.to_string(),
    ];
    if let Some(grace) = grace {
        args.push("--grace".to_owned());
        args.push(format!("{}ms", grace.ms));
    }
    args.push(dir.id().to_string());
    quiet("cancel the job", record, args).map(drop)
}

/// Does something to a job in the queue, by the name of herd's command for it.
pub(crate) fn control(
    dir: &JobDir,
    record: &Record,
    words: &[&str],
    what: &'static str,
) -> Result<(), ExpectedError> {
    let mut args: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    args.push(dir.id().to_string());
    quiet(what, record, args).map(drop)
}

/// Runs a command and gives its standard output. One that fails says why on its standard error.
fn quiet(what: &str, record: &Record, args: Vec<String>) -> Result<Vec<u8>, ExpectedError> {
    let asked = || -> Result<(Vec<u8>, Ended), LoginError> {
        let (mut channel, _) = Login::of(record)?.start(HELLO_BOUND)?;
        send(&mut channel, &Request::Herd { args })?;
        channel.close_input();
        let mut out = Vec::new();
        loop {
            let more = channel.some(Some(ANSWER_BOUND))?;
            if more.is_empty() {
                break;
            }
            out.extend_from_slice(&more);
            if out.len() > MOST {
                return Err(channel.misunderstood("it says too much"));
            }
        }
        Ok((out, channel.end()?))
    };
    let (out, ended) = asked().map_err(|error| failed(what, error))?;
    if ended.code == 0 {
        return Ok(out);
    }
    // Its words are one line here: `error: …; caused by: …; hint: …`.
    let said = ended.said.text();
    let (text, hint) = said.split_once("; hint: ").unwrap_or((said, ""));
    let text = text.rsplit_once("error: ").map_or(text, |(_, text)| text);
    Err(ExpectedError::Login {
        what: what.to_owned(),
        source: text.to_owned().into(),
        hints: Some(hint.to_owned())
            .filter(|hint| !hint.is_empty())
            .into_iter()
            .collect(),
        code: ended.code,
    })
}

/// Runs a command there and shows what it says as it comes; its exit code.
pub(crate) fn show(
    record: &Record,
    args: Vec<String>,
    printer: &mut Printer,
) -> Result<u8, ExpectedError> {
    pass(record, args, false, printer).map_err(|error| failed("run herd on the login node", error))
}

/// Runs a command inside a job, with this process's streams; its exit code.
pub(crate) fn exec(
    record: &Record,
    args: Vec<String>,
    printer: &mut Printer,
) -> Result<u8, ExpectedError> {
    let what = "run the command";
    let all_terminals =
        io::IsTerminal::is_terminal(&io::stdin()) && io::IsTerminal::is_terminal(&io::stdout());
    let login = Login::of(record).map_err(|error| failed(what, error))?;
    if all_terminals {
        let request = serde_json::to_vec(&Request::Herd { args: args.clone() });
        let request = request.map_err(|error| ExpectedError::failed(what, error))?;
        // The program is there after this.
        login
            .start(HELLO_BOUND)
            .map_err(|error| failed(what, error))?;
        if let Some(mut command) = login.programs.with_terminal(&login.ssh, &request) {
            printer.flush();
            let status = command
                .stdin(Stdio::inherit())
                .status()
                .map_err(|error| ExpectedError::failed(what, error))?;
            return Ok(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255));
        }
    }
    pass(record, args, true, printer).map_err(|error| failed(what, error))
}

fn pass(
    record: &Record,
    args: Vec<String>,
    input: bool,
    printer: &mut Printer,
) -> Result<u8, LoginError> {
    let login = Login::of(record)?;
    let (mut channel, _) = login.programs.start(&login.ssh, true, HELLO_BOUND)?;
    let mut color = vec!["--color".to_owned()];
    color.push(
        if printer.out_color() {
            "always"
        } else {
            "never"
        }
        .to_owned(),
    );
    send(
        &mut channel,
        &Request::Herd {
            args: [color, args].concat(),
        },
    )?;
    match channel.take_input().filter(|_| input) {
        Some(mut to) => {
            let copier = std::thread::Builder::new().name("stdin".to_owned());
            // It ends with the process, which may wait for input for ever.
            let started = copier.spawn(move || copy(&mut io::stdin(), &mut to));
            started.map_err(|source| LoginError::here("pass standard input on", source))?;
        }
        None => channel.close_input(),
    }
    loop {
        let more = channel.some(None)?;
        if more.is_empty() {
            break;
        }
        printer.data(&more);
        printer.flush();
        if printer.is_closed() {
            return Ok(0);
        }
    }
    Ok(channel.end()?.code)
}

fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match from.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let part = chunk.get(..read).unwrap_or_default();
                if to.write_all(part).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
        }
    }
}
