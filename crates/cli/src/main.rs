//! The `vfscale` command.
//!
//! * `vfscale run` mounts a volume, or a file system in memory, at a temporary directory, runs a
//!   command in it, unmounts, and exits with the command's exit status;
//! * `vfscale mount` mounts at a directory, in the foreground or the background; `vfscale sync`
//!   makes a mount durable;
//! * `vfscale mkfs`, `fsck`, `dump`, `stat`, `tune` and `copy-out` work on unmounted volumes,
//!   `grow` on any;
//! * `vfscale bench` starts `vfscale-bench`, which measures how file systems scale.
//!
//! Called by the name `mount.vfscale` it is the mount helper of `mount(8)`.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `run`, `mount`, `bench_program`, `volume` | the commands |
//! | `man` | the manual pages |
//! | `source` | opens or creates the file system that the command line names |
//! | `options` | options after `-o`, sizes of images, modes |
//! | `error` | failures and exit statuses |

use std::ffi::OsString;
use std::process::ExitCode;

mod args;
mod bench_program;
mod error;
mod man;
mod mount;
mod options;
mod run;
mod source;
mod volume;

use args::Command;
use volume::{copy_out, fsck, grow, make, show};

fn main() -> ExitCode {
    vfscale_command::logging::start();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let arguments = args::as_mount_helper(&arguments).unwrap_or(arguments);
    let cli = match args::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error, &arguments),
    };
    let outcome = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Mount(args) => mount::mount(args),
        Command::Sync { dirs } => mount::sync(&dirs),
        Command::Bench { arguments } => bench_program::start(&arguments),
        Command::Fsck(args) => fsck::fsck(&args),
        Command::Dump(args) => show::dump(&args),
        Command::Stat(args) => show::stat(&args),
        Command::Mkfs(args) => make::mkfs(&args),
        Command::Grow(args) => grow::grow(&args),
        Command::Tune(args) => make::tune(args),
        Command::CopyOut(args) => copy_out::copy_out(&args),
        Command::Man { dir } => man::write(&dir),
    };
    outcome.unwrap_or_else(|e| {
        eprintln!("vfscale: {e}");
        e.exit_code()
    })
}

/// Prints an error of the command line, or the requested help, and returns the exit status.
fn refused(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // The reader of a pipe may have closed it; the exit status still reports the error.
    error.print().unwrap_or_default();
    let is_fsck = arguments.get(1).is_some_and(|command| command == "fsck");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if is_fsck => ExitCode::from(fsck::USAGE),
        code => ExitCode::from(u8::try_from(code).unwrap_or(1)),
    }
}
