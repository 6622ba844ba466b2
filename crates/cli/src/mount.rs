//! `vfscale mount`: serves a file system until it is unmounted.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use vfscale::Errno;
use vfscale::block::named::is_rbd;
use vfscale::posix::MountFlags;
use vfscale_command::notify::notify;
use vfscale_command::say;
use vfscale_command::signals::Blocked;
use vfscale_command::stderr::Log;
use vfscale_fuse::Mounted;

use crate::child;
use crate::elsewhere::{self, Turn};
use crate::error::Failure;
use crate::mounts;
use crate::options::{self, MountOptions};
use crate::served::{Served, end_all, listen, start_thread};
use crate::source::args::{ServeArgs, SourceArgs};
use crate::source::{self, Source};
use crate::standby::{self, Told};

mod fencing;

/// Time that users get to leave when a signal ends the mount.
const PATIENCE: Duration = Duration::from_secs(1);

/// Environment variable that makes a process serve in the background, and report through its
/// standard output that it is ready.
const SERVER: &str = "VFSCALE_BACKGROUND_SERVER";

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Say how the file system is served: the number of workers, the transport, and whether workers
    /// poll
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Return as soon as it is mounted, and serve in the background
    #[arg(short, long)]
    pub(crate) background: bool,

    /// Append the messages of the background to a file, each with its time. Without it they go to
    /// the system's log
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) log_file: Option<PathBuf>,

    /// Wait until nobody has the image of Ceph RBD mounted, or its holder has been gone for the
    /// time of --grace, and mount it then. Two machines that do this serve one volume: when one
    /// dies, the other one goes on after that time and the one after which Ceph knows that a client
    /// is gone (30 seconds by default)
    #[arg(long, conflicts_with_all = ["memory", "background", "take_over", "read_only"])]
    pub(crate) standby: bool,

    /// With --standby, the seconds for which the holder must have been gone (default: 5)
    #[arg(long, value_name = "SECONDS", requires = "standby",
          value_parser = options::parse_seconds)]
    pub(crate) grace: Option<Duration>,

    /// The image of a volume, or a block device with one (not with --memory), and the directory to
    /// mount at, whose contents are hidden while it is mounted. A directory /dev/fd/N is the open
    /// /dev/fuse of a mount that another program has made
    #[arg(value_names = ["IMAGE", "DIR"], required = true, num_args = 1..=2)]
    pub(crate) places: Vec<PathBuf>,
}

impl MountArgs {
    /// Returns the image, if there is one, and the directory.
    ///
    /// # Errors
    /// Returns [`Failure::Usage`] if the number of arguments does not fit `--memory`.
    pub(crate) fn places(&self) -> Result<(Option<&Path>, &Path), Failure> {
        match (&self.places[..], self.source.memory.is_some()) {
            ([image, dir], false) => Ok((Some(image), dir)),
            ([dir], true) => Ok((None, dir)),
            ([_, _], true) => Err(Failure::Usage("--memory has no image: give a directory".into())),
            _ => Err(Failure::Usage(
                "say what to mount: IMAGE and DIR, or --memory and DIR (see --help)".into(),
            )),
        }
    }
}

/// Returns whether this process serves in the background.
pub(crate) fn is_server() -> bool {
    std::env::var_os(SERVER).is_some()
}

/// Mounts what `args` name; `arguments` are the command line that they were parsed from, with the
/// name of the program, and `parse` parses those of others whose mounts this process serves.
pub(crate) fn mount(
    args: MountArgs,
    arguments: &[OsString],
    parse: listen::Parse,
) -> Result<ExitCode, Failure> {
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
    let mut turn = Turn::new();
    let (source, signals) = loop {
        match opened(&args, &options, image) {
            Err(failure) if !args.standby && !args.source.take_over => {
                match served_elsewhere(failure, &args, &options, dir, arguments) {
                    // Its server has ended meanwhile.
                    Err(failure @ Failure::Ended(..)) if turn.wait(&failure) => {}
                    served => return served,
                }
            }
            opened => break opened?,
        }
    };
    let served = Served::new(source.pool(), source.pool_maker());
    let ticket = served.first(&source::branch_name(&options), options.is_read_only(), None);
    let builder = source::builder(&source, &args.serve, &options, image)?;
    let mounted = builder.host(listen::host(&served, image, parse)).mount(dir)?;
    let _ = ticket.start(&mounted, source.syncer());
    if mounted.is_own() {
        source.publish_mount(&mounted);
    }
    if args.verbose {
        say(format_args!("vfscale: {}", how(&mounted)));
    }
    let fenced = image.is_some_and(is_rbd).then(|| source.fence()).flatten();
    let fenced = fenced.map(|fence| fencing::watch(fence, &served)).transpose()?;
    end_on_signal(&served, signals)?;
    // The last step that can fail.
    announce(mounted.dir(), log, source.is_written())?;
    let dir = mounted.dir().display().to_string();
    tell_manager(is_server, &format!("READY=1\nSTATUS=Mounted at {dir}"));
    mounted.wait();
    ticket.close();
    fenced.iter().for_each(fencing::Fenced::closes);
    if served.dirs().is_empty() {
        tell_manager(is_server, &format!("STOPPING=1\nSTATUS=Unmounted from {dir}, closing"));
    }
    let closed = source.close();
    ticket.closed(&closed);
    drop(ticket);
    served.wait_for_end();
    match fenced.and_then(|fenced| fenced.error()) {
        Some(error) => Err(Failure::Fenced(error)),
        None => closed.map(|()| ExitCode::SUCCESS),
    }
}

