//! Views that are in use, and what runs have changed above them.
//!
//! Beside an image lies a directory, `IMAGE.native`. Each use of a view has a directory in it, with
//! a file that says which branch it is of, which read-only branch keeps its blocks, the *lease*,
//! and which process has made it. The image tells nothing of this, and neither does the directory
//! of which view Linux has mounted: a file that is open can't get a lease of Linux for writing, so
//! that is asked, and true for all namespaces of mounts.
//!
//! # Locks
//!
//! Sessions are made and removed under the lock of the directory, which is taken before the image
//! is opened.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::{Value, json};
use vfscale::{BranchInfo, Escaped, Overlay};
use vfscale_command::views::is_open;
use vfscale_fuse::mount_table::lines;

use super::branches::Branches;
use crate::elsewhere::Turn;
use crate::error::Failure;

/// The beginning of the name of a lease.
const LEASE: &str = "native ";
/// The version of the writer of views, in the names of their files.
const WRITER: u32 = 1;
/// The extension of a view above which no overlay would show all as it is.
const MARKED: &str = "marked";
/// Views without a use that are kept.
const KEPT_MAX: usize = 4;

/// Where a run keeps what its command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the directory of the session.
    Beside,
    /// In another directory.
    In(PathBuf),
    /// In memory, bounded by this option of tmpfs: lost with the run.
    Memory(Option<String>),
}

/// The changes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upper {
    pub(crate) place: Place,
    /// Whether the overlay is one of a user, with the option `userxattr`.
    pub(crate) userxattr: bool,
}

/// The use of a view.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) dir: PathBuf,
    pub(crate) branch: String,
    pub(crate) lease: String,
    view: String,
    /// `None` of a view that is only read.
    pub(crate) upper: Option<Upper>,
    owner: Owner,
    /// The directory of changes that are in memory, which has no path outside of the namespace of
    /// their run.
    pub(crate) memory: Option<Arc<File>>,
    /// Processes that its command left behind read the view.
    pub(crate) has_users: bool,
}

/// A process, told from all others that this machine has had.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    boot: String,
    pid: u32,
    start: String,
}

impl Owner {
    fn of(pid: u32) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { boot, pid, start: Self::start_of(pid)? })
    }

    fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Returns when a process was started, in the ticks of the kernel.
    fn start_of(pid: u32) -> io::Result<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let behind = stat.rsplit(')').next().unwrap_or_default();
        Ok(behind.split_whitespace().nth(19).unwrap_or_default().to_owned())
    }

    fn is_alive(&self) -> bool {
        let is_boot = Self::own().is_ok_and(|own| own.boot == self.boot);
        is_boot && Self::start_of(self.pid).is_ok_and(|start| start == self.start)
    }
}

/// Returns the directory of the sessions of an image.
fn home(image: &Path) -> PathBuf {
    let mut name = image.file_name().unwrap_or_default().to_owned();
    name.push(".native");
    image.with_file_name(name)
}

/// Returns the name of the view of a state.
fn view_of(state: &[u8; 16]) -> String {
    format!("{:032x}-{WRITER}.erofs", u128::from_be_bytes(*state))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure::Write(path.clone(), error)
}

/// Makes a directory, unless it is there. Other users may pass it if it is `for_all`.
fn make(dir: &Path, for_all: bool) -> Result<(), Failure> {
    let mode = if for_all { 0o711 } else { 0o700 };
    DirBuilder::new().mode(mode).recursive(true).create(dir).map_err(failed(dir))
}

/// The right to make and remove sessions of an image, until it is dropped.
pub(crate) struct Lock {
    _dir: OwnedFd,
    /// The process that sessions are made for.
    owner: u32,
}

impl Lock {
    /// Makes sessions those of another process, which outlives this one.
    pub(crate) fn made_for(self, owner: u32) -> Self {
        Self { owner, ..self }
    }
}

