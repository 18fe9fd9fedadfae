//! `roce run`: a program that loads softroce's libibverbs instead of the system's.

mod captures;
mod checked;
mod explained;
mod folder;
mod program;
mod supervised;
mod tree;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use softroce::port::PortKind;
use softroce::runtime::Environment;
use softroce_cli::RunArgs;

use crate::outcome::Outcome;
use crate::output;
use explained::Reports;
use tree::DeviceFiles;

/// File name of the library, in cargo's target directory and in packages.
const LIBRARY: &str = "libibverbs.so";
/// File name of the interposer that redirects programs to the files of [`tree`]; it is in the same directory.
pub(crate) const PATHS: &str = "libsoftroce_paths.so";

/// Exit status when the program is not found, as that of `env`.
const NOT_FOUND: u8 = 127;
/// Exit status when the program cannot be executed, as that of `env`.
const NOT_EXECUTABLE: u8 = 126;

/// Runs the command. It replaces this process by the program, unless there is something to do after the program's end.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Outcome> {
    if let (Some(parent), Some(mut program)) = (args.ends_with, program_of(&args.command)) {
        let error = supervised::exec(parent, &mut program);
        return Ok(not_started(program.get_program(), &error));
    }
    let library = library(&env::current_exe().context("the path of roce itself")?)?;
    let mut variables = variables(args, &library, |name| env::var_os(name))?;
    let environment = Environment::from_variables(|wanted| {
        let set = variables.iter().find(|(name, _)| *name == wanted);
        set.map(|(_, value)| value.clone()).or_else(|| env::var_os(wanted))
    })?;
    let name = environment.name.as_deref().unwrap_or("softroce0");
    let brought = environment.via.as_ref().map(PortKind::addresses).unwrap_or_default();
    let ips = if environment.ips.is_empty() { &brought } else { &environment.ips };
    let device = DeviceFiles { name, ips };
    let named = environment.paths.as_deref();
    match device.write(named) {
        Ok(files) => variables.push(("SOFTROCE_PATHS", files.into_os_string())),
        Err(error) if named.is_some() => return Err(error),
        Err(error) => output::warn(format_args!(
            "programs that look below /sys/class/infiniband find no device: {error:#}"
        )),
    }
    if args.env {
        let mut out = output::stdout();
        for (name, value) in variables {
            writeln!(out, "export {name}={}", quoted(&value))?;
        }
        return Ok(Outcome::Yes);
    }
    let Some(mut program) = program_of(&args.command) else { bail!("expected a command to run") };
    if let Some(obstacle) = program::obstacle(program.get_program()) {
        output::warn(obstacle);
    }
    if args.check || args.explain {
        return supervise(args, &variables);
    }
    let error = program.envs(variables).exec();
    Ok(not_started(program.get_program(), &error))
}

