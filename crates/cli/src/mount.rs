//! `vfscale mount`: serves a file system until it is unmounted.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vfscale::block::named::is_rbd;
use vfscale::posix::MountFlags;
use vfscale_command::notify::notify;
use vfscale_command::signals::Blocked;
use vfscale_command::{say, stderr, stderr::Log};
use vfscale_fuse::Mounted;

use crate::args::MountArgs;
use crate::error::Failure;
use crate::mounts;
use crate::options::{self, MountOptions};
use crate::source::{self, Source, Syncer};
use crate::standby::{self, Told};

mod fencing;

/// Time that users get to leave when a signal ends the mount.
const PATIENCE: Duration = Duration::from_secs(1);

/// Environment variable that makes a process serve in the background, and report through its
/// standard output that it is ready.
const SERVER: &str = "VFSCALE_BACKGROUND_SERVER";

/// Returns whether this process serves in the background.
pub(crate) fn is_server() -> bool {
    std::env::var_os(SERVER).is_some()
}

/// Mounts what `args` name; `arguments` are the command line that they were parsed from, with the
/// name of the program.
pub(crate) fn mount(args: MountArgs, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let options = args.serve.merged_options();
    if options.remount {
        // `mount(8)` names the source as well.
        return args.places.last().map_or(Ok(ExitCode::FAILURE), |dir| remount(dir, &options));
    }
    let (image, dir) = args.places()?;
    let is_server = is_server();
    if args.background && !is_server {
        return start_server(arguments);
    }
    let log = is_server.then(|| background_log(&args)).transpose()?;
    let (source, signals) = opened(&args, &options, image)?;
    let builder = source::builder(&source, &args.serve, &options, image)?;
    let mounted = builder.mount(dir)?;
    if mounted.is_own() {
        source.publish_mount(mounted.dir());
    }
    if args.verbose {
        say(format_args!("vfscale: {}", how(&mounted)));
    }
    announce(&mounted, log, source.is_written())?;
    let dir = mounted.dir().display().to_string();
    tell_manager(is_server, &format!("READY=1\nSTATUS=Mounted at {dir}"));
    let fenced = image.is_some_and(is_rbd).then(|| source.fence()).flatten();
    let fenced = fenced.map(|fence| fencing::watch(fence, &mounted));
    serve(mounted, signals, source.syncer());
    fenced.iter().for_each(fencing::Fenced::closes);
    tell_manager(is_server, &format!("STOPPING=1\nSTATUS=Unmounted from {dir}, closing"));
    let closed = source.close();
    match fenced.and_then(|fenced| fenced.error()) {
        Some(error) => Err(Failure::Fenced(error)),
        None => closed.map(|()| ExitCode::SUCCESS),
    }
}

/// Opens what is to be mounted, with `--standby` when nobody else has it.
fn opened(
    args: &MountArgs,
    options: &MountOptions,
    image: Option<&Path>,
) -> Result<(Source, Blocked), Failure> {
    let blocked = |e| Failure::System("pthread_sigmask", e);
    let named = image.map(|path| (path, args.source.size));
    let (mut told, mut is_first) = (Told::default(), true);
    loop {
        // Until it is mounted, signals end the process.
        if let Some(image) = image.filter(|_| args.standby) {
            standby::wait(image, args.grace, &mut told, is_first)?;
            is_first = false;
        }
        let signals = Blocked::new().map_err(blocked)?;
        let patience = args.standby.then_some(standby::PATIENCE);
        match Source::open(&args.source, options, named, patience) {
            Err(failure) if args.standby && standby::may_pass(&failure, &mut told) => {
                signals.restore().map_err(blocked)?;
            }
            source => return Ok((source?, signals)),
        }
    }
}

/// Reports that the mount is ready, and once that `sync` does not reach it, if it `is_written` to
/// a volume. In the background the log gets that, since nobody waits for more than the readiness.
fn announce(mounted: &Mounted, log: Option<Log>, is_written: bool) -> Result<(), Failure> {
    let dir = mounted.dir().display();
    let note =
        format!("sync(2) and syncfs(2) do not reach it: use fsync(2), or `vfscale sync {dir}`");
    match (log, is_written) {
        (Some(log), _) => {
            leave_terminal(log)?;
            if is_written {
                say(format_args!("vfscale: {dir} is mounted; {note}"));
            }
        }
        (None, true) => say(format_args!("mounted at {dir}; Ctrl-C or `umount` ends it; {note}")),
        (None, false) => say(format_args!("mounted at {dir}; Ctrl-C or `umount` ends it")),
    }
    Ok(())
}

/// Describes how a file system is served.
fn how(mounted: &Mounted) -> String {
    let (dir, workers) = (mounted.dir().display(), mounted.threads());
    let (transport, polling) = (mounted.transport(), mounted.stats().polling);
    format!("{dir} is served by {workers} workers; transport: {transport}; polling: {polling}")
}

/// Tells the service manager how the mount is. In the background this process is not the one that
/// it has started.
fn tell_manager(is_server: bool, state: &str) {
    if !is_server && let Err(e) = notify(state) {
        tracing::warn!("the service manager can't be told the state of the mount: {e}");
    }
}

