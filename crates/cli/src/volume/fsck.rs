//! `vfscale fsck`: checks a volume for damage, and repairs it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vfscale::Pool;
use vfscale::block::Device;
use vfscale_command::say;
use vfscale_diskfs::check::{self, Finding, Options, Phase, Watch};
use vfscale_diskfs::{OpenError, copies};

use vfscale_fuse::control::{Checked, Connection, Reply, Request};

use super::open_log;
use crate::checked::{CORRECTED, LEFT, Way, line, status, value, words};
use crate::device::open;
use crate::elsewhere::ask;
use crate::elsewhere::branches::at_server_or_here;
use crate::error::{Failure, NOT_MOUNTED};
use crate::mounts::{device_of, is_dir};
use crate::served::device_text;

/// Exit status: the check could not be made.
pub(crate) const OPERATIONAL: u8 = 8;
/// Exit status: the command line is invalid.
pub(crate) const USAGE: u8 = 16;

/// The number of findings that are printed by default.
pub(crate) const FINDINGS: usize = 1000;
/// The reason why a volume without branches is not checked.
const ONLY: &str = "only branches are checked while they are in use";
/// The command to use if another process has the image open, and no mount of it is found.
const UMOUNT: &str = "umount DIR";

#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    /// Replay the log, then repair the damage: files without a name are linked into /lost+found,
    /// and directories, files and attributes with damaged blocks retain their readable contents.
    /// Without it nothing is written
    #[arg(long, short = 'y', visible_short_alias = 'a', conflicts_with = "dry_run")]
    pub(crate) repair: bool,

    /// With --repair: give the volume a new, empty log. The former log is replayed if possible. A
    /// damaged, lost or wrong one is discarded: changes in it that were not yet written in place
    /// are lost, even if they were synced, and changes that were partly written in place are
    /// repaired as far as possible. Without --repair: report the loss. To replace a lost
    /// external log, name the new device with --log-device
    #[arg(long)]
    pub(crate) discard_log: bool,

    /// With --repair: give up metadata that the device can't read, and metadata in whose place
    /// something else is, as if they were destroyed: files without their inode lose their names,
    /// directories and files lose the part in that block. Without it they are left as they are,
    /// because the device may be able to read them another day. First copy the image to a device
    /// that can be read, or what is left with copy-out
    #[arg(long, requires = "repair")]
    pub(crate) give_up_unreadable: bool,

    /// Write nothing, which is the default without --repair
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,

    /// Print one JSON object to standard output at the end of the check
    #[arg(long)]
    pub(crate) json: bool,

    /// Do not show progress
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Write progress to this descriptor, which the process has inherited, instead of showing it:
    /// lines with the number of the pass, the parts that are done, all parts, and IMAGE
    #[arg(long, value_name = "FD")]
    pub(crate) progress_fd: Option<u32>,

    /// Print this many findings at most; all are counted
    #[arg(long, value_name = "N", default_value_t = FINDINGS)]
    pub(crate) findings: usize,

    /// Check this branch. By default all branches of an image are checked, and first the pool that
    /// they share. --repair repairs the pool in any case
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,

    /// The device of an external log; with --discard-log the device of the new log
    #[arg(long, value_name = "PATH")]
    pub(crate) log_device: Option<PathBuf>,

    /// The image file or block device; a branch that is in use is checked as it is now. A directory
    /// names the branch that is mounted there
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) image: PathBuf,
}

/// Lines with the progress of a check, in the form that callers of `fsck(8)` know from other file
/// systems.
struct Lines {
    file: File,
    image: String,
    /// The pass of the last line, and its part of a hundred.
    last: (u64, u64),
}

impl Lines {
    /// Opens an inherited descriptor once more: a pipe, a file or a terminal.
    fn new(descriptor: u32, image: &Path) -> Result<Lines, Failure> {
        let path = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
        let file = File::options().append(true).open(&path).map_err(|e| Failure::Write(path, e))?;
        Ok(Lines { file, image: image.display().to_string(), last: (0, 0) })
    }

