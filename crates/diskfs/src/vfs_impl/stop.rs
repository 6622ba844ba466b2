//! The end of a volume that can't be relied on any more.
//!
//! When its log fails, or it meets damage of metadata, a volume stops: nothing more becomes
//! durable, and nothing is changed any more. What was durable is replayed by the next opening. What
//! can be read still is. What callers see of it is up to [`OnError`]. The call that meets damage is
//! told of that (`EUCLEAN`), a call that needs the log of its error (`EIO`), and every later one
//! what the policy says.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_vfs::super_block::{ReadOnlySwitch, SuperBlock};

use super::{DiskFs, errno};
use crate::base::fault::Fault;
use crate::volume::stopped;

/// What callers see of a volume that meets damage, or whose log fails (`errors=` of ext4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It becomes read-only: changes fail with `EROFS`.
    RemountRo,
    /// Changes fail with `EIO`.
    #[default]
    Shutdown,
}

/// The error for a text that is no [`OnError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not what a volume can do about errors: `remount-ro` or `shutdown`")]
pub struct OnErrorError(String);

impl FromStr for OnError {
    type Err = OnErrorError;

    fn from_str(text: &str) -> Result<Self, OnErrorError> {
        match text {
            "remount-ro" => Ok(Self::RemountRo),
            "shutdown" => Ok(Self::Shutdown),
            _ => Err(OnErrorError(text.to_owned())),
        }
    }
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemountRo => "remount-ro",
            Self::Shutdown => "shutdown",
        })
    }
}

/// Whether the volume has stopped.
#[derive(Debug)]
pub(super) struct Stop {
    on_error: OnError,
    /// The number of what has stopped an earlier mount, if the volume was not checked since.
    before: Option<u32>,
    is_told: AtomicBool,
    switch: OnceLock<ReadOnlySwitch>,
}

impl Stop {
    pub(super) fn new(on_error: OnError, before: Option<u32>) -> Self {
        Self { on_error, before, is_told: AtomicBool::new(false), switch: OnceLock::new() }
    }

    /// Sets the superblock that the driver serves. Called once.
    pub(super) fn serve(&self, sb: &SuperBlock) {
        let _ = self.switch.set(sb.read_only_switch());
    }
}

impl DiskFs {
    /// Returns why the volume has stopped, if it has: its log has failed, or it has met damage.
    #[must_use]
    pub fn stopped(&self) -> Option<Fault> {
        if !self.has_stopped() {
            return None;
        }
        let why = self.volume.failure()?;
        if !self.stop.is_told.swap(true, Ordering::AcqRel) {
            let errors = self.stop.on_error;
            tracing::error!(%why, %errors, "the volume has stopped: nothing is changed any more");
            self.volume.note_stop();
            // Each open file is told once by `syncfs`, which finds nothing to do if it is
            // read-only.
            self.files.write_errors().record(Errno::IO.raw_os_error());
        }
        Some(why)
    }

    /// Returns whether the volume has stopped. If so, the VFS knows it by then. Never blocks.
    fn has_stopped(&self) -> bool {
        let has_stopped = self.volume.is_shut_down();
        if has_stopped
            && self.stop.on_error == OnError::RemountRo
            && let Some(switch) = self.stop.switch.get()
        {
            switch.set();
        }
        has_stopped
    }

    /// Returns the number that a call fails with; stops the volume if the fault demands it.
    pub(super) fn failed(&self, fault: Fault) -> Errno {
        let is_of_log = matches!(fault, Fault::Journal(_));
        if !is_of_log && !matches!(fault, Fault::Damage(_)) {
            return errno(fault);
        }
        let was_told = self.stop.is_told.load(Ordering::Acquire);
        if !is_of_log && !self.volume.is_shut_down() {
            self.volume.shut_down(fault.clone());
        }
        let stopped = self.stopped();
        if is_of_log && stopped.is_some() && self.stop.on_error == OnError::RemountRo {
            return Errno::ROFS;
        }
        // The fault that has stopped the volume is logged only once.
        if was_told { fault.errno() } else { errno(fault) }
    }

    /// Returns the number that a call fails with that makes something durable: `EIO` for a failure
    /// of the log even if the volume has become read-only, otherwise that of
    /// [`failed`](Self::failed).
    pub(super) fn sync_failed(&self, fault: Fault) -> Errno {
        let is_of_log = matches!(fault, Fault::Journal(_));
        let errno = self.failed(fault);
        if is_of_log { Errno::IO } else { errno }
    }

    /// Returns its options, whether it has stopped, and by what; and what has stopped an earlier
    /// mount, if it was not checked since: as in the table of mounts.
    pub(super) fn show_options(&self) -> String {
        let on_error = self.stop.on_error;
        let mut text = format!("errors={on_error}");
        if self.has_stopped() {
            text += match on_error {
                OnError::RemountRo => ",emergency_ro",
                OnError::Shutdown => ",shutdown",
            };
            if let Some(fault) = self.volume.failure() {
                text += &format!(",stopped_by=V{:03}", stopped::number(&fault));
            }
        }
        if let Some(by) = self.stop.before {
            text += &format!(",stopped_before_by=V{by:03}");
        }
        text
    }
}
