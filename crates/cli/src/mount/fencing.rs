//! The end of a mount whose volume another machine has taken over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vfscale::block::Error;
use vfscale::volume::Fence;
use vfscale_command::say;

use crate::error::Failure;
use crate::served::{Served, start_thread};

/// Pause between two questions whether this process still has the volume. A write finds out at
/// once.
const PAUSE: Duration = Duration::from_secs(1);
/// Time that the mount gets to end, though processes still use it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that the volume gets to be closed once the mount has ended.
const CLOSING: Duration = Duration::from_secs(20);

/// The answer of the thread that watches a volume.
pub(super) struct Fenced {
    found: Arc<OnceLock<Error>>,
    is_closing: Arc<AtomicBool>,
}

impl Fenced {
    /// Notes that the mount has ended and that the caller closes the volume, and ends the process:
    /// the exit of another thread meanwhile would take the libraries of Ceph away under it.
    pub(super) fn closes(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Returns the error by which another machine was found to have the volume.
    pub(super) fn error(&self) -> Option<Error> {
        self.found.get().cloned()
    }
}

/// Starts a thread that ends all mounts when another machine has the image: it shuts the volume
/// down, detaches the mounts, and ends the process if others keep one in use.
pub(super) fn watch(fence: Fence, served: &Arc<Served>) -> Result<Fenced, Failure> {
    let (found, served) = (Arc::new(OnceLock::new()), Arc::clone(served));
    let noted = Arc::clone(&found);
    let is_closing = Arc::new(AtomicBool::new(false));
    let closes = Arc::clone(&is_closing);
    start_thread("vfscale-fence", move || {
        let error = loop {
            std::thread::sleep(PAUSE);
            if let Err(error) = fence.check() {
                break error;
            }
        };
        noted.get_or_init(|| error.clone());
        let dir = served.dirs();
        tracing::error!("{error}; {dir} is shut down");
        if let Err(e) = served.unmount_all(Duration::ZERO) {
            say(format_args!("vfscale: cannot unmount {e}"));
        }
        std::thread::sleep(PATIENCE);
        if closes.load(Ordering::Acquire) {
            std::thread::sleep(CLOSING);
        }
        let failure = Failure::Fenced(error);
        say(format_args!("vfscale: {failure}; {dir} was shut down, and unmounted under its users"));
        std::process::exit(failure.status().into());
    })?;
    Ok(Fenced { found, is_closing })
}
