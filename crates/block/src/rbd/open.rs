//! Opening, creating and removing images.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use vfscale_sync::Mutex;

use super::errors::{error, failed, refused};
use super::image::{Code, EXCLUSIVE_LOCK, Image, Pool};
use super::name::Name;
use super::owner::{self, Owner};
use super::proof::Proof;
use super::{BLOCK_BYTES, RbdDevice};
use crate::{DeviceOptions, Error, Operation};

impl RbdDevice {
    /// Opens an image, and for writing takes its exclusive lock. Bytes after its last whole block
    /// are ignored.
    ///
    /// Blocks for the I/O, for at most half a minute if no monitor answers.
    ///
    /// # Errors
    /// * [`Error::Locked`] if another client has the lock and is alive.
    /// * [`Error::ReadOnly`] for a snapshot, unless it is only read.
    /// * [`Error::Unreachable`] if no monitor answers.
    /// * [`Error::Refused`] if the libraries, the configuration, the user, the pool or a feature of
    ///   the image is missing: the text names the remedy.
    /// * [`Error::Io`].
    pub fn open(name: &Name, options: &DeviceOptions) -> Result<Self, Error> {
        let device: Arc<str> = name.to_string().into();
        if name.snapshot().is_some() && !options.read_only {
            return Err(Error::ReadOnly { device, operation: Operation::Open });
        }
        let pool = connect(name, options)?;
        let image = Image::open(&pool, name, options.read_only);
        let image = image.map_err(|code| failed(name, code))?;
        if options.read_only {
            if name.snapshot().is_none() {
                unused(&device, &image)?;
            }
        } else {
            check_features(name, &image)?;
            lock(&device, &image, options.take_over)?;
        }
        let opened = Self::finish(device, image, options.read_only)?;
        pool.wait_for_ever();
        Ok(opened)
    }

    fn finish(name: Arc<str>, image: Image, read_only: bool) -> Result<Self, Error> {
        let size = image.size().map_err(|code| error(&name, code))?;
        let client = if read_only {
            None
        } else {
            Some(owner::publish(&image).map_err(|code| error(&name, code))?)
        };
        Ok(Self {
            name,
            image: Mutex::new(Some(Arc::new(image))),
            read_only,
            size: AtomicU64::new(size - size % u64::from(BLOCK_BYTES)),
            growing: Mutex::new(()),
            released: AtomicBool::new(false),
            client,
            lost: OnceLock::new(),
            proof: Proof::default(),
        })
    }

    /// Creates an image of `size` bytes, all zero, with the features that this device uses
    /// (exclusive lock and object map), and opens it.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Misaligned`] for a size that is not in whole blocks; [`Error::ReadOnly`] with the
    /// option [`read_only`](DeviceOptions::read_only), or for a snapshot; [`Error::Io`], also if
    /// the name exists; [`Error::Refused`].
    pub fn create(name: &Name, size: u64, options: &DeviceOptions) -> Result<Self, Error> {
        let (device, operation): (Arc<str>, _) = (name.to_string().into(), Operation::Open);
        if options.read_only || name.snapshot().is_some() {
            return Err(Error::ReadOnly { device, operation });
        }
        if !size.is_multiple_of(BLOCK_BYTES.into()) {
            let (offset, length, block_size) = (0, size, BLOCK_BYTES);
            return Err(Error::Misaligned { device, operation, offset, length, block_size });
        }
        let pool = connect(name, options)?;
        pool.create(name.image(), size).map_err(|code| error(&device, code))?;
        drop(pool);
        Self::open(name, options)
    }
}

/// Connects to the cluster of an image, and opens its pool.
fn connect(name: &Name, options: &DeviceOptions) -> Result<Arc<Pool>, Error> {
    Pool::open(name, &options.ceph, options.patience)
}

