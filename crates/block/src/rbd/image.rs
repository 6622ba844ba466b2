//! Open images, and what holds them: a connection to a cluster, and a pool.
//!
//! All functions here block until the cluster has answered; while it does not, they wait.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::errors::{refused, unreachable};
use super::library::{Handle, Library, Watcher};
use super::name::{Name, c_string};
use crate::{Ceph, Error, OsError};

/// Seconds after which a connection to a cluster fails whose monitors do not answer, unless the
/// configuration says otherwise: Ceph's own default is five minutes.
const CONNECT_SECONDS: &CStr = c"30";
const CONNECT_DEFAULT: &[u8] = b"300\0";
/// `RBD_IMAGE_OPTION_FEATURES_SET`: features of a new image beside the default ones.
const FEATURES_SET: c_int = 8;
/// Layering, exclusive-lock, object-map and fast-diff.
const FEATURES: u64 = 1 | EXCLUSIVE_LOCK | 8 | 16;
pub(super) const EXCLUSIVE_LOCK: u64 = 4;
/// `RBD_LOCK_MODE_EXCLUSIVE`.
const MODE_EXCLUSIVE: c_int = 0;
/// The most watchers that are listed.
const WATCHERS_MAX: usize = 1024;
/// Largest text about an image that is read, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// Memory for texts that librbd stores, each ended by a zero byte.
struct Text {
    bytes: Vec<u8>,
    length: usize,
}

impl Text {
    fn new() -> Self {
        Self { bytes: vec![0; VALUE_BYTES_MAX], length: VALUE_BYTES_MAX }
    }

    /// Returns the first text.
    fn first(&self) -> String {
        let first = self.bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(first).into_owned()
    }
}

/// The number of an error that a function of Ceph has returned.
pub(super) type Code = OsError;

/// Converts a result of C: a negative number is an error.
fn check(result: c_int) -> Result<(), Code> {
    if result < 0 { Err(Code::new(-result)) } else { Ok(()) }
}

/// A connection to a cluster.
struct Cluster {
    library: &'static Library,
    rados: Handle,
}

impl Cluster {
    /// Returns a cluster that is configured, and not connected yet.
    fn configured(library: &'static Library, ceph: &Ceph) -> Result<Self, String> {
        let id = ceph.id.as_deref().map(c_string);
        let id = id.as_ref().map_or(ptr::null(), |id| id.as_ptr());
        let mut rados = ptr::null_mut();
        // SAFETY: the name is null or a string of C, and the handle is stored in `rados`.
        check(unsafe { (library.rados_create)(&raw mut rados, id) })
            .map_err(|code| format!("no client of Ceph can be made: {code}"))?;
        let cluster = Self { library, rados };
        let file = ceph.conf.as_ref().map(|path| CString::new(path.as_os_str().as_bytes()));
        let file = file.transpose().map_err(|_| "--ceph-conf is no path".to_owned())?;
        let name = file.as_ref().map_or(ptr::null(), |file| file.as_ptr());
        // SAFETY: the handle is open, and the name is null or a string of C.
        let read = check(unsafe { (library.rados_conf_read_file)(rados, name) });
        read.map_err(|code| match &ceph.conf {
            Some(path) => format!("cannot read {}: {code}", path.display()),
            None => format!("cannot read Ceph's configuration: {code}; name it with --ceph-conf"),
        })?;
        // SAFETY: the handle is open; null stands for the usual variable.
        check(unsafe { (library.rados_conf_parse_env)(rados, ptr::null()) })
            .map_err(|code| format!("CEPH_ARGS can't be used: {code}"))?;
        cluster.prepare()?;
        Ok(cluster)
    }