/// Waits until no other process makes or removes sessions of an image, whose directory is made; not
/// longer than for an image that another process has open.
pub(crate) fn lock(image: &Path) -> Result<Lock, Failure> {
    let home = home(image);
    make(&home, true)?;
    if !is_own(&home) {
        let why = "it belongs to another user, or others may write it: remove it";
        return Err(Failure::Refused(home, why.into()));
    }
    make(&home.join("views"), false)?;
    let dir = OwnedFd::from(File::open(&home).map_err(failed(&home))?);
    let mut turn = Turn::new();
    loop {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _dir: dir, owner: std::process::id() }),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let busy = Failure::Busy(format!(
                    "{}: {} makes or removes a run or a view there; try again when it has ended",
                    Escaped::new(&home),
                    holder(&dir).map_or("another process".into(), |pid| format!("process {pid}"))
                ));
                if !turn.wait(&busy) {
                    return Err(busy);
                }
            }
            Err(error) => return Err(failed(&home)(error.into())),
        }
    }
}

/// Returns the process that has the lock of a directory, if Linux shows it to this one.
fn holder(dir: &OwnedFd) -> Option<u32> {
    let stat = rustix::fs::fstat(dir).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let held = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut own = held.filter(|it| it.get(1) == Some(&"FLOCK") && it.get(5) == Some(&&*file));
    own.find_map(|it| it[4].parse().ok().filter(|pid| *pid != 0))
}

impl Session {
    /// Begins the use of a view of a branch as it is now: makes the lease and, unless there is one
    /// already, the view. Other users may reach what is mounted in its directory if it is
    /// `for_all`.
    pub(crate) fn begin(
        branches: &Branches<'_>,
        (image, lock): (&Path, &Lock),
        branch: &str,
        upper: Option<Upper>,
        for_all: bool,
    ) -> Result<Self, Failure> {
        let home = home(image);
        let view = view_of(&branches.state(branch)?);
        let owner = Owner::of(lock.owner).map_err(failed(Path::new("/proc")))?;
        let new = home.join(format!(".new-{}", owner.pid));
        make(&new, for_all)?;
        let names = branches.list()?;
        let free = |number: &u32| {
            let lease = format!("{LEASE}{number}");
            names.iter().all(|it| it.name != lease) && !home.join(number.to_string()).exists()
        };
        let number = (0..).find(free).unwrap_or_default();
        let (dir, lease) = (home.join(number.to_string()), format!("{LEASE}{number}"));
        let (branch, memory, has_users) = (branch.to_owned(), None, false);
        let mut session = Self { dir, branch, lease, view, upper, owner, memory, has_users };
        session.write(&new)?;
        fs::rename(&new, &session.dir).map_err(failed(&session.dir))?;
        if let Err(failure) = session.make_view(branches) {
            // The next cleaning ends what can't be ended now.
            let _ = session.end(branches);
            return Err(failure);
        }
        Ok(session)
    }

    /// Makes the lease and, unless there is one already, the view: under another name if no overlay
    /// would show all of it, which a run needs. Only a mount may have that.
    fn make_view(&mut self, branches: &Branches<'_>) -> Result<(), Failure> {
        branches.fork(&self.branch, &self.lease)?;
        if view_of(&branches.state(&self.branch)?) != self.view {
            // The branch has changed meanwhile.
            self.view = view_of(&branches.state(&self.lease)?);
            self.write(&self.dir)?;
        }
        if self.view().exists() {
            return Ok(());
        }
        let marked = self.view().with_extension(MARKED);
        if self.upper.is_some() || !marked.exists() {
            let new = self.view().with_extension("new");
            match branches.view(&self.lease, &new)?.marked {
                None => return fs::rename(&new, self.view()).map_err(failed(&new)),
                Some(path) if self.upper.is_some() => {
                    fs::remove_file(&new).map_err(failed(&new))?;
                    return Err(Failure::Unfit(format!(
                        "{}: a character device 0:0, or attributes `*.overlay.*`, which overlays take \
                         for their own",
                        Escaped::new(&path)
                    )));
                }
                Some(_) => fs::rename(&new, &marked).map_err(failed(&new))?,
            }
        }
        self.view = marked.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.write(&self.dir)
    }

    /// Makes it one of this process, which has the lock: the process that has made it is gone.
    pub(crate) fn take(&mut self) -> Result<(), Failure> {
        self.owner = Owner::own().map_err(failed(Path::new("/proc")))?;
        self.write(&self.dir)
    }

