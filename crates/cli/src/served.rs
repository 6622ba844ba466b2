//! The mounts that this process serves: one, or several of branches of one image.
//!
//! The process that has an image open is the only one that can write to it. So another `vfscale
//! mount` of the same image has this one serve its branch: it [asks](listen), makes the mount
//! itself, with its own rights and in its own namespace, and passes the open `/dev/fuse` on.
//! `vfscale run` does so too; runs of one branch share a mount, which the last of them ends.
//!
//! # Locks
//!
//! The lock of the state is a leaf, held for a moment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfscale::pool::PoolMaker;
use vfscale::{Escaped, Pool};
use vfscale_command::say;
use vfscale_fuse::control::Connection;
use vfscale_fuse::{Mounted, Unmounter};

use crate::error::Failure;
use crate::source::Syncer;

pub(crate) mod listen;
mod views;

/// Time between two looks whether somebody still waits.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for which a run waits until its branch, which is being mounted or unmounted, has settled.
const SETTLING: Duration = Duration::from_secs(60);

/// The mounts of this process.
pub(crate) struct Served {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The branches of the image, until this process ends.
    pool: Option<Pool>,
    /// Makes the first branch of the image.
    maker: Option<PoolMaker>,
    /// Whether no further mount is taken.
    is_ending: bool,
    places: Vec<Place>,
    /// The mounts whose volumes could not be closed, by device number, and why.
    unclosed: Vec<((u32, u32), String)>,
    /// Commands that have yet to be told that their mount is closed.
    untold: usize,
    /// Connections of those that wait for the end of this process.
    retained: Vec<Connection>,
    /// Number of the next place.
    next: u64,
}

/// The place of a mount, from the request to the end of its volume.
struct Place {
    number: u64,
    branch: String,
    read_only: bool,
    /// The runs that use it, and the options that it has; `None` of `vfscale mount`.
    runs: Option<Runs>,
    device: Option<(u32, u32)>,
    mount: Option<Mount>,
}

struct Runs {
    users: usize,
    options: String,
}

/// A mount that is served.
struct Mount {
    dir: PathBuf,
    unmounter: Unmounter,
    syncer: Syncer,
    /// Whether this process can unmount it.
    is_own: bool,
}

/// The right to serve a mount. The place is free when this is dropped.
pub(crate) struct Ticket {
    served: Arc<Served>,
    number: u64,
}

/// The mount of a run.
pub(crate) enum Entry {
    /// The branch has none: the run makes it.
    New(Ticket),
    /// Another run has made it.
    Shared(Shared),
}

/// A mount that other runs use as well.
pub(crate) struct Shared {
    pub(crate) number: u64,
    pub(crate) device: (u32, u32),
    pub(crate) dir: PathBuf,
}

/// The reason why a mount is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This process ends.
    Ending,
    /// The branch is served at another directory, if its mount is made yet.
    Mounted(Option<PathBuf>),
}

/// A mount that was ended though it was in use.
pub(crate) struct Forced {
    pub(crate) dir: PathBuf,
    /// Whether this process could unmount it.
    pub(crate) is_own: bool,
}

