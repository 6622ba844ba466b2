//! The `vfscale` command.
//!
//! * `vfscale run` mounts a volume, or a file system in memory, at a temporary directory, runs a
//!   command in it, unmounts, and exits with the command's exit status;
//! * `vfscale mount` mounts at a directory, in the foreground or the background; `vfscale umount`
//!   unmounts and waits until the volume is closed; `vfscale sync` makes a mount durable, and
//!   `vfscale mounts` lists them;
//! * `vfscale branch` makes, lists and deletes branches of a volume, `diff` compares two, and
//!   `adopt` keeps one, or `merge` what it has changed; `checkpoint` keeps a state of one, and
//!   `log` shows its history; `vfscale view`
//!   has the kernel read one; `vfscale run --native` has it take
//!   the writes of a command too, and `commit` and `discard` end what a killed one has left;
//! * `vfscale ls`, `cat`, `rm`, `cp`, `import` and `export` work on files in an image without a
//!   mount;
//! * `vfscale mkfs`, `fsck`, `dump`, `tune` and `copy-out` work on unmounted volumes, `grow`,
//!   `trim` and `stat` on any;
//! * `vfscale crashlab` checks what a power cut can leave of what a command does;
//! * `vfscale bench` starts `vfscale-bench`, which measures how file systems scale, and `vfscale
//!   mcp` starts `vfscale-mcp`, which serves branches to agents.
//!
//! Called by the name `mount.vfscale`, `umount.vfscale`, `mkfs.vfscale` or `fsck.vfscale` it is the
//! helper of `mount(8)`, `umount(8)`, `mkfs(8)` or `fsck(8)`.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `run`, `mount`, `umount`, `list`, `programs`, `volume` | the commands |
//! | `crashlab` | the states that a power cut can leave of what a command does |
//! | `files` | the files in an image without a mount |
//! | `native` | views that are mounted, and runs above them |
//! | `helper` | the names by which other programs call the command; manual pages |
//! | `mounts` | the table of mounts |
//! | `served` | the mounts that this process serves, also at the request of others |
//! | `elsewhere` | a mount that another process serves |
//! | `source` | opens or creates the file system that the command line names |
//! | `device` | opens a device by its name |
//! | `standby` | waits until another machine no longer serves a volume |
//! | `options` | options after `-o`, sizes of images, modes |
//! | `output` | output that several commands have |
//! | `error` | failures and exit statuses |

#![deny(clippy::print_stderr, reason = "it panics if nobody reads it: use `say`")]

use std::ffi::OsString;
use std::process::ExitCode;

mod args;
mod checked;
mod child;
mod complete;
mod crashlab;
mod device;
mod elsewhere;
mod error;
mod files;
mod freeze;
mod helper;
mod list;
mod mount;
mod mounts;
mod native;
mod options;
mod output;
mod programs;
mod run;
mod served;
mod source;
mod standby;
mod umount;
mod volume;

use args::Command;
use helper::Helper;
use vfscale_command::{say, signals};
use volume::{
    apply, branch, checkpoint, copy_out, diff, fsck, grow, log, make, merge, show, trim, view,
};

fn main() -> ExitCode {
    vfscale_command::logging::start(!mount::is_server());
    if let Err(e) = signals::outlive_file_size_limit() {
        tracing::warn!("a limit of the size of files ends this process: {e}");
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(helper) = arguments.first().and_then(|program| Helper::called(program)) {
        return helper.run(&arguments);
    }
    let cli = match args::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let is_fsck = arguments.get(1).is_some_and(|command| command == "fsck");
            return refused(&error, if is_fsck { fsck::USAGE } else { 2 });
        }
    };
    cli.use_ceph();
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args, &arguments, args::parse_mount),
        Command::Mount(args) => mount::mount(args, &arguments, args::parse_mount),
        Command::Umount(args) => umount::umount(&args),
        Command::Mounts(args) => list::mounts(&args),
        Command::Sync { dirs } => mount::sync(&dirs),
        Command::Freeze(args) => freeze::freeze(&args),
        Command::Bench { arguments } => programs::BENCH.start(&arguments),
        Command::Mcp { arguments } => programs::MCP.start(&arguments),
        Command::Fsck(args) => fsck::fsck(&args),
        Command::Dump(args) => show::dump(&args),
        Command::Stat(args) => show::stat(&args),
        Command::Mkfs(args) => make::mkfs(&args),
        Command::Grow(args) => grow::grow(&args),
        Command::Trim(args) => trim::trim(&args),
        Command::Tune(args) => make::tune(args),
        Command::Branch(args) => branch::branch(&args),
        Command::Crashlab(args) => crashlab::crashlab(&args),
        Command::Checkpoint(args) => checkpoint::checkpoint(&args),
        Command::Log(args) => log::log(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Adopt(args) => diff::adopt(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Rebase(args) => merge::rebase(args),
        Command::Apply(args) => apply::apply(&args),
        Command::Ls(args) => files::list::ls(&args),
        Command::Cat(args) => files::cat(&args),
        Command::Rm(args) => files::rm(&args),
        Command::Cp(args) => files::copy::cp(&args),
        Command::Import(args) => files::copy::import(&args),
        Command::Export(args) => files::copy::export(&args),
        Command::Commit(args) => native::commit(&args),
        Command::Discard(args) => native::discard(&args),
        Command::View(args) => view::view(&args),
        Command::CopyOut(args) => copy_out::copy_out(&args),
        Command::Complete { words } => complete::complete(&words),
        Command::Man { dir } => helper::manual(&dir),
    };
    outcome.unwrap_or_else(|e| {
        say(format_args!("vfscale: {e}"));
        e.exit_code()
    })
}

/// Prints an error of the command line, or the requested help, and returns the exit status: `usage`
/// for an error.
fn refused(error: &clap::Error, usage: u8) -> ExitCode {
    // The reader of a pipe may have closed it; the exit status still reports the error.
    error.print().unwrap_or_default();
    if error.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::from(usage) }
}