/// Serves until the file system is unmounted, by a user or because of a signal.
fn serve(mounted: Mounted, signals: Blocked, syncer: Syncer) {
    let unmounter = mounted.unmounter();
    let dir = mounted.dir().to_owned();
    let how = match mounted.is_own() {
        true => "was in use; unmounted under its users",
        false => "has no server any more; whoever mounted it unmounts it",
    };
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = has_ended.clone();
    std::thread::spawn(move || {
        loop {
            let caught = signals.wait();
            if caught.signal == libc::SIGUSR1 || caught.signal == libc::SIGUSR2 {
                continue;
            }
            match unmounter.unmount_within(PATIENCE) {
                Ok(false) => {}
                Ok(true) => {
                    say(format_args!("vfscale: {} {how}", dir.display()));
                    std::thread::sleep(PATIENCE);
                    if ended.load(Ordering::Acquire) {
                        // The main thread is closing the volume, which may take long.
                        return;
                    }
                    // Processes that still use the detached mount lose it when this one exits.
                    std::process::exit(i32::from(!syncer.sync()));
                }
                Err(e) => say(format_args!("vfscale: cannot unmount {}: {e}", dir.display())),
            }
        }
    });
    mounted.wait();
    has_ended.store(true, Ordering::Release);
}

/// Starts this program again, as the server, and waits until the server reports that it is ready.
fn start_server(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let failed = |e| Failure::System("cannot start the server in the background", e);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(&arguments[1..]).env(SERVER, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    }
    if line.trim() == "ready" {
        return Ok(ExitCode::SUCCESS);
    }
    // The server has printed the reason to standard error.
    let status = child.wait().map_err(failed)?;
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)))
}

/// Opens the log that takes the place of the terminal.
fn background_log(args: &MountArgs) -> Result<Log, Failure> {
    let Some(path) = &args.log_file else { return Ok(Log::System) };
    Log::file(path).map_err(|e| Failure::Write(path.clone(), e))
}

/// Reports that the mount is ready, and detaches from terminal, session and directory. Messages go
/// to the log from then on.
fn leave_terminal(log: Log) -> Result<(), Failure> {
    let failed = |e: rustix::io::Errno| Failure::System("cannot move to the background", e.into());
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(failed)?;
    println!("ready");
    let _ = std::io::stdout().flush();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|e| Failure::System("/dev/null", e))?;
    rustix::stdio::dup2_stdout(&null).map_err(failed)?;
    // Of panics, which print to standard error, the file has the text too.
    rustix::stdio::dup2_stderr(log.as_file().unwrap_or(&null)).map_err(failed)?;
    stderr::redirect(log);
    Ok(())
}

/// Changes the flags of an existing mount.
fn remount(dir: &Path, options: &MountOptions) -> Result<ExitCode, Failure> {
    let failed = |e: rustix::io::Errno| Failure::Remount(dir.to_owned(), e.into());
    let before = rustix::fs::statvfs(dir).map_err(failed)?.f_flag;
    let is_sync = before.contains(rustix::fs::StatVfsMountFlags::SYNCHRONOUS);
    options.keep_syncing(is_sync, is_dirsync(dir)).map_err(Failure::Usage)?;
    let flags = options.apply(flags_of_statvfs(before.bits()));
    let mut flags = rustix::mount::MountFlags::from_bits_truncate(flags.bits().into());
    flags.set(rustix::mount::MountFlags::SYNCHRONOUS, is_sync);
    rustix::mount::mount_remount(dir, flags, "").map_err(failed)?;
    if !flags.contains(rustix::mount::MountFlags::RDONLY) {
        return Ok(ExitCode::SUCCESS);
    }
    // The kernel does not notify the server, which would notice only a moment later.
    match mounts::sync(dir) {
        // Another file system is mounted at `dir`, and the kernel has remounted it.
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(ExitCode::SUCCESS),
        synced => synced.map(|()| ExitCode::SUCCESS).map_err(|e| Failure::Sync(dir.to_owned(), e)),
    }
}

/// Makes a mount read-only that could not be unmounted.
pub(crate) fn remount_read_only(dir: &Path) -> Result<ExitCode, Failure> {
    remount(dir, &options::parse("ro").map_err(Failure::Usage)?)
}

/// Returns whether the topmost mount at `dir` has the option `dirsync`, which `statvfs` leaves out.
fn is_dirsync(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let table = mounts::table().unwrap_or_default();
    mounts::at(&table, &dir).is_some_and(|it| it.has("dirsync"))
}

/// Runs `vfscale sync`.
pub(crate) fn sync(dirs: &[PathBuf]) -> Result<ExitCode, Failure> {
    for dir in dirs {
        mounts::sync(dir).map_err(|error| Failure::Sync(dir.clone(), error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts the flags of `statvfs`, which have the values that `mount` takes, up to the access
/// times.
fn flags_of_statvfs(bits: u64) -> MountFlags {
    let kept = MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC
        | MountFlags::NOATIME
        | MountFlags::NODIRATIME;
    MountFlags::from_bits_truncate(bits as u32) & kept
}

#[cfg(test)]
mod tests;
