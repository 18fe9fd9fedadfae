//! Programs that run to their end before the command does.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{self, Child, Command, ExitStatus};

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::outcome::Outcome;

/// Signals that the command passes on to the program.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Returns a command that starts the program, and kills it when this process is killed: without supervision the program has
/// the process ID of the command.
pub(super) fn command(program: &[OsString]) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe().context("the path of roce itself")?);
    command.args(["run", "--ends-with"]).arg(process::id().to_string()).arg("--").args(program);
    Ok(command)
}

/// Replaces this process by the program, which ends with its parent `parent`.
///
/// # Errors
///
/// The program cannot be started, or the parent has ended already.
pub(super) fn exec(parent: u32, program: &mut Command) -> io::Error {
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        return error.into();
    }
    if parent_id() != parent {
        return io::Error::other("the roce run that starts it has been killed");
    }
    // The parent has blocked them, and a process inherits that.
    if let Err(error) = received_signals().thread_unblock() {
        return error.into();
    }
    program.exec()
}

/// Runs a [`command`] to its end, and returns its outcome. Signals to this process are for the program.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    let signals = received_signals();
    signals.thread_block()?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let received = SignalFd::with_flags(&signals, flags)?;
    let mut program = command.spawn()?;
    let status = loop {
        pass_on(&received, &program)?;
        if let Some(status) = program.try_wait()? {
            break status;
        }
        match poll(&mut [PollFd::new(received.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    // A signal to both that has ended the program does not end this process.
    while received.read_signal()?.is_some() {}
    signals.thread_unblock()?;
    Ok(outcome(status))
}

/// Returns the signals that this process receives instead of their effect.
fn received_signals() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Passes on the signals that have come.
fn pass_on(received: &SignalFd, program: &Child) -> anyhow::Result<()> {
    while let Some(signal) = received.read_signal()? {
        let number = i32::try_from(signal.ssi_signo)?;
        if is_for_program(number, signal.ssi_code, signal.ssi_pid, program.id()) {
            let to = Pid::from_raw(i32::try_from(program.id())?);
            // A program that has ended and was not waited for yet takes any signal.
            kill(to, Signal::try_from(number)?)?;
        }
    }
    Ok(())
}

/// Returns whether a signal is passed on. Signals of the kernel, as of a terminal, go to the whole process group, and so to
/// the program too. A signal that the program sends is for this process.
fn is_for_program(number: i32, code: i32, sender: u32, program: u32) -> bool {
    // Codes of signals by kill, sigqueue and tgkill are not positive.
    number != Signal::SIGCHLD as i32 && code <= 0 && sender != program
}

/// Returns the outcome of a program, with the exit status as shells report it: 128 and the signal for a program that was
/// killed.
fn outcome(status: ExitStatus) -> Outcome {
    if status.success() {
        return Outcome::Yes;
    }
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Outcome::Status(number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_other_processes_are_passed_on() {
        const BY_KERNEL: i32 = 0x80;
        let (interrupt, child) = (Signal::SIGINT as i32, Signal::SIGCHLD as i32);
        assert!(is_for_program(interrupt, 0, 1, 2));
        // The sender is in another namespace of processes.
        assert!(is_for_program(interrupt, 0, 0, 2));
        assert!(!is_for_program(interrupt, BY_KERNEL, 0, 2));
        assert!(!is_for_program(interrupt, 0, 2, 2));
        assert!(!is_for_program(child, 0, 1, 2));
    }
}