/// Takes the exclusive lock; first breaks that of a client that has gone, or of any client with
/// the option.
fn lock(name: &Arc<str>, image: &Image, take_over: bool) -> Result<(), Error> {
    let owner = owner::of(image).map_err(|code| error(name, code))?;
    if let Some(owner) = owner {
        if owner.is_watching && !take_over {
            return Err(locked(name, owner));
        }
        match image.break_lock(&owner.client) {
            // The owner has released the lock meanwhile, or another client has taken it.
            Err(code) if matches!(code.code(), libc::ENOENT | libc::EBUSY) => {}
            broken => broken.map_err(|code| cannot_break(name, code))?,
        }
    }
    match image.lock() {
        Ok(()) => Ok(()),
        // Another client was faster, and keeps the lock.
        Err(code) if matches!(code.code(), libc::EROFS | libc::EBUSY | libc::EAGAIN) => {
            let owner = owner::of(image).map_err(|code| error(name, code))?;
            Err(match owner {
                Some(owner) => locked(name, owner),
                None => {
                    Error::Locked { device: name.clone(), holder: None, way: None, client: None }
                }
            })
        }
        Err(code) => Err(error(name, code)),
    }
}

/// Removes an image that nobody has open. Blocks for the I/O.
///
/// # Errors
/// [`Error::Io`], [`Error::Refused`].
pub(crate) fn remove(name: &Name, options: &DeviceOptions) -> Result<(), Error> {
    let pool = connect(name, options)?;
    pool.remove(name.image()).map_err(|code| failed(name, code))
}

/// Returns whether an image, or a snapshot of it, exists. Blocks for the I/O.
///
/// # Errors
/// [`Error::Io`], [`Error::Refused`].
pub(crate) fn exists(name: &Name, options: &DeviceOptions) -> Result<bool, Error> {
    let pool = connect(name, options)?;
    match Image::open(&pool, name, true) {
        Ok(_) => Ok(true),
        Err(code) if code.code() == libc::ENOENT => Ok(false),
        Err(code) => Err(failed(name, code)),
    }
}

/// Fails if a client that is alive has the image's lock. Takes no lock. Blocks for the I/O.
///
/// # Errors
/// [`Error::Locked`], [`Error::Io`], [`Error::Refused`].
pub(crate) fn check_free(name: &Name, options: &DeviceOptions) -> Result<(), Error> {
    let pool = connect(name, options)?;
    let image = Image::open(&pool, name, true).map_err(|code| failed(name, code))?;
    unused(&name.to_string().into(), &image)
}

/// Fails if a client that is alive has the lock of an image.
fn unused(name: &Arc<str>, image: &Image) -> Result<(), Error> {
    match owner::of(image).map_err(|code| error(name, code))? {
        Some(owner) if owner.is_watching => Err(locked(name, owner)),
        _ => Ok(()),
    }
}

fn locked(name: &Arc<str>, owner: Owner) -> Error {
    Error::Locked {
        device: name.clone(),
        holder: owner.holder.map(Box::new),
        way: None,
        client: Some(owner.client),
    }
}

/// Checks that an image can be locked, that its configuration does not switch fencing off, and that
/// no block is in two objects.
fn check_features(name: &Name, image: &Image) -> Result<(), Error> {
    let refused = |why: String| refused(name, why);
    let device: Arc<str> = name.to_string().into();
    let io = |code| error(&device, code);
    if image.features().map_err(io)? & EXCLUSIVE_LOCK == 0 {
        let spec = name.to_string();
        let spec = spec.strip_prefix("rbd:").unwrap_or_default();
        return Err(refused(format!(
            "the image can't be locked: `rbd feature enable {spec} exclusive-lock` permits that"
        )));
    }
    for key in [c"conf_rbd_blocklist_on_break_lock", c"conf_rbd_blacklist_on_break_lock"] {
        let value = image.value(key).map_err(io)?;
        if value.is_some_and(|value| value != "true") {
            return Err(refused(format!(
                "its configuration ({}) keeps it from fencing off other clients",
                key.to_string_lossy()
            )));
        }
    }
    if image.stripe_unit().map_err(io)? % u64::from(BLOCK_BYTES) != 0 {
        return Err(refused("the stripes of the image are not in whole blocks".into()));
    }
    Ok(())
}

fn cannot_break(name: &Arc<str>, code: Code) -> Error {
    if code.code() != libc::EPERM && code.code() != libc::EACCES {
        return error(name, code);
    }
    let why = "the Ceph user may not fence off other clients: it needs the capabilities \
               `mon 'profile rbd'`"
        .into();
    Error::Refused { device: name.clone(), why }
}
