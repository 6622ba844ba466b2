//! `vfscale` commands: what concerns whole branches.
//!
//! Each finds the process that has the image open, or opens the image itself, and waits for its
//! turn.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use serde::de::DeserializeOwned;

use crate::refusal::{Refusal, Result};

/// The command, as its users know it.
const PROGRAM: &str = "vfscale";
/// The most bytes of a message of a command that a result has.
const MESSAGE_BYTES: u64 = 8 << 10;

/// The program `vfscale`.
#[derive(Clone, Debug)]
pub(crate) struct Vfscale(PathBuf);

impl Vfscale {
    /// Finds the program: the one beside this one, or else the one in PATH. It has to be of this
    /// version.
    ///
    /// # Errors
    /// There is none, or one of another version.
    pub(crate) fn find() -> Result<Vfscale> {
        let beside = std::env::current_exe().unwrap_or_default().with_file_name(PROGRAM);
        let found = Vfscale(if beside.exists() { beside } else { PROGRAM.into() });
        let version = found.text(["--version"])?;
        let own = concat!("vfscale ", env!("CARGO_PKG_VERSION"));
        if version.trim() != own {
            let program = found.0.display();
            let why = format!("{program} is {:?}, and this needs {own:?}", version.trim());
            return Err(Refusal::new(why).and("install both from one version"));
        }
        Ok(found)
    }

    /// Returns a command that is yet to be started, without arguments.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.0)
    }

    /// Runs a command, and returns what it prints.
    ///
    /// # Errors
    /// The message of the command if it fails.
    pub(crate) fn text<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        self.read(args, &[0], |out| {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        })
    }

    /// Runs a command that prints JSON.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn json<T: DeserializeOwned, A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        fine: &[i32],
    ) -> Result<T> {
        self.read(args, fine, |out| Ok(serde_json::from_reader(io::BufReader::new(out))?))
    }

    /// Runs a command whose exit status is to be a `fine` one, and has `read` read what it prints.
    ///
    /// # Errors
    /// The message of the command if it fails; an output that can't be read.
    pub(crate) fn read<T, A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        fine: &[i32],
        read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> Result<T> {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().into()).collect();
        let mut command = self.command();
        command.args(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |e: io::Error| {
            let program = self.0.display();
            let refusal = Refusal::new(format!("cannot run {program}: {e}"));
            match e.kind() {
                io::ErrorKind::NotFound => {
                    refusal.and("install it beside vfscale-mcp, or where PATH leads")
                }
                _ => refusal,
            }
        };
        let mut child = command.spawn().map_err(failed)?;
        let stderr = child.stderr.take();
        let message = thread::spawn(move || stderr.map(message).unwrap_or_default());
        let outcome = match child.stdout.take() {
            Some(mut out) => {
                let outcome = read(&mut out);
                // A command must not wait for somebody to read the rest.
                let _ = io::copy(&mut out, &mut io::sink());
                outcome
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let status = child.wait().map_err(failed)?;
        let message = message.join().unwrap_or_default();
        match status.code() {
            Some(code) if fine.contains(&code) => outcome.map_err(|e| {
                Refusal::new(format!("what `vfscale` has printed can't be read: {e}"))
            }),
            _ => Err(Refusal::new(reason(&message, status))),
        }
    }
}

/// Reads the message of a command to its end, and returns its beginning.
fn message(mut stderr: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = stderr.by_ref().take(MESSAGE_BYTES).read_to_end(&mut bytes);
    let _ = io::copy(&mut stderr, &mut io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns why a command failed, by its message.
pub(crate) fn reason(message: &str, status: ExitStatus) -> String {
    let message = message.trim();
    let message = message.strip_prefix("vfscale: ").unwrap_or(message);
    match (message, status.signal()) {
        ("", Some(signal)) => format!("`vfscale` was ended by signal {signal}"),
        ("", None) => format!("`vfscale` has failed: {status}"),
        (message, _) => message.to_owned(),
    }
}

/// Returns `--NAME=VALUE`, a value that can't be taken for another option.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value);
    option
}

/// Returns the arguments of a command: options, and then words that are no options.
pub(crate) fn arguments<'a>(
    command: &[&str],
    options: Vec<OsString>,
    image: &Path,
    words: impl IntoIterator<Item = &'a str>,
) -> Vec<OsString> {
    let command = command.iter().map(OsString::from);
    let mut all: Vec<OsString> = command.chain(options).collect();
    all.extend(["--".into(), image.into()]);
    all.extend(words.into_iter().map(OsString::from));
    all
}
