//! One file per command: each takes its arguments, prints through the printer, returns an exit code.

mod cancel;
mod completions;
pub(crate) mod doctor;
mod events;
mod exec;
mod gc;
mod get;
mod hidden;
mod interrupt;
mod login_node;
mod logs;
mod ls;
mod man;
mod places;
mod queue;
mod remote;
mod render;
mod run;
mod selectors;
mod status;
mod submit;
mod wait;
mod why;

use std::path::PathBuf;

use crate::cli::{Cli, Command};
use crate::error::ExpectedError;
use crate::printer::Printer;

/// What a command ends with.
pub(crate) type Outcome = Result<u8, ExpectedError>;

/// Runs the command that was asked for.
pub(crate) fn dispatch(cli: Cli, printer: &mut Printer) -> Outcome {
    let done = run(cli, printer);
    for complaint in crate::backend_login::complaints() {
        printer.note(&complaint);
    }
    done
}

fn run(cli: Cli, printer: &mut Printer) -> Outcome {
    let home: Option<PathBuf> = cli.global.home;
    let home = home.as_deref();
    match cli.command {
        Command::Run(args) => run::run(&args, home, printer),
        Command::Submit(args) => submit::run(&args, home, printer),
        Command::Ls(args) => ls::run(&args, home, printer),
        Command::Status(args) => status::run(&args, home, printer),
        Command::Logs(args) => logs::run(&args, home, printer),
        Command::Events(args) => events::run(&args, home, printer),
        Command::Wait(args) => wait::run(&args, home, printer),
        Command::Cancel(args) => cancel::run(&args, home, printer),
        Command::Hold(args) => queue::hold(&args, home, printer),
        Command::Release(args) => queue::release(&args, home, printer),
        Command::Requeue(args) => queue::requeue(&args, home, printer),
        Command::Why(args) => why::run(&args, home, printer),
        Command::Exec(args) => exec::run(&args, home, printer),
        Command::Get(args) => get::run(&args, home, printer),
        Command::Render(args) => render::run(&args, home, printer),
        Command::Doctor(args) => doctor::run(&args, home, printer),
        Command::Gc(args) => gc::run(&args, home, printer),
        Command::Completions(args) => Ok(completions::run(&args, printer)),
        Command::Selectors(args) => selectors::run(&args, home, printer),
        Command::Man(args) => man::run(&args, printer),
        Command::Executor(args) => hidden::executor(&args),
        Command::Driver(args) => hidden::driver(&args),
        Command::Rsh(args) => hidden::rsh(&args),
        Command::Shim(args) => hidden::shim(&args),
        Command::LoginNode(args) => login_node::run(&args, home),
        Command::Stage(args) => hidden::stage(&args),
        Command::Nvml => Ok(hidden::nvml(printer)),
        Command::Launch(args) => Ok(herd_runtime::launch::run(&args.args)),
    }
}