/// Runs the program to its end, and reports on it then.
fn supervise(args: &RunArgs, variables: &[(&'static str, OsString)]) -> anyhow::Result<Outcome> {
    let mut command = supervised::command(&args.command)?;
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let reports = args.explain.then(|| Reports::of(&mut command)).transpose()?;
    let ended = if args.check { checked::run(&mut command) } else { supervised::run(&mut command) };
    if let (Some(reports), Ok(Outcome::Status(status))) = (reports, &ended) {
        output::warn(format_args!("exit status {status}: {}", reports.explanation()));
    }
    ended
}

/// Returns the command for a program and its arguments.
fn program_of(words: &[OsString]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

/// Reports a program that cannot be started.
fn not_started(program: &OsStr, error: &io::Error) -> Outcome {
    output::warn(format_args!("{}: {error}", program.display()));
    Outcome::Status(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

/// Returns the directory for the files that describe devices, which is created if it is missing.
///
/// # Errors
///
/// `named` belongs to another user, or no directory can be created.
pub(crate) fn device_folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    tree::base(named).map(|folder| folder.path().to_owned())
}

/// Returns the path of the library: in the directory of the command, as cargo puts it, or in `../lib/softroce`.
pub(crate) fn library(command: &Path) -> anyhow::Result<PathBuf> {
    let directory = command.parent().unwrap_or(Path::new("/"));
    let installed = directory.join("../lib/softroce");
    let is_complete = |place: &&Path| [LIBRARY, PATHS].iter().all(|file| place.join(file).exists());
    match [directory, &installed].into_iter().find(is_complete) {
        Some(place) if !program::is_executable_place(place) => bail!(
            "{}: the file system is mounted with noexec, so no program can load the library; install softroce elsewhere",
            place.display()
        ),
        Some(place) => {
            let library = place.join(LIBRARY);
            library.canonicalize().with_context(|| library.display().to_string())
        }
        None => bail!(
            "{LIBRARY} and {PATHS} are neither in {} nor in {}: `cargo build --release` in softroce's source makes them, \
             and its packages contain them",
            directory.display(),
            installed.display()
        ),
    }
}

/// Returns the variables to set. `now` returns their current values.
fn variables(
    args: &RunArgs,
    library: &Path,
    now: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let path = library.as_os_str().as_bytes();
    if path.iter().any(|byte| b" :;$".contains(byte)) {
        bail!(
            "{}: the dynamic loader splits paths at a space, ':', ';' or '$'; install softroce in another directory",
            library.display()
        );
    }
    let before = |own: &OsStr, name: &str| {
        let mut value = own.to_owned();
        if let Some(others) = now(name).filter(|others| !others.is_empty()) {
            value.push(":");
            value.push(others);
        }
        value
    };
    let directory = library.parent().unwrap_or(Path::new("/"));
    let mut preloaded = library.as_os_str().to_owned();
    preloaded.push(":");
    preloaded.push(directory.join(PATHS));
    // Preloaded, the library satisfies every need for its soname, `libibverbs.so.1`. A program that loads
    // `libibverbs.so` by that name finds it by the search path.
    let mut variables = vec![
        ("LD_PRELOAD", before(&preloaded, "LD_PRELOAD")),
        ("LD_LIBRARY_PATH", before(directory.as_os_str(), "LD_LIBRARY_PATH")),
    ];
    let absolute = args.pcap.as_deref().map(std::path::absolute).transpose()?;
    let ips: Vec<_> = args.ip.iter().map(ToString::to_string).collect();
    let options = [
        ("SOFTROCE_IP", (!ips.is_empty()).then(|| ips.join(",").into())),
        ("SOFTROCE_NAME", args.ib_dev.as_deref().map(OsString::from)),
        ("SOFTROCE_PCAP", absolute.map(PathBuf::into_os_string)),
        ("SOFTROCE_IMPAIR", args.impair.as_deref().map(OsString::from)),
        ("SOFTROCE_VIA", args.via.as_ref().map(|via| via.to_string().into())),
        ("SOFTROCE_RCVBUF", args.rcvbuf.map(|bytes| bytes.to_string().into())),
    ];
    variables.extend(options.into_iter().filter_map(|(name, value)| Some((name, value?))));
    Ok(variables)
}

/// Returns a value in quotes for a shell.
fn quoted(value: &OsStr) -> String {
    format!("'{}'", value.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use softroce_cli::{Cli, Command};

    fn set(command: &[&str], library: &str) -> Result<Vec<String>, String> {
        let line = ["roce", "run"].iter().chain(command);
        let Command::Run(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not that command")
        };
        let now = |name: &str| (name == "LD_PRELOAD").then(|| "other.so".into());
        let set = variables(&args, Path::new(library), now).map_err(|error| error.to_string())?;
        Ok(set.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect())
    }

    #[test]
    fn options_become_variables() {
        let options = [
            "--ip=::1,127.0.0.7",
            "--name=it's",
            "--pcap=/a.pcap",
            "--impair=loss=0.5",
            "--via=packet",
            "--rcvbuf=4k",
            "a",
        ];
        let expected = [
            "LD_PRELOAD='/lib/libibverbs.so:/lib/libsoftroce_paths.so:other.so'",
            "LD_LIBRARY_PATH='/lib'",
            "SOFTROCE_IP='::1,127.0.0.7'",
            r"SOFTROCE_NAME='it'\''s'",
            "SOFTROCE_PCAP='/a.pcap'",
            "SOFTROCE_IMPAIR='loss=0.5'",
            "SOFTROCE_VIA='packet'",
            "SOFTROCE_RCVBUF='4096'",
        ];
        assert_eq!(set(&options, "/lib/libibverbs.so").unwrap(), expected);
        assert_eq!(set(&["--env"], "/lib/libibverbs.so").unwrap(), expected[..2]);
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        let said = set(&["a"], "/my libs/libibverbs.so").unwrap_err();
        assert!(
            said.starts_with("/my libs/libibverbs.so: the dynamic loader splits paths at a space"),
            "{said}"
        );
    }
}
