//! `vfscale run`: a command inside a file system of its own.
//!
//! Runs of one image share the process that has it open, the server. The first run
//! [starts](front) it, others [join](joined), and it ends with the last of them. When two begin at
//! once, the lock of the image decides whose server it is; the other one joins, and begins again if
//! that server has ended meanwhile.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use vfscale::block::Error;
use vfscale::{Escaped, VolumeError};
use vfscale_command::say;
use vfscale_fuse::Mounted;
use vfscale_vfs::lockstat;

use crate::child::program;
use crate::device;
use crate::elsewhere::temporary::{PATIENCE, TempDir, say_forced};
use crate::elsewhere::{self, Turn};
use crate::error::Failure;
use crate::options::MountOptions;
use crate::served::listen::{self, shared_options};
use crate::served::{Served, Ticket};
use crate::source;
use crate::volume::branch;

use args::RunArgs;
use checkpoints::Checkpoints;
use front::{Inside, Ran, Server, Side};
use trial::Opened;

pub(crate) mod args;
mod checkpoints;
mod front;
mod joined;
mod native;
mod trial;

/// Runs the command; `arguments` are the command line that `args` were parsed from, and `parse`
/// parses those of others whose mounts this process serves.
pub(crate) fn run(
    args: &RunArgs,
    arguments: &[OsString],
    parse: listen::Parse,
) -> Result<ExitCode, Failure> {
    let mut options = args.serve.merged_options();
    if options.remount {
        return Err(Failure::Usage("`-o remount` goes with `vfscale mount`".into()));
    }
    let (program, _) = program(&args.words.command)?;
    if program.as_bytes().starts_with(b"-") {
        let program = program.display();
        let why = format!("`{program}` is no command: write `vfscale run IMAGE -- COMMAND`");
        return Err(Failure::Usage(why));
    }
    // The files are those of the command, whoever runs it.
    options.allow_other.get_or_insert(false);
    make_branch(args, &mut options)?;
    let below = |args: &RunArgs, options: &MountOptions, inside: Inside<'_>| {
        mounted(args, options, &[], parse, inside)
    };
    if args.native
        && let Some(status) = native::run(args, &options, &below)?
    {
        return Ok(status);
    }
    let inside = |dir: &Path, signals| {
        let checkpoints = Checkpoints::of(args, &options, dir);
        front::run_in(dir, &args.words.command, signals, checkpoints)
    };
    mounted(args, &options, arguments, parse, &inside)
}

/// Makes the branch that --new names, for `options` to have, and an image for it.
fn make_branch(args: &RunArgs, options: &mut MountOptions) -> Result<(), Failure> {
    let (Some(image), Some(name)) = (&args.image, &args.new) else { return Ok(()) };
    if options.branch.is_some() {
        return Err(Failure::Usage("--new names the branch; leave out `-o branch=`".into()));
    }
    source::make_missing(image, args.source.size)?;
    let make = || {
        branch::fork(image, &args.from, name, (false, false))?;
        args.limit.map_or(Ok(()), |bytes| branch::limit(image, name, Some(bytes)))
    };
    elsewhere::apart(|| make().map(|()| Vec::new()))?;
    options.branch = Some(name.clone());
    Ok(())
}

/// Mounts the file system, or finds a process that does, and runs the command `inside`.
fn mounted(
    args: &RunArgs,
    options: &MountOptions,
    arguments: &[OsString],
    parse: listen::Parse,
    inside: Inside<'_>,
) -> Result<ExitCode, Failure> {
    let mut turn = Turn::new();
    let image = args.image.as_deref().filter(|_| !args.source.take_over);
    loop {
        if let Some(image) = image {
            match joined::join(args, image, options, arguments, inside) {
                Ok(Some(code)) => return Ok(code),
                Err(failure @ Failure::Ended(..)) if turn.wait(&failure) => {}
                Ok(None) => {}
                Err(failure) => return Err(failure),
            }
            // Looks without a lock, which would be in the way of others. What only reads may begin.
            if !args.discard
                && !options.is_read_only()
                && let Err(locked @ Error::Locked { .. }) = device::options(true).check_free(image)
            {
                match Failure::from(locked) {
                    failure if turn.wait(&failure) => continue,
                    failure => return Err(elsewhere::busy(Some(image), failure.to_string())),
                }
            }
        }
        let ran = match front::split()? {
            Side::Front(front) => front.run(inside)?,
            Side::Server(server) => {
                return serve(args, options, &server, parse).map(|()| ExitCode::SUCCESS);
            }
        };
        match ran {
            Ran::Ended(code) => return Ok(code),
            Ran::Busy(why) => match Failure::Busy(why) {
                failure if turn.wait(&failure) => {}
                failure => {
                    return Err(elsewhere::busy(args.image.as_deref(), failure.to_string()));
                }
            },
        }
    }
}

