//! `vfscale fsck`: checks a volume for damage, and repairs it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use vfscale::block::Device;
use vfscale::{Escaped, Pool};
use vfscale_command::say;
use vfscale_diskfs::{
    OpenError, check, check::Discarded, check::Finding, check::LogState, check::Options,
    check::Phase, check::Report, check::Watch, copies,
};

use super::open_log;
use crate::device::open;
use crate::error::Failure;

/// Exit status of `fsck(8)`: all findings were repaired.
pub(crate) const CORRECTED: u8 = 1;
/// Exit status: findings are left.
pub(crate) const LEFT: u8 = 4;
/// Exit status: the check could not be made.
pub(crate) const OPERATIONAL: u8 = 8;
/// Exit status: the command line is invalid.
pub(crate) const USAGE: u8 = 16;

/// The number of findings that are printed by default.
pub(crate) const FINDINGS: usize = 1000;

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

    /// The image file or block device
    #[arg(value_name = "IMAGE")]
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
            let line = || writeln!(io::stdout(), "{finding} [{}]", finding.severity.name());
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
            Err(error) if args.branch.is_none() => {
                say(format_args!("vfscale: {label}: {error}"));
                (OPERATIONAL, json!({ "error": error.to_string() }))
            }
            checked => checked?,
        };
        status |= found;
        values.insert(info.name, value);
    }
    Ok((status, json!({ "pool": problems, "repaired": repaired, "branches": values })))
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
    let value = serde_json::to_value(report.to_value()).unwrap_or_default();
    if !args.json {
        print(writeln!(io::stdout().lock(), "{}", words(label, repair, &report)))?;
    }
    Ok((status(&report), value))
}

fn status(report: &Report) -> u8 {
    match (report.count, report.left) {
        (0, _) => 0,
        (_, 0) => CORRECTED,
        _ => LEFT,
    }
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

fn words(image: &str, repair: bool, report: &Report) -> String {
    let mut text = String::new();
    match report.log {
        LogState::Clean => {}
        LogState::Replayed { checkpoints, items } => {
            let how = if repair { "was replayed" } else { "was replayed in memory only" };
            text += &format!(
                "{image}: was not closed; its log ({checkpoints} checkpoints, {items} items) {how}\n"
            );
        }
        LogState::Unusable if report.discarded.is_some() => {}
        LogState::Unusable => {
            text += &format!(
                "{image}: its log can't be used. If its device may be readable another time, wait for that; \
                 else --repair of a copy of the image, or --repair --give-up-unreadable for a block that stays \
                 unreadable, may replay it. If nothing else is left, --repair --discard-log makes a new log, \
                 and loses the changes in this one\n"
            );
        }
    }
    if let Some(discarded) = &report.discarded {
        text += &format!("{image}: {}\n", words_of(discarded, repair));
    }
    if let Some(stopped) = &report.stopped {
        let (by, why) = (stopped.by(), Escaped::message(stopped.why()));
        let now = match (repair, report.left) {
            (true, 0) => "; that is settled now",
            (false, 0) => "; nothing is wrong now, and --repair settles it",
            _ => "",
        };
        text += &format!("{image}: a mount has stopped (V{by:03}): {why}{now}\n");
    }
    text += &unfinished(image, repair, report);
    let more = report.count.saturating_sub(report.findings.len() as u64);
    if more > 0 {
        text += &format!("{image}: and {more} more\n");
    }
    let figures = &report.figures;
    text += &format!(
        "{image}: {} inodes, {} of them directories; {} of {} blocks in use\n",
        figures.inodes, figures.directories, figures.used_blocks, figures.blocks
    );
    text += &match (report.count, report.left) {
        (0, _) => format!("{image}: clean"),
        (count, 0) => format!("{image}: {count} findings, all repaired"),
        (count, left) if repair => {
            format!("{image}: {count} findings, {left} of them left as they are")
        }
        (count, _) => format!("{image}: {count} findings; nothing was changed"),
    };
    text
}

/// Describes the loss of a discarded log.
fn words_of(discarded: &Discarded, is_done: bool) -> String {
    let Discarded { why, checkpoints, records } = discarded;
    match (why, is_done) {
        (None, true) => "has a new log; nothing of the former one was lost".into(),
        (None, false) => "its log can be used: nothing would be lost with it".into(),
        (Some(_), is_done) => {
            let how = if is_done { "was thrown away" } else { "would be thrown away" };
            let are = if is_done { "are" } else { "would be" };
            format!(
                "its log {how}, with {checkpoints} checkpoints in {records} readable records between its tail and \
                 its head; changes in it, readable or not, that were not yet written in place {are} lost"
            )
        }
    }
}

/// Describes work that a mount has left to the next one, which is not damage.
fn unfinished(image: &str, repair: bool, report: &Report) -> String {
    let (found, finished) = (&report.unfinished, &report.finished);
    let mut text = String::new();
    if (finished.removed, finished.cut) != (0, 0) {
        let (removed, cut) = (finished.removed, finished.cut);
        text += &format!(
            "{image}: finished the work of a mount: {removed} inodes removed, {cut} files truncated\n"
        );
    } else if (found.removals, found.cuts) != (0, 0) {
        let (removals, cuts) = (found.removals, found.cuts);
        text += &format!(
            "{image}: the next mount removes {removals} more inodes, and truncates {cuts} files\n"
        );
    }
    if found.copies > 0 && !repair {
        let copies = found.copies;
        text += &format!("{image}: the next mount writes {copies} copies of the superblock\n");
    }
    text
}