    /// Writes a line if a hundredth is done since the last one, or a pass begins.
    fn write(&mut self, pass: u64, done: u64, of: u64) {
        let now = (pass, done.saturating_mul(100).checked_div(of).unwrap_or(0));
        if now != self.last {
            self.last = now;
            // The reader may be gone; the check goes on.
            let _ = self.file.write_all(format!("{pass} {done} {of} {}\n", self.image).as_bytes());
        }
    }
}

/// The progress bar of a check, and the printer of its findings.
struct Teller {
    lines: Option<Lines>,
    bar: ProgressBar,
    is_json: bool,
    findings: usize,
    told: usize,
}

impl Teller {
    fn new(args: &FsckArgs) -> Result<Self, Failure> {
        let lines = args.progress_fd.map(|descriptor| Lines::new(descriptor, &args.image));
        let is_hidden = args.quiet || args.json || lines.is_some() || !io::stderr().is_terminal();
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}") {
            bar.set_style(style);
        }
        let (is_json, findings) = (args.json, args.findings);
        Ok(Self { lines: lines.transpose()?, bar, is_json, findings, told: 0 })
    }
}

impl Watch for Teller {
    fn finding(&mut self, finding: &Finding) {
        self.told += 1;
        if !self.is_json && self.told <= self.findings {
            // The reader of a pipe may have closed it; the exit status still reports the findings.
            let line = || writeln!(io::stdout(), "{}", line(finding));
            self.bar.suspend(line).unwrap_or_default();
        }
    }

    fn progress(&mut self, phase: Phase, done: u64, of: u64) {
        if let Some(lines) = &mut self.lines {
            lines.write(phase as u64 + 1, done, of);
        }
        self.bar.set_message(phase.words());
        self.bar.set_length(of);
        self.bar.set_position(done);
    }
}

/// Runs the check. The exit status reports the outcome.
pub(crate) fn fsck(args: &FsckArgs) -> Result<ExitCode, Failure> {
    Ok(ExitCode::from(match try_fsck(args) {
        Ok((status, value)) => {
            if args.json {
                let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
                print(text.and_then(|text| writeln!(io::stdout(), "{text}")))?;
            }
            status
        }
        Err(error) => {
            say(format_args!("vfscale: {error}"));
            OPERATIONAL
        }
    }))
}

/// Checks what the image has, and returns the exit status and the result as JSON.
fn try_fsck(args: &FsckArgs) -> Result<(u8, Value), Failure> {
    let is_read = !args.repair && !args.discard_log && args.log_device.is_none();
    match is_read {
        true => {
            at_server_or_here(&args.image, UMOUNT, |dir| check_open_in(args, dir), || here(args))
        }
        false => here(args),
    }
}

/// Checks an image that no other process has open.
fn here(args: &FsckArgs) -> Result<(u8, Value), Failure> {
    let device = open(&args.image, !args.repair)?;
    let is_pool = matches!(copies::read(&*device), Err(OpenError::Pool { .. }));
    if !is_pool && args.branch.is_none() {
        return check_one(args, device, &args.image.display().to_string(), args.repair);
    }
    drop(device);
    let builder = crate::device::pool(&args.image).read_only(!args.repair);
    let pool = builder.repair(args.repair).open()?;
    let checked = check_pool(args, &pool);
    let closed = if args.repair { pool.close() } else { Ok(()) };
    let checked = checked?;
    closed?;
    Ok(checked)
}

/// Has the server of a mount check branches as they are now: the one that is named or mounted at
/// the directory which the command names, or all.
fn check_open_in(args: &FsckArgs, dir: &Path) -> Result<(u8, Value), Failure> {
    let place = &args.image;
    let names = match &args.branch {
        Some(name) => vec![name.clone()],
        None if is_dir(place) => vec![branch_at(dir)?],
        None => {
            let listed = ask(place, dir, Connection::branches).map_err(|failure| match failure {
                Failure::Refused(place, why) => Failure::Refused(place, format!("{ONLY}: {why}")),
                failure => failure,
            });
            listed?.into_iter().map(|it| it.name).collect()
        }
    };
    let (mut status, mut values, mut text) = (0, serde_json::Map::new(), String::new());
    for name in names {
        let (found, value) = match ask(place, dir, |it| it.check(&name, args.findings as u64)) {
            // The other branches can be checked all the same.
            Err(error @ Failure::Refused(..)) if args.branch.is_none() => unchecked(&name, &error),
            checked => {
                let Checked { status, words, json } = checked?;
                text += &words;
                (status, serde_json::from_str(&json).unwrap_or_default())
            }
        };
        status |= found;
        values.insert(name, value);
    }
    if !args.json {
        print(write!(io::stdout().lock(), "{text}"))?;
    }
    Ok((status, json!({ "branches": values })))
}

