//! `vfscale freeze`: holds a mounted volume, and all branches of its image, still while a command
//! runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;

use crate::child::{CommandArgs, exit_code, program, spawn};
use crate::error::Failure;
use crate::{elsewhere, mounts, options};

/// Default time after which the volume thaws, whatever the command does.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// The seconds after which the volume thaws though the command has not ended, which is an error
    /// then (default: 60, at most 3600)
    #[arg(long = "for", value_name = "SECONDS", value_parser = options::parse_seconds)]
    pub(crate) limit: Option<Duration>,

    /// A directory of the mount
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) words: CommandArgs,
}

/// Freezes a mounted volume, runs the command, and returns its exit status. The volume thaws when
/// this process ends, however it does.
pub(crate) fn freeze(args: &FreezeArgs) -> Result<ExitCode, Failure> {
    let (dir, limit) = (&args.dir, args.limit.unwrap_or(LIMIT));
    // Most of the work, while calls go on.
    match mounts::source_around(&mounts::table()?, dir) {
        Some(image) => elsewhere::sync_kernel(&image, dir)?,
        None => elsewhere::sync(dir)?,
    }
    // The time that the mount counts begins later, and so ends later.
    let begun = Instant::now();
    let ended = elsewhere::ask(dir, dir, |connection| {
        connection.freeze(limit)?;
        Ok(run(&args.words.command))
    });
    let status = ended??;
    if begun.elapsed() >= limit {
        let seconds = limit.as_secs_f64();
        let why = format!(
            "it thawed after {seconds} s, before the command had ended: what that has copied may \
             be useless (--for gives it more time)"
        );
        return Err(Failure::Refused(dir.clone(), why));
    }
    Ok(exit_code(status))
}

fn run(command: &[OsString]) -> Result<ExitStatus, Failure> {
    let (name, arguments) = program(command)?;
    let mut child = spawn(Command::new(name).args(arguments), name)?;
    child.wait().map_err(|error| Failure::System("wait", error))
}
