//! A check that only reads.

use std::sync::Arc;

use vfscale_block::Device;

use super::error::CheckError;
use super::finding::Problem;
use super::log::{CheckedLog, Discarded, LogState};
use super::options::Options;
use super::report::Report;
use super::run::run;
use super::watch::{Findings, Phase, Watch};
use crate::volume::copies::FoundSuperblock;

/// Checks the volume on `device`, and writes nothing.
///
/// # Errors
/// Returns [`CheckError`] if the log is not where the superblock or `options` says.
pub(super) fn inspect(
    device: Arc<dyn Device>,
    found: &FoundSuperblock,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, CheckError> {
    let logged = CheckedLog::new(device, options.log.as_ref(), &found.superblock)?;
    let mut tell = Findings::new(watch, options.findings);
    let (device, log) = look_at_log(&logged, found, &mut tell);
    // A log that is new may have been used and written home since the sums were recorded.
    let holds = log == LogState::Clean && !logged.known.is_new;
    let sums = found.superblock.sums.filter(|_| holds);
    let checked = run(&*device, found, tell, None, sums);
    let mut report = checked.into_report(log);
    if options.discard_log {
        let (replayed, why) = logged.copied().replay_home(&found.superblock);
        report.discarded = Some(Discarded::of(&logged, replayed.is_ok(), why));
    }
    Ok(report)
}

/// Returns the device in its state after a replay of the log: a copy in memory, if there are
/// changes to replay.
fn look_at_log(
    logged: &CheckedLog,
    found: &FoundSuperblock,
    tell: &mut Findings<'_>,
) -> (Arc<dyn Device>, LogState) {
    tell.progress(Phase::Log, 0, 1);
    let home = logged.device.clone();
    // Even after a clean close, the blocks on disk may be older than the log.
    let looked = logged.is_clean().and_then(|is_clean| match is_clean {
        true => logged.copied().replay_only(&found.superblock).map(|_| true),
        false => Ok(false),
    });
    let why = match looked {
        Ok(true) => return (home, LogState::Clean),
        Ok(false) => match in_memory(logged, found, false) {
            Ok(replayed) => return replayed,
            Err(error) => error,
        },
        Err(error) => error,
    };
    let part = in_memory(logged, found, true);
    tell.add(match part {
        Ok(_) => Problem::LogPart { why: why.to_string() },
        Err(_) => why.into(),
    });
    part.unwrap_or((home, LogState::Unusable))
}

/// Replays the log in memory; see [`CheckedLog::replay`].
fn in_memory(
    logged: &CheckedLog,
    found: &FoundSuperblock,
    may_lack: bool,
) -> vfscale_journal::Result<(Arc<dyn Device>, LogState)> {
    let copy = logged.copied();
    let (journal, state) = copy.replay(&found.superblock, may_lack)?;
    drop(journal);
    Ok((copy.device, state))
}
