//! Volumes whose contents are replaced while they are in use.
//!
//! # How
//!
//! A [`LiveVolume`] is told by its pool that the branch is to have other contents: a rollback, an
//! adoption, a merge. Its [`Follower`] holds up all calls. Everything that calls have returned for
//! is written to the branch, and its gates stay shut while the pool gives the branch its new
//! contents, by one commit. Then the file system until then ends, which writes nothing more, and a
//! new one is opened in the branch. The follower goes on with its tree, and is told which inodes
//! differ.
//!
//! If the pool refuses, the file system until then goes on, and nobody has noticed but by the wait.
//! A crash finds the former contents or the new ones.
//!
//! # Locks
//!
//! The volume is locked during a switch and while somebody looks at it; no call in its tree takes
//! that lock. `follower` is a leaf.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use vfscale_diskfs::{DiskFs, Fault};
use vfscale_sync::fork::Owned;
use vfscale_vfs::types::MountFlags;
use vfscale_vfs::{At, Errno, Vfs};

use super::{CloseError, OpenDriver, Volume, mount};
use crate::diff::Differing;
use crate::error::pool::PoolError;
use crate::place::current::{Act, Switchable};
use crate::place::places::{Devices, OpenPlace};

/// The new contents of a volume.
pub struct Followed {
    /// The tree from now on.
    pub vfs: Vfs,
    /// The inodes that are others in it.
    pub differing: Differing,
}

/// The reason why a user can't go on with other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CantFollow {
    /// Linux's number for it.
    pub errno: Errno,
    /// The reason, and the remedy.
    pub why: &'static str,
}

/// The user of a [`LiveVolume`].
pub trait Follower: Send + Sync {
    /// Holds up all calls in the tree, waits for those under way, and calls `switch` once. If that
    /// returns other contents, goes on with them; otherwise with the tree until now. `switch` may
    /// take long, and makes no call in the tree.
    ///
    /// # Errors
    /// [`CantFollow`]; then `switch` was not called.
    fn follow(&self, switch: &mut dyn FnMut() -> Option<Followed>) -> Result<(), CantFollow>;
}

/// An open volume that goes on when its branch gets other contents: by
/// [`rollback_to`](crate::Pool::rollback_to), [`rollback`](crate::Pool::rollback),
/// [`adopt`](crate::Pool::adopt) or [`merge`](crate::Pool::merge), which refuse a branch that is
/// open otherwise. Clones are the same volume. `Send` and `Sync`.
///
/// Tasks and files of before belong to the former tree. They can't change anything any more: such
/// calls fail with `EROFS` or `EIO`, and reads with `EIO` unless the bytes are in memory. A write
/// that runs during the switch is part of the former contents if it returns before that, and may be
/// lost otherwise, as by a power cut. A [`Follower`] does better.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.vfs");
/// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
/// let pool = vfscale::pool(&path).convert(true).open()?;
/// let live = vfscale::volume::LiveVolume::new(pool.open("main")?);
/// let before = pool.checkpoint("main", "before")?;
/// live.with(|main| main.task().write("/new", "contents")).unwrap()?;
///
/// let kept = pool.rollback_to("main", &before)?;
/// assert_eq!(kept.as_deref(), Some("main@2"));
/// assert!(live.with(|main| main.task().metadata("/new").is_err()).unwrap());
/// live.close()?;
/// # pool.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LiveVolume(Arc<Live>);

struct Live {
    /// `None` once it is closed.
    volume: Mutex<Option<Volume>>,
    follower: Mutex<Option<Weak<dyn Follower>>>,
}

impl LiveVolume {
    /// Takes over an open volume, which need not be one of a pool yet.
    pub fn new(volume: Volume) -> Self {
        let current = volume.present().current.clone();
        let live = Arc::new(Live { volume: Mutex::new(Some(volume)), follower: Mutex::default() });
        let switch: Weak<dyn Switchable> = Arc::<Live>::downgrade(&live);
        current.set_switch(switch);
        Self(live)
    }

    /// Calls `look` with the volume as it is now; returns `None` if it is closed.
    ///
    /// Waits for a switch. `look` must not make one.
    pub fn with<T>(&self, look: impl FnOnce(&Volume) -> T) -> Option<T> {
        lock(&self.0.volume).as_ref().map(look)
    }

    /// Sets who uses the tree, as long as that lives.
    pub fn follow(&self, follower: Weak<dyn Follower>) {
        *lock(&self.0.follower) = Some(follower);
    }