/// Opens the file system, mounts it, has the front run the command, and unmounts and closes the
/// file system; then serves others that have joined.
fn serve(
    args: &RunArgs,
    options: &MountOptions,
    server: &Server,
    parse: listen::Parse,
) -> Result<(), Failure> {
    let mut options = options.clone();
    let image = args.image.as_deref();
    let opened = match Opened::new(args, &mut options) {
        Err(failure) if !args.source.take_over && elsewhere::is_locked(&failure) => {
            server.is_busy(&failure);
            return Ok(());
        }
        opened => opened?,
    };
    let Opened { trial, source, is_in_memory } = opened;
    let (pool, maker) = match is_in_memory {
        // A branch would be in memory, too.
        true => (None, None),
        false => (source.pool(), source.pool_maker()),
    };
    let served = Served::new(pool, maker);
    let name = source::branch_name(&options);
    let name = if is_in_memory { format!("{name}, in memory") } else { name };
    let shared = shared_options(&args.source, &args.serve, &options);
    let ticket = served.first(&name, options.is_read_only(), Some(shared));
    let mut builder = source::builder(&source, &args.serve, &options, image)?;
    if is_in_memory {
        builder = builder.first_branch(None);
    }
    let dir = TempDir::new(options.allow_other == Some(true))?;
    let mounted = builder.host(listen::host(&served, image, parse)).mount(dir.path())?;
    let _ = ticket.start(&mounted, source.syncer());
    source.publish_mount(&mounted);
    tracing::info!("mounted at {}", dir.path().display());
    lockstat::record(args.lockstat);
    server.run_in(mounted.dir(), &served);
    let is_forced = end(&served, &ticket, server, (mounted, dir));
    if args.lockstat {
        lockstat::record(false);
        say(format_args!("{}", lockstat::Table::now().to_string().trim_end()));
    }
    ticket.close();
    let closed = match source.close() {
        // That was said when the mount was ended under them.
        Err(Failure::Open(VolumeError::InUse { .. })) if is_forced => Ok(()),
        closed => closed,
    };
    drop(trial);
    ticket.closed(&closed);
    drop(ticket);
    if !served.goes_on() {
        served.wait_for_end();
        return closed;
    }
    if let Err(failure) = &closed {
        say(format_args!("vfscale: {failure}"));
    }
    server.leave(closed.map_or_else(|failure| failure.status(), |()| 0));
    served.wait_for_end();
    Ok(())
}

/// Ends the mount of the first run, or leaves it to others that use it, and waits until they have
/// ended it. Returns whether it was in use by others than runs.
fn end(
    served: &Served,
    ticket: &Ticket,
    server: &Server,
    (mounted, dir): (Mounted, TempDir),
) -> bool {
    if !served.leave(ticket.number()) {
        dir.leave();
        server.leave(0);
        mounted.wait();
        return false;
    }
    let path = mounted.dir().to_owned();
    match mounted.unmounter().unmount_within(PATIENCE) {
        Ok(false) => return false,
        Ok(true) => say_forced(&path),
        Err(e) => say(format_args!("vfscale: cannot unmount {}: {e}", Escaped::new(&path))),
    }
    if mounted.is_mounted() {
        // The helper has only detached it, and another attempt would fail.
        std::mem::forget(mounted);
    }
    true
}
