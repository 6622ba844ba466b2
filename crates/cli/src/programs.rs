//! `vfscale bench` and `vfscale mcp`: commands that are programs of their own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use vfscale::Escaped;

use crate::error::Failure;

/// A program that a command starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    command: &'static str,
    file: &'static str,
    /// How to get it.
    remedy: &'static str,
}

/// The program that measures.
pub(crate) const BENCH: Program = Program {
    command: "bench",
    file: "vfscale-bench",
    remedy: "install the package vfscale-bench, or run `cargo install vfscale-bench-cli`",
};

/// The server for agents.
pub(crate) const MCP: Program = Program {
    command: "mcp",
    file: "vfscale-mcp",
    remedy: "run `cargo install vfscale-mcp`, or in a checkout `cargo install --path bindings/mcp`",
};

impl Program {
    /// Replaces this process by the program: the one beside this one, or else the one in PATH.
    ///
    /// # Errors
    /// Returns [`Failure::Program`] if there is none, or it can't be run.
    pub(crate) fn start(self, arguments: &[OsString]) -> Result<ExitCode, Failure> {
        let own = std::env::current_exe().unwrap_or_default();
        let beside = own.with_file_name(self.file);
        let mut failed = run(&beside, arguments);
        if failed.kind() == io::ErrorKind::NotFound {
            failed = run(Path::new(self.file), arguments);
        }
        let Program { command, file, remedy } = self;
        let beside = Escaped::new(&beside);
        Err(match failed.kind() {
            io::ErrorKind::NotFound => {
                let why = format!("the program {file} is neither {beside} nor in PATH; {remedy}");
                Failure::Program(format!("{command}: {why}"), 127)
            }
            _ => Failure::Program(format!("cannot run {beside}: {failed}"), 126),
        })
    }
}

/// Replaces this process by a program; returns why that failed.
fn run(program: &Path, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}