    /// Closes the volume as [`Volume::close`] does. Does nothing if it is closed.
    ///
    /// # Errors
    /// Errors of [`Volume::close`].
    pub fn close(&self) -> Result<(), CloseError> {
        let volume = lock(&self.0.volume).take();
        volume.map_or(Ok(()), Volume::close)
    }
}

impl fmt::Debug for LiveVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveVolume").finish_non_exhaustive()
    }
}

impl Switchable for Live {
    fn switch(&self, act: Act<'_>) -> Result<(), PoolError> {
        let mut volume = lock(&self.volume);
        let refused = |name: &str, errno, why: &str| {
            Err(PoolError::Follow { name: name.to_owned(), why: why.to_owned(), errno })
        };
        let Some(volume) = volume.as_mut() else {
            return refused("the branch", Errno::BUSY, "it is being closed; try again");
        };
        let follower = lock(&self.follower).as_ref().and_then(Weak::upgrade);
        let Some(follower) = follower else { return volume.switch(act).map(drop) };
        let mut switched = Ok(());
        let followed = follower.follow(&mut || match volume.switch(act) {
            Ok(followed) => Some(followed),
            Err(error) => {
                switched = Err(error);
                None
            }
        });
        match followed {
            Ok(()) => switched,
            Err(CantFollow { errno, why }) => refused(&volume.name, errno, why),
        }
    }
}

impl Volume {
    /// Has `act` give the branch other contents, and goes on with them.
    ///
    /// # Errors
    /// Errors of [`Switchable::switch`].
    fn switch(&mut self, act: Act<'_>) -> Result<Followed, PoolError> {
        let fs = self.held.fs.clone();
        let branch = self.held.devices.as_ref().and_then(Devices::branch);
        let branch = branch.and_then(|open| Some((open.pool()?, open)));
        let Some((pool, open)) = branch else {
            let why = "it has no branches".into();
            return Err(PoolError::Follow { name: self.name.clone(), why, errno: Errno::INVAL });
        };
        let cut = fs.cut(|_shut| {
            let before = pool.look_held(open.name())?;
            let switched = act(open.branch())?;
            // Nothing more is committed, whoever waits for the gates.
            fs.volume().abandon();
            Ok::<_, PoolError>((before, switched))
        });
        let failed =
            |fault: Fault| PoolError::Sync { name: self.name.clone(), errno: fault.errno() };
        let (before, switched) = cut.map_err(failed)??;
        fs.abandon();
        let name = open.name().to_owned();
        self.held.is_over = true;
        if let Some(former) = self.held.devices.take() {
            former.release();
        }
        let after = pool.looked(switched.state);
        let open = pool.opened_branch(switched.branch, &name);
        let devices = Devices { place: OpenPlace::Branch(open), log: None };
        thread::scope(|scope| {
            // Reads the logs of both meanwhile.
            let builder = thread::Builder::new().name("vfscale-compare".into());
            let sides = builder.spawn_scoped(scope, || {
                Ok::<_, PoolError>((before.open(&name)?, after.open(&name)?))
            });
            let vfs = self.go_on(devices).map_err(|(errno, why)| PoolError::Switch {
                name: self.name.clone(),
                why,
                errno,
            })?;
            let sides = sides.map_err(|error| error.to_string()).and_then(|sides| {
                let opened = sides.join().map_err(|_| "its thread has panicked".to_owned())?;
                opened.map_err(|error| error.to_string())
            });
            let differing = match sides {
                Ok((before, after)) => Differing::of(before.side(), after.side()),
                Err(why) => {
                    tracing::warn!("all open files count as others: {why}");
                    Differing::all()
                }
            };
            Ok(Followed { vfs, differing })
        })
    }

    /// Opens the file system that there is now, with the options of the former one.
    fn go_on(&mut self, devices: Devices) -> Result<Vfs, (Errno, String)> {
        let (settings, limits) = &*self.options;
        let fs = DiskFs::open(devices.place.device(), settings.clone())
            .map_err(|fault| (fault.errno(), fault.to_string()))?;
        let failed = |errno: Errno| {
            fs.abandon();
            (errno, errno.to_string())
        };
        let access_times = access_times(&self.vfs).map_err(|error| failed(error.into()))?;
        let vfs = mount(&fs, settings.journal.scaling, *limits, access_times).map_err(failed)?;
        self.present.enter(&fs, &devices);
        self.held = Owned::new(OpenDriver::new(fs, devices));
        self.vfs = vfs.clone();
        Ok(vfs)
    }
}

/// Returns the rule by which the root of a tree updates access times.
fn access_times(of: &Vfs) -> vfscale_vfs::Result<MountFlags> {
    Ok(of.task().posix().statfs(At::Cwd, "/")?.flags & MountFlags::ACCESS_TIMES)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