    /// Writes down what it is, so that it outlives this process.
    fn write(&self, dir: &Path) -> Result<(), Failure> {
        let (upper, size) = match self.place() {
            None => (Value::Null, None),
            Some(Place::Beside) => (json!("beside"), None),
            Some(Place::In(dir)) => (json!(dir.to_str()), None),
            Some(Place::Memory(size)) => (json!("memory"), size.clone()),
        };
        let userxattr = self.upper.as_ref().is_some_and(|it| it.userxattr);
        let Self { branch, lease, view, owner: Owner { boot, pid, start }, .. } = self;
        let text = json!({ "branch": branch, "lease": lease, "view": view, "upper": upper,
            "size": size, "userxattr": userxattr, "boot": boot, "pid": pid, "start": start });
        let (path, new) = (dir.join("session"), dir.join("session.new"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(text.to_string().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()
        });
        written.map_err(failed(&path))
    }

    /// Reads a session; `None` if the directory has none.
    pub(crate) fn read(dir: PathBuf) -> Option<Self> {
        let text = fs::read(dir.join("session")).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let userxattr = value["userxattr"].as_bool() == Some(true);
        let upper = value["upper"].as_str().map(|place| match place {
            "beside" => Place::Beside,
            "memory" => Place::Memory(text("size")),
            dir => Place::In(dir.into()),
        });
        let upper = upper.map(|place| Upper { place, userxattr });
        let pid = value["pid"].as_u64()?.try_into().ok()?;
        let owner = Owner { boot: text("boot")?, pid, start: text("start")? };
        let (branch, lease, view) = (text("branch")?, text("lease")?, text("view")?);
        Some(Self { dir, branch, lease, view, upper, owner, memory: None, has_users: false })
    }

    /// Returns the file of the view.
    pub(crate) fn view(&self) -> PathBuf {
        self.dir.with_file_name("views").join(&self.view)
    }

    /// Makes the directories for the view, for the changes, and for the overlay.
    pub(crate) fn make_dirs(&self) -> Result<[PathBuf; 3], Failure> {
        let dirs = [self.dir.join("view"), self.upper_dir(), self.dir.join("root")];
        dirs.iter().try_for_each(|dir| make(dir, false))?;
        Ok(dirs)
    }

    fn place(&self) -> Option<&Place> {
        self.upper.as_ref().map(|it| &it.place)
    }

    /// Returns whether its changes are lost with its process.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.place(), Some(Place::Memory(_)))
    }

    /// Returns the directory with the upper layer, and what else the overlay needs.
    pub(crate) fn upper_dir(&self) -> PathBuf {
        match (self.place(), &self.memory) {
            (Some(Place::In(dir)), _) => dir.clone(),
            (Some(_), Some(memory)) => format!("/proc/self/fd/{}", memory.as_raw_fd()).into(),
            _ => self.changes(),
        }
    }

    /// Returns the directory of changes that are in the one of the session, or mounted there.
    pub(crate) fn changes(&self) -> PathBuf {
        self.dir.join("changes")
    }

    /// Makes the changes above the view in the branch. Returns the branch that has them, if that
    /// could not take them.
    pub(crate) fn ingest(&self, branches: &Branches<'_>) -> Result<Option<String>, Failure> {
        let (base, view, dir) = (&*self.lease, &self.view(), self.upper_dir());
        let [upper, work] = &["upper", "work"].map(|name| dir.join(name));
        let userxattr = self.upper.as_ref().is_some_and(|it| it.userxattr);
        branches.ingest(&self.branch, Overlay { base, view, upper, work, userxattr })
    }

    /// Returns whether the process is alive that has made it, or another one has the view or the
    /// overlay in use.
    pub(crate) fn is_in_use(&self) -> bool {
        // An overlay of a user is above a mount, and keeps no view open.
        let is_of_user = self.upper.as_ref().is_some_and(|it| it.userxattr);
        self.owner.is_alive()
            || is_open(&self.view())
            || is_of_user && is_mounted(&self.dir.join("root"))
    }

    /// Returns the process that has made it, for messages.
    pub(crate) fn process(&self) -> u32 {
        self.owner.pid
    }

