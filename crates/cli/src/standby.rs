//! `vfscale mount --standby`: waits until an image of Ceph RBD has no holder that is alive.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale::VolumeError;
use vfscale::block;
use vfscale::block::rbd::{Name, Owner, Watch};
use vfscale_command::notify::notify;
use vfscale_command::say;

use crate::device;
use crate::error::Failure;

/// Pause between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(500);
/// Default time for which the holder must have been gone.
const GRACE: Duration = Duration::from_secs(5);

/// Waits until the image can be taken over: nobody has its lock, or its holder has not watched it
/// for the time of grace. Whoever opens it then may still find that another one was faster.
pub(crate) fn wait(image: &Path, grace: Option<Duration>) -> Result<(), Failure> {
    let (name, grace) = (Name::parse(image)?, grace.unwrap_or(GRACE));
    let mut watch = Some(Watch::open(&name, &device::ceph())?);
    let mut told = Told::default();
    // The client that is gone, and since when.
    let mut gone: Option<(Arc<str>, Instant)> = None;
    loop {
        let looked = match watch.take() {
            Some(watch) => Ok(watch),
            // A new connection, in case that the former one is the trouble.
            None => Watch::open(&name, &device::ceph()),
        };
        let looked = looked.and_then(|open| {
            let owner = open.owner()?;
            watch = Some(open);
            Ok(owner)
        });
        match looked {
            Ok(None) => return Ok(()),
            Ok(Some(owner)) if owner.is_watching => {
                gone = None;
                told.waits(&name, &owner);
            }
            Ok(Some(owner)) => {
                told.is_gone(&name, &owner, grace);
                let known = gone.take().filter(|(client, _)| *client == owner.client);
                let (client, since) = known.unwrap_or_else(|| (owner.client, Instant::now()));
                if since.elapsed() >= grace {
                    return Ok(());
                }
                gone = Some((client, since));
            }
            Err(error) => told.fails(&error),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether a volume was not opened because another process has locked it.
pub(crate) fn was_slower(failure: &Failure) -> bool {
    matches!(failure, Failure::Open(VolumeError::Device(block::Error::Locked { .. })))
}

/// The last message, so that nothing is said twice in a row.
#[derive(Default)]
struct Told(String);

impl Told {
    fn waits(&mut self, name: &Name, owner: &Owner) {
        let client = &owner.client;
        let holder = owner.holder.as_ref().map_or_else(String::new, |it| format!(", {it}"));
        let text = format!("{name}: standing by for {client}{holder}");
        self.tell(text);
    }

    fn is_gone(&mut self, name: &Name, owner: &Owner, grace: Duration) {
        let (client, seconds) = (&owner.client, grace.as_secs_f64());
        self.tell(format!("{name}: {client} is gone; taking over after {seconds} s of grace"));
    }

    fn fails(&mut self, error: &block::Error) {
        self.tell(format!("{error}; trying again"));
    }

    fn tell(&mut self, text: String) {
        if self.0 == text {
            return;
        }
        say(format_args!("vfscale: {text}"));
        if let Err(error) = notify(&format!("STATUS={text}")) {
            tracing::warn!("the service manager can't be told the state of the mount: {error}");
        }
        self.0 = text;
    }
}
