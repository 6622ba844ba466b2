//! A volume that grows while threads use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use vfscale::posix::At;
use vfscale::{Errno, Volume};
use vfscale_block::Device;
use vfscale_testkit::RecordingDevice;

/// Bytes by which a volume grows each time.
const STEP: u64 = 3 << 20;
/// Size above which a volume does not grow.
const MOST: u64 = 80 << 20;
/// Number of times that it grows in a load.
const TIMES: usize = 2;
/// Pause between two growths.
const PAUSE: Duration = Duration::from_millis(4);

/// The sizes that have been promised.
#[derive(Debug)]
pub(super) struct Growth<D> {
    device: Arc<RecordingDevice<D>>,
    said: Mutex<Vec<(usize, u64)>>,
    /// Held while the volume grows, when its device is not consistent.
    pub(super) growing: Mutex<()>,
    /// Whether the growth is only reported, not made.
    forgets: bool,
}

impl<D: Device + 'static> Growth<D> {
    pub(super) fn new(device: Arc<RecordingDevice<D>>, forgets: bool) -> Self {
        Self { device, said: Mutex::default(), growing: Mutex::default(), forgets }
    }

    /// Grows the volume a few times, until the work is over.
    pub(super) fn run(&self, volume: &Volume, is_over: &AtomicBool) -> Result<(), String> {
        let task = volume.task();
        for _ in 0..TIMES {
            thread::sleep(PAUSE);
            let size = volume.driver().volume().geometry().bytes() + STEP;
            if is_over.load(Ordering::Relaxed) || size > MOST {
                break;
            }
            let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.forgets {
                match task.posix().grow_fs(At::Cwd, "/", size) {
                    // The volume can't grow further without being reopened.
                    Err(error) if error.errno() == Errno::BUSY => break,
                    other => other.map(drop).map_err(|error| format!("growing: {error}"))?,
                }
            }
            let mark = self.device.mark(format!("{size} bytes"));
            self.said.lock().unwrap_or_else(PoisonError::into_inner).push((mark, size));
        }
        Ok(())
    }

    /// Checks that a recovered volume has the size that was promised within the first `marks`
    /// marks.
    pub(super) fn judge(&self, volume: &Volume, marks: usize) -> Result<(), String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let promised = said.iter().filter(|(mark, _)| *mark <= marks).map(|(_, size)| *size).max();
        let size = volume.driver().volume().geometry().bytes();
        match promised {
            Some(promised) if size < promised => {
                Err(format!("the volume has {size} bytes instead of {promised}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of growths.
    pub(super) fn times(&self) -> u64 {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}