    /// Limits the time for connecting, unless the configuration does. A connection that is lost
    /// meanwhile is noticed only when that time is over.
    fn limit_connecting(&self, patience: Option<Duration>) {
        let mut seconds = [0_u8; 32];
        let (name, buffer) = (c"client_mount_timeout", seconds.as_mut_ptr().cast());
        // SAFETY: the handle is open, and the value is stored in the buffer, of this length.
        let got = unsafe {
            (self.library.rados_conf_get)(self.rados, name.as_ptr(), buffer, seconds.len())
        };
        if got >= 0 && seconds.starts_with(CONNECT_DEFAULT) {
            self.set(name, &patience.map_or(CONNECT_SECONDS.into(), seconds_of));
        }
    }

    /// Sets the options on which this module depends.
    fn prepare(&self) -> Result<(), String> {
        // The volume has a cache of its own. So a write that has returned is on the disks.
        self.set(c"rbd_cache", c"false");
        // librbd copies what it writes. Without the copy (Ceph 16) a request of a client that the
        // cluster refuses never ends.
        self.set(c"rbd_disable_zero_copy_writes", c"true");
        // Ceph 16 has renamed the option.
        let is_set = [c"rbd_blocklist_on_break_lock", c"rbd_blacklist_on_break_lock"]
            .into_iter()
            .any(|option| self.set(option, c"true"));
        let why =
            "this version of librbd can't fence off other clients (rbd_blocklist_on_break_lock)";
        if is_set { Ok(()) } else { Err(why.to_owned()) }
    }

    /// Sets an option; returns whether it exists.
    fn set(&self, option: &CStr, value: &CStr) -> bool {
        // SAFETY: the handle is open, and both are strings of C.
        let set =
            unsafe { (self.library.rados_conf_set)(self.rados, option.as_ptr(), value.as_ptr()) };
        set >= 0
    }

    /// Sets the time after which a request fails with `ETIMEDOUT`, rounded up to seconds; without
    /// one, requests wait for the cluster.
    fn set_patience(&self, patience: Option<Duration>) {
        let seconds = seconds_of(patience.unwrap_or_default());
        for option in [c"rados_osd_op_timeout", c"rados_mon_op_timeout"] {
            self.set(option, &seconds);
        }
    }

    fn connect(&self, name: &Name) -> Result<(), Error> {
        // SAFETY: the handle is open, and is connected once.
        let code = unsafe { (self.library.rados_connect)(self.rados) };
        // The monitor client's own error is passed on, and 1 stands for "in progress" there.
        let connected = if code > 0 { Err(OsError::new(libc::ETIMEDOUT)) } else { check(code) };
        connected.map_err(|code| match code.code() {
            libc::ETIMEDOUT => unreachable(name),
            code => refused(name, why_not_connected(code)),
        })
    }
}

/// Returns a time in seconds, rounded up, as text.
fn seconds_of(time: Duration) -> CString {
    c_string(&(time.as_secs() + u64::from(time.subsec_nanos() != 0)).to_string())
}

fn why_not_connected(code: i32) -> String {
    match code {
        libc::ENOENT | libc::EACCES => {
            "the Ceph cluster knows no such user, or there is no keyring for it (--id, and \
             `keyring` in the configuration)"
                .to_owned()
        }
        _ => format!("cannot connect to the Ceph cluster: {}", Code::new(code)),
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is open, connected or not, and all that was made from it is closed:
        // it is the last field of `Pool`, which destroys its context first.
        unsafe { (self.library.rados_shutdown)(self.rados) };
    }
}

/// A pool of a cluster, or a namespace of one.
pub(super) struct Pool {
    ioctx: Handle,
    cluster: Cluster,
}

