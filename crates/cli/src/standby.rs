//! `vfscale mount --standby`: waits until an image of Ceph RBD has no holder that is alive.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale::VolumeError;
use vfscale::block;
use vfscale::block::Operation;
use vfscale::block::rbd::{Name, Owner, Watch};
use vfscale_command::notify::notify;
use vfscale_command::say;

use crate::device;
use crate::error::Failure;

/// Pause between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(500);
/// Default time for which the holder must have been gone.
const GRACE: Duration = Duration::from_secs(5);
/// Time after which a request of the take-over fails, and the standby begins anew.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the image can be taken over: nobody has its lock, or its holder has not watched it
/// for the time of grace. Whoever opens it then may still find that another one was faster.
///
/// Fails only if `is_first` and the first look finds that it can't be made.
pub(crate) fn wait(
    image: &Path,
    grace: Option<Duration>,
    told: &mut Told,
    is_first: bool,
) -> Result<(), Failure> {
    let (name, grace) = (Name::parse(image)?, grace.unwrap_or(GRACE));
    let mut watch = match Watch::open(&name, &device::ceph()) {
        Err(error) if is_first => return Err(error.into()),
        opened => opened.ok(),
    };
    // The client that is gone, and since when.
    let mut gone: Option<(Arc<str>, Instant)> = None;
    loop {
        let begun = Instant::now();
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
        tracing::debug!(took = ?begun.elapsed(), ?looked, "a look at the lock of {name}");
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
                    told.takes_over(&name, &client);
                    return Ok(());
                }
                gone = Some((client, since));
            }
            Err(error) => told.fails(&error),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether a volume was not opened for a reason that may pass: another process has locked
/// it, or the cluster has not answered in time.
pub(crate) fn may_pass(failure: &Failure, told: &mut Told) -> bool {
    let Failure::Open(VolumeError::Device(error)) = failure else { return false };
    let is_late = match error {
        block::Error::Locked { .. } => return true,
        block::Error::Unreachable { .. } => true,
        // librbd has other names for a request that was late. The next look tells what remains.
        block::Error::Io { operation: Operation::Open, .. } => true,
        _ => false,
    };
    if is_late {
        told.fails(error);
    }
    is_late
}

/// The last message, so that nothing is said twice in a row.
#[derive(Default)]
pub(crate) struct Told(String);

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

    fn takes_over(&mut self, name: &Name, client: &str) {
        self.tell(format!("{name}: taking over from {client}"));
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
