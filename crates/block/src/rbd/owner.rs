//! The client that has the exclusive lock of an image, and what it tells others about itself.
//!
//! Ceph knows the address of the client and whether it watches the image. The holder adds its
//! process, program and host, and since when, as a value of the image's metadata; the value has the
//! address as well, so one that a dead holder has left is not taken for the present one's.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::errors::failed;
use super::image::{Code, Image, Pool};
use super::name::Name;
use crate::{Ceph, Error, Holder};

/// Time after which a request of a look at an image fails: whoever only looks can look again.
const LOOK: Duration = Duration::from_secs(10);
/// Key of the metadata with the holder.
const KEY: &CStr = c"vfscale.holder";

/// The client that has the exclusive lock of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its address, as `rbd lock ls` shows it.
    pub client: Arc<str>,
    /// Its process, if it is one of vfscale.
    pub holder: Option<Holder>,
    /// Whether it watches the image: a client that does not has died, or is cut off.
    pub is_watching: bool,
}

/// Returns the owner of an image's lock.
pub(super) fn of(image: &Image) -> Result<Option<Owner>, Code> {
    let Some(client) = image.lock_owner()? else { return Ok(None) };
    let is_watching = image.watchers()?.iter().any(|watcher| is_same(watcher, &client));
    let holder = image.value(KEY)?.and_then(|value| decode(&value, &client));
    Ok(Some(Owner { client: client.into(), holder, is_watching }))
}

/// Returns whether two addresses are of the same client: one may have the protocol before it.
fn is_same(a: &str, b: &str) -> bool {
    let bare = |address: &str| {
        let bare = ["v1:", "v2:", "any:"].iter().find_map(|prefix| address.strip_prefix(prefix));
        bare.unwrap_or(address).to_owned()
    };
    bare(a) == bare(b)
}

/// Tells other clients about this one, which has the lock. Returns its address.
pub(super) fn publish(image: &Image) -> Result<Arc<str>, Code> {
    let client = image.lock_owner()?.unwrap_or_default();
    image.set_value(KEY, Some(&encode(&Holder::this_process(), &client)))?;
    Ok(client.into())
}

/// Releases the lock of this client. Whatever fails, the lock ends when the client does.
pub(super) fn leave(image: &Image) {
    let _ = image.set_value(KEY, None);
    let _ = image.unlock();
}

fn encode(holder: &Holder, client: &str) -> String {
    let since = holder.since.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let line = |text: &str| text.replace('\n', " ");
    format!("{client}\n{}\n{since}\n{}\n{}", holder.pid, line(&holder.program), line(&holder.host))
}

/// Returns the holder, if it is the client that has published the value.
fn decode(value: &str, client: &str) -> Option<Holder> {
    let mut lines = value.lines();
    lines.next().filter(|published| *published == client)?;
    let pid = lines.next()?.parse().ok()?;
    let since = Duration::from_secs(lines.next()?.parse().ok()?);
    let (program, host) = (lines.next()?.to_owned(), lines.next()?.to_owned());
    Some(Holder { pid, program, host, since: UNIX_EPOCH.checked_add(since)? })
}

/// A look at an image from outside, which takes no lock and is no watcher of it.
pub struct Watch {
    name: Name,
    pool: Arc<Pool>,
}

impl Watch {
    /// Connects to the cluster of an image, to see who has its lock. Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`] and [`Error::Io`].
    pub fn open(name: &Name, ceph: &Ceph) -> Result<Self, Error> {
        Ok(Self { name: name.clone(), pool: Pool::open(name, ceph, Some(LOOK))? })
    }

    /// Returns the owner of the lock. Blocks for the I/O, for ten seconds or so if the cluster does
    /// not answer.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn owner(&self) -> Result<Option<Owner>, Error> {
        let image = Image::open(&self.pool, &self.name, true);
        image.and_then(|image| of(&image)).map_err(|code| failed(&self.name, code))
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