impl Served {
    /// Begins without mounts. `pool` has the branches that further mounts may be of, or `maker`
    /// makes them.
    pub(crate) fn new(pool: Option<Pool>, maker: Option<PoolMaker>) -> Arc<Served> {
        let (places, unclosed, retained) = (Vec::new(), Vec::new(), Vec::new());
        let (is_ending, untold, next) = (false, 0, 0);
        let state = State { pool, maker, is_ending, places, unclosed, untold, retained, next };
        Arc::new(Served { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of the first mount; of runs with `options`, unless they are `None`.
    pub(crate) fn first(
        self: &Arc<Self>,
        branch: &str,
        read_only: bool,
        options: Option<String>,
    ) -> Ticket {
        let runs = options.map(|options| Runs { users: 1, options });
        self.add(&mut self.lock(), branch, read_only, runs)
    }

    /// Takes a place for a mount. A branch that is written has one.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        branch: &str,
        read_only: bool,
    ) -> Result<Ticket, Refusal> {
        let mut state = self.lock();
        if state.is_ending {
            return Err(Refusal::Ending);
        }
        if let Some(place) = state.places.iter().find(|place| place.clashes(branch, read_only)) {
            return Err(Refusal::Mounted(place.mount.as_ref().map(|mount| mount.dir.clone())));
        }
        Ok(self.add(&mut state, branch, read_only, None))
    }

    fn add(
        self: &Arc<Self>,
        state: &mut State,
        branch: &str,
        read_only: bool,
        runs: Option<Runs>,
    ) -> Ticket {
        let (number, branch) = (state.next, branch.to_owned());
        state.next += 1;
        state.places.push(Place { number, branch, read_only, runs, device: None, mount: None });
        Ticket { served: self.clone(), number }
    }

    /// Takes a place for the mount of a run, or joins the runs of that branch with these options.
    /// Waits for a mount of it that is beginning or ending.
    pub(crate) fn enter(
        self: &Arc<Self>,
        branch: &str,
        read_only: bool,
        options: String,
    ) -> Result<Entry, Refusal> {
        let is_settling = |state: &mut State| {
            let clash = state.places.iter().find(|place| place.clashes(branch, read_only));
            !state.is_ending && clash.is_some_and(Place::is_settling)
        };
        let waited = self.changed.wait_timeout_while(self.lock(), SETTLING, is_settling);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_ending {
            return Err(Refusal::Ending);
        }
        let Some(place) = state.places.iter_mut().find(|it| it.clashes(branch, read_only)) else {
            let runs = Some(Runs { users: 1, options });
            return Ok(Entry::New(self.add(&mut state, branch, read_only, runs)));
        };
        match (&mut place.runs, &place.mount, place.device) {
            (Some(runs), Some(mount), Some(device))
                if runs.users > 0 && runs.options == options =>
            {
                runs.users += 1;
                Ok(Entry::Shared(Shared { number: place.number, device, dir: mount.dir.clone() }))
            }
            (_, mount, _) => Err(Refusal::Mounted(mount.as_ref().map(|mount| mount.dir.clone()))),
        }
    }

    /// Notes that a run does not use its mount any more. Returns whether it was the last one, and
    /// the mount is to be ended.
    pub(crate) fn leave(&self, number: u64) -> bool {
        let mut state = self.lock();
        let place = state.places.iter_mut().find(|place| place.number == number);
        place.and_then(|place| place.runs.as_mut()).is_none_or(|runs| {
            runs.users -= 1;
            runs.users == 0
        })
    }

    /// Ends the mount of runs that were killed, by force if it is in use after `patience`.
    pub(crate) fn unmount(&self, number: u64, patience: Duration) {
        let state = self.lock();
        let place = state.places.iter().find(|place| place.number == number);
        let mount = place.and_then(|place| place.mount.as_ref());
        let Some((unmounter, dir)) = mount.map(|it| (it.unmounter.clone(), it.dir.clone())) else {
            return;
        };
        drop(state);
        if let Err(error) = unmounter.unmount_within(patience) {
            say(format_args!("vfscale: cannot unmount {}", named(&dir, &error)));
        }
    }

    /// Returns the branch, device number and directory of each mount.
    pub(crate) fn places(&self) -> Vec<(String, (u32, u32), PathBuf)> {
        let state = self.lock();
        let mounted =
            |it: &Place| Some((it.branch.clone(), it.device?, it.mount.as_ref()?.dir.clone()));
        state.places.iter().filter_map(mounted).collect()
    }

    /// Returns whether the process goes on for others; it takes no mount from then on if not.
    pub(crate) fn goes_on(&self) -> bool {
        let mut state = self.lock();
        state.is_ending |= !state.is_busy();
        !state.is_ending
    }

    /// Returns the pool; `None` if there is none yet, or this process ends. It is retained from
    /// then on, though the volume that has become a pool may be closed.
    pub(crate) fn pool(&self) -> Option<Pool> {
        let mut state = self.lock();
        if state.pool.is_none() && !state.is_ending {
            state.pool = state.maker.as_ref().and_then(PoolMaker::pool);
        }
        state.pool.clone()
    }

    /// Returns the handle that makes the first branch of the image.
    pub(crate) fn maker(&self) -> Option<PoolMaker> {
        let state = self.lock();
        state.maker.clone().filter(|_| !state.is_ending)
    }

    /// Returns whether no further mount is taken.
    pub(crate) fn is_ending(&self) -> bool {
        self.lock().is_ending
    }

    /// Returns the directories of all mounts, as text.
    pub(crate) fn dirs(&self) -> String {
        let state = self.lock();
        let mounts = state.places.iter().filter_map(|place| place.mount.as_ref());
        let dirs: Vec<String> = mounts.map(|mount| Escaped::new(&mount.dir).to_string()).collect();
        dirs.join(", ")
    }

    /// Waits until the mount with a device number is ended, and its volume closed, or until nobody
    /// waits any more. Returns whether other mounts are left, or why the volume was not closed
    /// properly. If none is left, no further mount is taken.
    pub(crate) fn wait_for(
        &self,
        device: (u32, u32),
        is_awaited: impl Fn() -> bool,
    ) -> Result<bool, String> {
        let is_there = |state: &mut State| state.places.iter().any(|p| p.device == Some(device));
        let mut state = self.lock();
        while is_there(&mut state) && is_awaited() {
            let waited = self.changed.wait_timeout_while(state, PAUSE, is_there);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.unclosed.iter().rev().find(|(number, _)| *number == device) {
            Some((_, why)) => Err(why.clone()),
            None => {
                state.is_ending |= state.places.is_empty();
                Ok(!state.places.is_empty())
            }
        }
    }

    /// Retains a connection until this process has ended, which closes it.
    pub(crate) fn retain(&self, connection: Connection) {
        self.lock().retained.push(connection);
    }

    /// Keeps this process from ending before the result is dropped: a command has to be told of the
    /// end of a mount.
    pub(crate) fn untold(self: &Arc<Self>) -> Untold {
        self.lock().untold += 1;
        Untold(self.clone())
    }

    /// Waits until all mounts are ended, their volumes closed and their commands told so, and takes
    /// none from then on.
    pub(crate) fn wait_for_end(&self) {
        let state = self.changed.wait_while(self.lock(), |state| state.is_busy());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.is_ending = true;
        let pool = state.pool.take().filter(|pool| !pool.is_read_only());
        drop(state);
        if let Some(Err(error)) = pool.map(Pool::close) {
            tracing::info!("the next opening of the image recovers its branches: {error}");
        }
    }

    /// Unmounts all, by force what is still in use after `patience`, and returns those. Takes no
    /// mount from then on, unless it fails.
    pub(crate) fn unmount_all(&self, patience: Duration) -> io::Result<Vec<Forced>> {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.is_ending = true;
        let mounts = state.places.iter().filter_map(|place| place.mount.as_ref());
        let mounts: Vec<_> =
            mounts.map(|it| (it.unmounter.clone(), it.dir.clone(), it.is_own)).collect();
        drop(state);
        let mut forced = Vec::new();
        let mut failed = None;
        for (unmounter, dir, is_own) in mounts {
            match unmounter.unmount_within(end.saturating_duration_since(Instant::now())) {
                Ok(true) => forced.push(Forced { dir, is_own }),
                Ok(false) => {}
                Err(error) => failed = Some(io::Error::new(error.kind(), named(&dir, &error))),
            }
        }
        match failed {
            None => Ok(forced),
            Some(error) => {
                self.lock().is_ending = false;
                Err(error)
            }
        }
    }

    /// Ends this process though mounts are in use, when it has made them durable and closed those
    /// that are ended. Returns if there is nothing left but to close volumes.
    pub(crate) fn exit_with_users(&self) {
        let mut state = self.lock();
        let is_served = |place: &Place| place.mount.is_some();
        if !state.places.iter().any(is_served) {
            return;
        }
        let closing = state.places.iter().filter(|place| !is_served(place));
        let closing: Vec<u64> = closing.map(|place| place.number).collect();
        let syncers = state.places.iter_mut().filter_map(|place| place.mount.take());
        let syncers: Vec<Syncer> = syncers.map(|mount| mount.syncer).collect();
        drop(state);
        let failed = syncers.iter().filter(|syncer| !syncer.sync()).count();
        let is_closing =
            |state: &mut State| state.places.iter().any(|p| closing.contains(&p.number));
        drop(self.changed.wait_while(self.lock(), is_closing));
        // Processes that still use a detached mount lose it when this one exits.
        std::process::exit(i32::from(failed > 0));
    }
}

impl State {
    /// Returns whether there are mounts, or commands to be told of the end of one.
    fn is_busy(&self) -> bool {
        !self.places.is_empty() || self.untold > 0
    }
}

impl Place {
    /// Returns whether the branch can't be mounted as well.
    fn clashes(&self, branch: &str, read_only: bool) -> bool {
        self.branch == branch && !(self.read_only && read_only)
    }

    /// Returns whether it is about to get its mount, or to go.
    fn is_settling(&self) -> bool {
        self.mount.is_none() || self.runs.as_ref().is_some_and(|runs| runs.users == 0)
    }
}

/// Returns the namespaces of users and of processes of this process, by which the server knows who
/// makes a request; empty if they can't be read.
pub(crate) fn namespaces() -> OsString {
    let of = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    let (users, processes) = (of("user").into_os_string(), of("pid").into_os_string());
    [users, processes].join(OsStr::new(" "))
}

/// Returns a device number as text.
pub(crate) fn device_text((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// Parses a device number.
pub(crate) fn device_of(text: &OsStr) -> Option<(u32, u32)> {
    let (major, minor) = text.to_str()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Starts a thread.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(|e| Failure::System("cannot start a thread", e))
}

/// Ends all mounts of this process, at a signal, and the process if they are in use after
/// `patience`.
pub(crate) fn end_all(served: &Served, patience: Duration) {
    match served.unmount_all(patience) {
        Ok(forced) if forced.is_empty() => {}
        Ok(forced) => {
            for Forced { dir, is_own } in forced {
                let how = match is_own {
                    true => "was in use; unmounted under its users",
                    false => "has no server any more; whoever mounted it unmounts it",
                };
                say(format_args!("vfscale: {} {how}", dir.display()));
            }
            std::thread::sleep(patience);
            // Unless the volumes are just being closed, which may take long.
            served.exit_with_users();
        }
        Err(e) => say(format_args!("vfscale: cannot unmount {e}")),
    }
}

fn named(dir: &std::path::Path, error: &io::Error) -> String {
    format!("{}: {error}", Escaped::new(dir))
}

impl Ticket {
    /// Notes that the mount is served. Returns whether it may be: it has to be unmounted if this
    /// process has begun to end.
    pub(crate) fn start(&self, mounted: &Mounted, syncer: Syncer) -> bool {
        let (dir, unmounter) = (mounted.dir().to_owned(), mounted.unmounter());
        let device = mounted.device().ok();
        let mut state = self.served.lock();
        let is_ending = state.is_ending;
        if let Some(place) = state.places.iter_mut().find(|place| place.number == self.number) {
            place.device = device;
            place.mount = Some(Mount { dir, unmounter, syncer, is_own: mounted.is_own() });
        }
        self.served.changed.notify_all();
        !is_ending
    }

    /// Returns the number of the place.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the mount is ended, and its volume is being closed.
    pub(crate) fn close(&self) {
        let mut state = self.served.lock();
        if let Some(place) = state.places.iter_mut().find(|place| place.number == self.number) {
            place.mount = None;
        }
    }
}

impl Ticket {
    /// Frees the place, whose volume is closed. This process does not end before the result is
    /// dropped, so that the command can be told.
    pub(crate) fn end(self) -> Untold {
        self.served.untold()
    }

    /// Notes how the volume of the mount was closed, for those who wait for it.
    pub(crate) fn closed<E: ToString>(&self, closed: &Result<(), E>) {
        let mut state = self.served.lock();
        let place = state.places.iter().find(|place| place.number == self.number);
        if let (Some(device), Err(why)) = (place.and_then(|place| place.device), closed) {
            state.unclosed.push((device, why.to_string()));
        }
    }
}

/// A command that has yet to be told that its mount is closed.
pub(crate) struct Untold(Arc<Served>);

impl Drop for Untold {
    fn drop(&mut self) {
        self.0.lock().untold -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.served.lock().places.retain(|place| place.number != self.number);
        self.served.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