/// Mounts a branch of an image that another process has open, and has that one serve it. Waits
/// until the mount is ended, unless this process is to return. `failure` is the error of opening
/// the image.
fn served_elsewhere(
    failure: Failure,
    args: &MountArgs,
    options: &MountOptions,
    dir: &Path,
    arguments: &[OsString],
) -> Result<ExitCode, Failure> {
    let (Some(image), _) = args.places()? else { return Err(failure) };
    if !elsewhere::is_locked(&failure) {
        return Err(failure);
    }
    let branch = source::branch_name(options);
    let attachment = source::attachment(options, Some(image));
    let is_trial = false;
    let wanted = elsewhere::Wanted { image, branch: &branch, arguments, attachment, is_trial };
    let is_named = options.branch.is_some();
    let ready = wanted.ask(failure, is_named)?;
    // Until then, signals end the process.
    let signals = Blocked::new().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let mounted = ready.mount(dir)?;
    if args.verbose {
        let dir = mounted.dir().display();
        say(format_args!("vfscale: {dir} is served by the process that has the image open"));
    }
    if is_server() {
        println!("ready");
        return Ok(ExitCode::SUCCESS);
    }
    let is_written = !options.is_read_only();
    announce(mounted.dir(), None, is_written)?;
    tell_manager(false, &format!("READY=1\nSTATUS=Mounted at {}", mounted.dir().display()));
    let (unmounter, dir) = (mounted.unmounter(), mounted.dir().to_owned());
    std::thread::spawn(move || {
        loop {
            let caught = signals.wait();
            if caught.signal == libc::SIGUSR1 || caught.signal == libc::SIGUSR2 {
                continue;
            }
            let dir = dir.display();
            match unmounter.unmount_within(PATIENCE) {
                Ok(false) => {}
                Ok(true) => {
                    say(format_args!("vfscale: {dir} was in use; unmounted under its users"));
                    std::thread::sleep(PATIENCE);
                    // The server serves those users as long as they are there.
                    std::process::exit(0);
                }
                Err(e) => say(format_args!("vfscale: cannot unmount {dir}: {e}")),
            }
        }
    });
    // The end of its server is that of this mount, too, and no reason to make another one.
    let ended = mounted.wait(None).map_err(|failure| Failure::Unclosed(failure.to_string()));
    ended.map(|()| ExitCode::SUCCESS)
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
            Ok(source) => return Ok((source, signals)),
            Err(failure) => {
                signals.restore().map_err(blocked)?;
                return Err(failure);
            }
        }
    }
}

/// Reports that the mount is ready, and once that `sync` does not reach it, if it `is_written` to
/// a volume. In the background the log gets that, since nobody waits for more than the readiness.
fn announce(dir: &Path, log: Option<Log>, is_written: bool) -> Result<(), Failure> {
    let dir = dir.display();
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

/// Starts a thread that ends all mounts at a signal.
fn end_on_signal(served: &Arc<Served>, signals: Blocked) -> Result<(), Failure> {
    let served = Arc::clone(served);
    start_thread("vfscale-signals", move || {
        loop {
            let caught = signals.wait();
            if caught.signal == libc::SIGUSR1 || caught.signal == libc::SIGUSR2 {
                continue;
            }
            end_all(&served, PATIENCE);
        }
    })
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
    // All that can fail comes before the report.
    let null = child::leave_terminal(log)?;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
    let _ = rustix::stdio::dup2_stdout(&null);
    Ok(())
}

/// Changes the flags of an existing mount.
fn remount(dir: &Path, options: &MountOptions) -> Result<ExitCode, Failure> {
    let failed = |e: rustix::io::Errno| Failure::Remount(dir.to_owned(), e.into());
    elsewhere::check_replies(dir)?;
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
    match elsewhere::sync(dir) {
        // Another file system is mounted at `dir`, and the kernel has remounted it.
        Err(Failure::Sync(_, e)) if e.errno() == Errno::NOTTY => Ok(ExitCode::SUCCESS),
        synced => synced.map(|()| ExitCode::SUCCESS),
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
        elsewhere::sync(dir)?;
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
