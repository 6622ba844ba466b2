//! The errors of calls, and their effects on the volume.

use rustix::io::Errno;
use vfscale_sync::atomic::Ordering;

use super::disk_fs::DiskFs;
use crate::base::fault::Fault;
use crate::base::on_error::OnError;
use crate::volume::stopped;

/// Returns the error number of a call, and logs the fault unless it is a mere refusal.
pub(super) fn errno(fault: Fault) -> Errno {
    let errno = fault.errno();
    let is_refusal = matches!(fault, Fault::ReadOnly | Fault::TooLarge | Fault::Refused(_));
    if !is_refusal && !fault.is_no_space() {
        tracing::error!(%fault, "the volume has failed a call");
    }
    errno
}

impl DiskFs {
    /// Returns the fault because of which the volume refuses changes, if it does: its log has
    /// failed, or it has found damage.
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
            // `syncfs` reports it once to each open file; on a read-only volume it has nothing else
            // to do.
            self.files.write_errors().record(Errno::IO.raw_os_error());
        }
        Some(why)
    }

    /// Returns whether the volume refuses changes, and informs the VFS if so. Never blocks.
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

    /// Returns the error number of a call whose fault may stop the volume.
    pub(super) fn failed(&self, fault: Fault) -> Errno {
        let is_damage =
            matches!(fault, Fault::Damage(_) | Fault::Local(_) | Fault::Refused(Errno::UCLEAN));
        if is_damage && self.stopped().is_some() {
            // Parts of the state in memory were never durable: this says nothing about the device.
            return Errno::IO;
        }
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
        // The fault that stopped the volume was already logged.
        if was_told { fault.errno() } else { errno(fault) }
    }

    /// Makes a change of names, beside damage of groups.
    pub(super) fn changed<T>(&self, change: impl Fn() -> Result<T, Fault>) -> Result<T, Errno> {
        self.volume.beside_damage(change).map_err(|fault| self.failed(fault))
    }

    /// Returns the error number as [`failed`](Self::failed) does, for a call that makes changes
    /// durable: such a call has failed even on a volume that has become read-only, so a fault of
    /// the log is `EIO`, not `EROFS`.
    pub(super) fn sync_failed(&self, fault: Fault) -> Errno {
        let is_of_log = matches!(fault, Fault::Journal(_));
        let errno = self.failed(fault);
        if is_of_log { Errno::IO } else { errno }
    }

    /// Returns the options for the table of mounts: the policy, whether the volume has stopped and
    /// by which fault, and the fault that stopped an earlier mount if the volume was not checked
    /// since.
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