impl Pool {
    /// Connects to the cluster and opens the pool of an image. A request that takes longer than
    /// `patience` fails with `ETIMEDOUT`: the cluster may be slow, or a connection be lost, which
    /// TCP notices only after a quarter of an hour. Without patience, requests wait.
    pub(super) fn open(
        name: &Name,
        ceph: &Ceph,
        patience: Option<Duration>,
    ) -> Result<Arc<Self>, Error> {
        let refused = |why: String| refused(name, why);
        let library = Library::get().map_err(|why| refused(why.to_owned()))?;
        let cluster = Cluster::configured(library, ceph).map_err(refused)?;
        cluster.limit_connecting(patience);
        if patience.is_some() {
            cluster.set_patience(patience);
        }
        cluster.connect(name)?;
        let (pool, mut ioctx) = (c_string(name.pool()), ptr::null_mut());
        // SAFETY: the cluster is connected, the name is a string of C, and the handle is stored in
        // `ioctx`.
        let made =
            unsafe { (library.rados_ioctx_create)(cluster.rados, pool.as_ptr(), &raw mut ioctx) };
        check(made).map_err(|code| match code.code() {
            // The first map of the cluster has not come.
            libc::ETIMEDOUT | libc::ENOTCONN => unreachable(name),
            libc::ENOENT => refused(format!("the Ceph cluster has no pool `{}`", name.pool())),
            _ => refused(format!("cannot open the pool `{}`: {code}", name.pool())),
        })?;
        let pool = Self { ioctx, cluster };
        if let Some(namespace) = name.namespace() {
            let namespace = c_string(namespace);
            // SAFETY: the context is open, and the name is a string of C.
            unsafe { (library.rados_ioctx_set_namespace)(ioctx, namespace.as_ptr()) };
        }
        Ok(Arc::new(pool))
    }

    fn library(&self) -> &'static Library {
        self.cluster.library
    }

    /// Has all later requests wait for the cluster.
    pub(super) fn wait_for_ever(&self) {
        self.cluster.set_patience(None);
    }

    /// Creates an image.
    pub(super) fn create(&self, image: &str, size: u64) -> Result<(), Code> {
        let (library, image, mut options) = (self.library(), c_string(image), ptr::null_mut());
        // SAFETY: the handle is stored in `options`.
        unsafe { (library.rbd_image_options_create)(&raw mut options) };
        // SAFETY: the options are open; an unknown option is an error.
        let set = check(unsafe {
            (library.rbd_image_options_set_uint64)(options, FEATURES_SET, FEATURES)
        });
        let made = set.and_then(|()| {
            // SAFETY: context and options are open, and the name is a string of C.
            check(unsafe { (library.rbd_create4)(self.ioctx, image.as_ptr(), size, options) })
        });
        // SAFETY: the options are open, and not used after this.
        unsafe { (library.rbd_image_options_destroy)(options) };
        made
    }

    /// Removes an image that nobody has open.
    pub(super) fn remove(&self, image: &str) -> Result<(), Code> {
        let image = c_string(image);
        // SAFETY: the context is open, and the name is a string of C.
        check(unsafe { (self.library().rbd_remove)(self.ioctx, image.as_ptr()) })
    }
}

// SAFETY: contexts and clusters of librados may be used by many threads at a time, and by others
// than the one that has made them. They are closed by their last owner only.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the context is open, and images of it are closed: `Image` closes its own before
        // it drops its pool.
        unsafe { (self.library().rados_ioctx_destroy)(self.ioctx) };
    }
}

/// An open image.
pub(super) struct Image {
    image: Handle,
    read_only: bool,
    pool: Arc<Pool>,
}