    /// Returns whether it has changes that can be taken into the branch. Without a lease they are
    /// in it already.
    pub(crate) fn has_changes(&self, branches: &[BranchInfo]) -> bool {
        match self.place() {
            None | Some(Place::Memory(_)) => false,
            Some(_) => self.is_leased(branches) && self.upper_dir().join("upper").is_dir(),
        }
    }

    fn is_leased(&self, branches: &[BranchInfo]) -> bool {
        branches.iter().any(|info| info.name == self.lease)
    }

    /// Ends it, with all that its command has changed: first the lease, so that a crash leaves
    /// something that the next opening removes. If others read the view, that is left, and the next
    /// opening ends it.
    pub(crate) fn end(mut self, branches: &Branches<'_>) -> Result<(), Failure> {
        let upper = self.upper.take();
        if self.has_users {
            self.write(&self.dir)?;
        } else if self.is_leased(&branches.list()?) {
            branches.delete(&self.lease)?;
        }
        if let Some(Upper { place: Place::In(dir), .. }) = &upper {
            remove(&dir.join("upper"))?;
            remove(&dir.join("work"))?;
        }
        if self.has_users {
            return remove(&self.upper_dir());
        }
        // A crash leaves a name that the next opening removes.
        let old = self.dir.with_file_name(format!(".old-{}", std::process::id()));
        fs::rename(&self.dir, &old).map_err(failed(&self.dir))?;
        remove(&old)
    }
}

fn remove(dir: &Path) -> Result<(), Failure> {
    let mut removed = fs::remove_dir_all(dir);
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if removed.as_ref().is_err_and(is_denied) && !rustix::process::geteuid().is_root() {
        // A user may not even see what is in some directories, such as that of Linux's own work.
        open_all(dir).map_err(failed(dir))?;
        removed = fs::remove_dir_all(dir);
    }
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed(dir)),
    }
}

/// Lets the owner do everything in a directory and those in it.
fn open_all(dir: &Path) -> io::Result<()> {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Returns whether a directory is this user's alone: sessions in another one may name anything.
fn is_own(dir: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir)
        .is_ok_and(|it| it.is_dir() && it.uid() == own && it.mode() & 0o022 == 0)
}

fn dirs(image: &Path) -> Vec<PathBuf> {
    let home = home(image);
    let entries = is_own(&home).then(|| fs::read_dir(home)).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Returns the sessions of an image.
pub(crate) fn all(image: &Path) -> Vec<Session> {
    let mut all: Vec<_> = dirs(image).into_iter().filter_map(Session::read).collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
}

/// Ends sessions whose process is gone and that have nothing to be kept, and removes views that are
/// not in use, but for the latest ones. Those of the process that the lock is for are of an attempt
/// to begin one.
pub(crate) fn clean(
    (image, lock): (&Path, &Lock),
    branches: &Branches<'_>,
    kept_max: Option<usize>,
) -> Result<(), Failure> {
    let infos = branches.list()?;
    let mut left = Vec::new();
    for dir in dirs(image) {
        // A process that makes or removes one has the lock.
        if dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            remove(&dir)?;
        }
    }
    for session in all(image) {
        let is_own = session.owner.pid == lock.owner && session.owner.is_alive();
        if !is_own && (session.is_in_use() || session.has_changes(&infos)) {
            left.push(session.view);
        } else {
            session.end(branches)?;
        }
    }
    let Ok(entries) = fs::read_dir(home(image).join("views")) else { return Ok(()) };
    let age = |path: &PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    let mut views: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    views.retain(|view| !left.iter().any(|name| view.ends_with(name)));
    views.sort_by_key(|view| std::cmp::Reverse(age(view)));
    for view in views.iter().skip(kept_max.unwrap_or(KEPT_MAX)).filter(|view| !is_open(view)) {
        fs::remove_file(view).map_err(failed(view))?;
    }
    Ok(())
}

/// Returns whether something is mounted at a directory in the namespace of any process.
fn is_mounted(dir: &Path) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_there = |table: Vec<u8>| lines(&table).any(|mount| mount.dir() == dir);
    entries.filter_map(|entry| fs::read(entry.path().join("mountinfo")).ok()).any(is_there)
}