/// Returns the branch that is mounted at a directory.
fn branch_at(dir: &Path) -> Result<String, Failure> {
    let device = device_of(dir).map_err(|error| Failure::Read(dir.to_owned(), error))?;
    let (device, mut found) = (device_text(device), None);
    ask(dir, dir, |connection| {
        connection.ask(&Request::Places, |reply| match reply {
            Reply::Place { branch, device: other, .. } => {
                found = found.take().or((other == device).then_some(branch));
                true
            }
            _ => false,
        })
    })?;
    found.ok_or_else(|| Failure::Refused(dir.to_owned(), NOT_MOUNTED.into()))
}

/// Checks the branches, and before that the pool, unless one branch is named.
fn check_pool(args: &FsckArgs, pool: &Pool) -> Result<(u8, Value), Failure> {
    let repaired = pool.repaired();
    let mut problems = Vec::new();
    let mut branches = pool.branches();
    match &args.branch {
        None => problems = pool.check()?,
        Some(name) => branches.retain(|info| info.name == *name),
    }
    let (image, is_told) = (args.image.display(), !args.json);
    if is_told {
        let mut out = io::stdout().lock();
        let told = repaired.iter().map(|it| format!("repaired: {it}"));
        let mut told = told.chain(problems.iter().cloned());
        print(told.try_for_each(|it| writeln!(out, "{image}: pool: {it}")))?;
    }
    if let (Some(name), []) = (&args.branch, &branches[..]) {
        // The error names the branch.
        pool.device(name)?;
    }
    let mut status = match (&problems[..], &repaired[..]) {
        ([], []) => 0,
        ([], _) => CORRECTED,
        _ => LEFT,
    };
    let mut values = serde_json::Map::new();
    for info in branches {
        let (label, repair) = (format!("{image}:{}", info.name), args.repair && !info.read_only);
        let device = pool.device(&info.name).map_err(Failure::from);
        let checked = device.and_then(|device| check_one(args, device, &label, repair));
        let (found, value) = match checked {
            // The other branches can be checked all the same.
            Err(error) if args.branch.is_none() => unchecked(&label, &error),
            checked => checked?,
        };
        status |= found;
        values.insert(info.name, value);
    }
    Ok((status, json!({ "pool": problems, "repaired": repaired, "branches": values })))
}

/// Tells why a branch was not checked, and returns the status and the result.
fn unchecked(label: &str, error: &Failure) -> (u8, Value) {
    say(format_args!("vfscale: {label}: {error}"));
    (OPERATIONAL, json!({ "error": error.to_string() }))
}

/// Checks one volume, and tells the result in words unless it is wanted as JSON.
fn check_one(
    args: &FsckArgs,
    device: Arc<dyn Device>,
    label: &str,
    repair: bool,
) -> Result<(u8, Value), Failure> {
    let mut teller = Teller::new(args)?;
    let log = open_log(args.log_device.as_deref(), !repair)?;
    let FsckArgs { discard_log, give_up_unreadable, findings, .. } = *args;
    let options = Options { repair, discard_log, give_up_unreadable, log, findings };
    let report = check::check(device, &options, &mut teller);
    teller.bar.finish_and_clear();
    let report = report?;
    let value = value(&report);
    if !args.json {
        let way = if repair { Way::Repair } else { Way::Read };
        print(writeln!(io::stdout().lock(), "{}", words(label, way, &report)))?;
    }
    Ok((status(&report), value))
}

/// Returns the outcome of writing to the standard output, whose reader may have gone.
fn print(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Write("standard output".into(), error))
        }
        _ => Ok(()),
    }
}
