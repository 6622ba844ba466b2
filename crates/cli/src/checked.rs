//! The result of a check of a volume, in words and as JSON.

use serde_json::Value;
use vfscale::{Escaped, Pool};
use vfscale_diskfs::check::{self, Discarded, Finding, LogState, Options, Report};
use vfscale_fuse::control::Checked;

use crate::error::Failure;

/// Exit status of `fsck(8)`: all findings were repaired.
pub(crate) const CORRECTED: u8 = 1;
/// Exit status: findings are left.
pub(crate) const LEFT: u8 = 4;
/// The most findings of a branch that its server tells: a message has to have room for them.
const FINDINGS_OPEN: usize = 10_000;

/// How a volume is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Repair,
    /// As [`Read`](Self::Read), in a state of a branch that is in use.
    Open,
}

/// Checks the volume in a branch of an open pool as it is now.
pub(crate) fn check_open(
    pool: &Pool,
    branch: &str,
    label: &str,
    findings: u64,
) -> Result<Checked, Failure> {
    let findings = usize::try_from(findings).unwrap_or(usize::MAX).min(FINDINGS_OPEN);
    let options = Options { findings, ..Options::default() };
    let report = check::check(pool.still_device(branch)?, &options, &mut ())?;
    let lines = report.findings.iter().map(|it| format!("{}\n", line(it)));
    let words = lines.collect::<String>() + &words(label, Way::Open, &report) + "\n";
    Ok(Checked { status: status(&report), words, json: value(&report).to_string() })
}

/// Returns a report as JSON.
pub(crate) fn value(report: &Report) -> Value {
    serde_json::to_value(report.to_value()).unwrap_or_default()
}

/// Returns the line of a finding.
pub(crate) fn line(finding: &Finding) -> String {
    format!("{finding} [{}]", finding.severity.name())
}

/// Returns the exit status for a report.
pub(crate) fn status(report: &Report) -> u8 {
    match (report.count, report.left) {
        (0, _) => 0,
        (_, 0) => CORRECTED,
        _ => LEFT,
    }
}

/// Describes a report, without its findings.
pub(crate) fn words(image: &str, way: Way, report: &Report) -> String {
    let (mut text, repair) = (String::new(), way == Way::Repair);
    match report.log {
        LogState::Clean => {}
        // The log of an open branch is in use, and so are files without a name.
        LogState::Replayed { .. } if way == Way::Open => {}
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
    if way != Way::Open {
        text += &unfinished(image, repair, report);
    }
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