// SAFETY: librbd's functions may be called for one image by many threads at a time, and by others
// than the one that has opened it. The image is closed by its last owner only.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image of a pool, or a snapshot of one. A writer watches the image from then on.
    pub(super) fn open(pool: &Arc<Pool>, name: &Name, read_only: bool) -> Result<Self, Code> {
        let library = pool.library();
        let (image, snapshot) = (c_string(name.image()), name.snapshot().map(c_string));
        let snapshot = snapshot.as_ref().map_or(ptr::null(), |snapshot| snapshot.as_ptr());
        let open = if read_only { library.rbd_open_read_only } else { library.rbd_open };
        let mut handle = ptr::null_mut();
        // SAFETY: the context is open, the names are strings of C or null, and the handle is stored
        // in `handle`.
        check(unsafe { open(pool.ioctx, image.as_ptr(), &raw mut handle, snapshot) })?;
        Ok(Self { image: handle, read_only, pool: Arc::clone(pool) })
    }

    pub(super) fn library(&self) -> &'static Library {
        self.pool.library()
    }

    /// Returns the handle, which is open as long as this value exists.
    pub(super) fn handle(&self) -> Handle {
        self.image
    }

    /// Calls a function that stores a number.
    fn number(&self, get: unsafe extern "C" fn(Handle, *mut u64) -> c_int) -> Result<u64, Code> {
        let mut number = 0;
        // SAFETY: the image is open, and the function stores a number of 64 bits.
        check(unsafe { get(self.image, &raw mut number) }).map(|()| number)
    }

    pub(super) fn size(&self) -> Result<u64, Code> {
        self.number(self.library().rbd_get_size)
    }

    pub(super) fn features(&self) -> Result<u64, Code> {
        self.number(self.library().rbd_get_features)
    }

    /// Returns the size of the parts that are put into objects in turn.
    pub(super) fn stripe_unit(&self) -> Result<u64, Code> {
        self.number(self.library().rbd_get_stripe_unit)
    }

    /// Sets the size of the image. The caller has checked that it does not shrink.
    pub(super) fn set_size(&self, size: u64) -> Result<(), Code> {
        // SAFETY: the image is open.
        check(unsafe { (self.library().rbd_resize)(self.image, size) })
    }

    /// Takes the exclusive lock, and keeps it until it is released or broken: no other client gets
    /// it by asking.
    pub(super) fn lock(&self) -> Result<(), Code> {
        // SAFETY: the image is open.
        check(unsafe { (self.library().rbd_lock_acquire)(self.image, MODE_EXCLUSIVE) })
    }

    /// Releases the exclusive lock.
    pub(super) fn unlock(&self) -> Result<(), Code> {
        // SAFETY: the image is open.
        check(unsafe { (self.library().rbd_lock_release)(self.image) })
    }

    /// Asks the cluster whether this client has the exclusive lock.
    pub(super) fn has_lock(&self) -> Result<bool, Code> {
        let mut owns = 0;
        // SAFETY: the image is open, and a number is stored in `owns`.
        let asked =
            unsafe { (self.library().rbd_is_exclusive_lock_owner)(self.image, &raw mut owns) };
        check(asked).map(|()| owns != 0)
    }

    /// Returns the address of the client that has the exclusive lock.
    pub(super) fn lock_owner(&self) -> Result<Option<String>, Code> {
        if self.read_only { self.lock_owner_when_opened() } else { self.lock_owner_now() }
    }

    /// Asks the cluster for the owner of the lock.
    fn lock_owner_now(&self) -> Result<Option<String>, Code> {
        let (library, mut mode) = (self.library(), 0);
        let (mut owners, mut count) = ([ptr::null_mut::<c_char>(); 8], 8_usize);
        let into = owners.as_mut_ptr();
        // SAFETY: the image is open, and at most `count` strings are stored, and their number.
        let asked = check(unsafe {
            (library.rbd_lock_get_owners)(self.image, &raw mut mode, into, &raw mut count)
        });
        match asked {
            Err(code) if code.code() == libc::ENOENT => return Ok(None),
            other => other?,
        }
        let count = count.min(owners.len());
        let owner = owners[..count].first().map(|owner| {
            // SAFETY: it is one of the strings that were stored.
            unsafe { CStr::from_ptr(*owner) }.to_string_lossy().into_owned()
        });
        // SAFETY: the strings were stored by the call above, and are not used after this.
        unsafe { (library.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(owner)
    }

    /// Returns the owner of the lock at the moment when the image was opened: for an image that is
    /// only read, librbd can't ask again.
    fn lock_owner_when_opened(&self) -> Result<Option<String>, Code> {
        let mut is_exclusive = 0;
        let (mut tag, mut clients, mut cookies, mut addresses) =
            (Text::new(), Text::new(), Text::new(), Text::new());
        // SAFETY: the image is open; into each text at most as many bytes are stored as it has, and
        // their number.
        let count = unsafe {
            (self.library().rbd_list_lockers)(
                self.image,
                &raw mut is_exclusive,
                tag.bytes.as_mut_ptr().cast(),
                &raw mut tag.length,
                clients.bytes.as_mut_ptr().cast(),
                &raw mut clients.length,
                cookies.bytes.as_mut_ptr().cast(),
                &raw mut cookies.length,
                addresses.bytes.as_mut_ptr().cast(),
                &raw mut addresses.length,
            )
        };
        match i32::try_from(count) {
            Ok(0) => Ok(None),
            Ok(1..) => Ok(Some(addresses.first())),
            Ok(error) if -error == libc::ENOENT => Ok(None),
            Ok(error) => Err(Code::new(-error)),
            Err(_) => Err(OsError::IO),
        }
    }

    /// Takes the exclusive lock away from a client, and has the cluster refuse that client.
    pub(super) fn break_lock(&self, owner: &str) -> Result<(), Code> {
        let owner = c_string(owner);
        let break_lock = self.library().rbd_lock_break;
        // SAFETY: the image is open, and the address is a string of C.
        check(unsafe { break_lock(self.image, MODE_EXCLUSIVE, owner.as_ptr()) })
    }

    /// Returns the addresses of the clients that watch the image: those that have it open for
    /// writing and are alive.
    pub(super) fn watchers(&self) -> Result<Vec<String>, Code> {
        let library = self.library();
        let empty = || Watcher { addr: ptr::null_mut(), id: 0, cookie: 0 };
        let mut watchers: Vec<Watcher> = (0..WATCHERS_MAX).map(|_| empty()).collect();
        let mut count = watchers.len();
        // SAFETY: the image is open, and at most `count` watchers are stored, and their number.
        let listed = unsafe {
            (library.rbd_watchers_list)(self.image, watchers.as_mut_ptr(), &raw mut count)
        };
        check(listed)?;
        let count = count.min(watchers.len());
        let address = |watcher: &Watcher| {
            // SAFETY: it is the address of a watcher that was stored.
            unsafe { CStr::from_ptr(watcher.addr) }.to_string_lossy().into_owned()
        };
        let found = watchers[..count].iter().map(address).collect();
        // SAFETY: the watchers were stored by the call above, and are not used after this.
        unsafe { (library.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(found)
    }

    /// Returns the value of a key of the image's metadata.
    pub(super) fn value(&self, key: &CStr) -> Result<Option<String>, Code> {
        let (mut value, get) = (Text::new(), self.library().rbd_metadata_get);
        let into = value.bytes.as_mut_ptr().cast();
        // SAFETY: the image is open, the key is a string of C, and at most `length` bytes are
        // stored.
        let got = unsafe { get(self.image, key.as_ptr(), into, &raw mut value.length) };
        match check(got) {
            Ok(()) => Ok(Some(value.first())),
            Err(code) if code.code() == libc::ENOENT => Ok(None),
            Err(code) => Err(code),
        }
    }

    /// Sets the value of a key of the image's metadata, or removes it.
    pub(super) fn set_value(&self, key: &CStr, value: Option<&str>) -> Result<(), Code> {
        let library = self.library();
        check(match value.map(c_string) {
            // SAFETY: the image is open, and both are strings of C.
            Some(value) => unsafe {
                (library.rbd_metadata_set)(self.image, key.as_ptr(), value.as_ptr())
            },
            // SAFETY: the image is open, and the key is a string of C.
            None => unsafe { (library.rbd_metadata_remove)(self.image, key.as_ptr()) },
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image is open, and no request is in flight: each of them owns a reference to
        // this value. An error changes nothing about that it is closed.
        let _ = unsafe { (self.library().rbd_close)(self.image) };
    }
}
