//! The end of a mount whose volume another machine has taken over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vfscale::block::Error;
use vfscale::volume::Fence;
use vfscale_command::say;
use vfscale_fuse::Mounted;

use crate::error::Failure;

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

/// Starts a thread that ends the mount when another machine has the volume: it shuts the volume
/// down, detaches the mount, and ends the process if others keep the mount in use.
pub(super) fn watch(fence: Fence, mounted: &Mounted) -> Fenced {
    let (found, dir) = (Arc::new(OnceLock::new()), mounted.dir().to_owned());
    let (noted, unmounter) = (Arc::clone(&found), mounted.unmounter());
    let is_closing = Arc::new(AtomicBool::new(false));
    let closes = Arc::clone(&is_closing);
    std::thread::spawn(move || {
        let error = loop {
            std::thread::sleep(PAUSE);
            if let Err(error) = fence.check() {
                break error;
            }
        };
        noted.get_or_init(|| error.clone());
        let dir = dir.display();
        tracing::error!("{error}; {dir} is shut down");
        if let Err(e) = unmounter.unmount_within(Duration::ZERO) {
            say(format_args!("vfscale: cannot unmount {dir}: {e}"));
        }
        std::thread::sleep(PATIENCE);
        if closes.load(Ordering::Acquire) {
            std::thread::sleep(CLOSING);
        }
        let failure = Failure::Fenced(error);
        say(format_args!("vfscale: {failure}; {dir} was shut down, and unmounted under its users"));
        std::process::exit(failure.status().into());
    });
    Fenced { found, is_closing }
}
