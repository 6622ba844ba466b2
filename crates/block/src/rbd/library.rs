//! The functions of librados and librbd, which are found at run time.
//!
//! A program that opens no image needs no Ceph. The libraries are loaded with the first image, and
//! stay loaded: their threads end with their clusters, but what they leave behind may refer to
//! their code. The declarations are those of Ceph's headers `rados/librados.h` and `rbd/librbd.h`,
//! which have not changed since Ceph 14 (`librbd.so.1`, `librados.so.2`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// A cluster, I/O context, image or completion.
pub(super) type Handle = *mut c_void;

/// A client that watches an image.
#[repr(C)]
pub(super) struct Watcher {
    pub(super) addr: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

macro_rules! functions {
    ($($library:ident fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, under their names in C.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                let libraries = Libraries::open()?;
                Ok(Self {
                    $($name: {
                        let found = symbol(libraries.$library, concat!(stringify!($name), "\0"))?;
                        // SAFETY: the symbol is the function of this name, whose declaration in
                        // Ceph's header has these types. It is not null.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    rados fn rados_create(*mut Handle, *const c_char) -> c_int;
    rados fn rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados fn rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados fn rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    rados fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados fn rados_connect(Handle) -> c_int;
    rados fn rados_shutdown(Handle);
    rados fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados fn rados_ioctx_set_namespace(Handle, *const c_char);
    rados fn rados_ioctx_destroy(Handle);
    rbd fn rbd_create4(Handle, *const c_char, u64, Handle) -> c_int;
    rbd fn rbd_image_options_create(*mut Handle);
    rbd fn rbd_image_options_destroy(Handle);
    rbd fn rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
    rbd fn rbd_remove(Handle, *const c_char) -> c_int;
    rbd fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd fn rbd_close(Handle) -> c_int;
    rbd fn rbd_get_size(Handle, *mut u64) -> c_int;
    rbd fn rbd_get_features(Handle, *mut u64) -> c_int;
    rbd fn rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
    rbd fn rbd_resize(Handle, u64) -> c_int;
    rbd fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
    rbd fn rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd fn rbd_lock_release(Handle) -> c_int;
    rbd fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    rbd fn rbd_list_lockers(
        Handle,
        *mut c_int,
        *mut c_char,
        *mut usize,
        *mut c_char,
        *mut usize,
        *mut c_char,
        *mut usize,
        *mut c_char,
        *mut usize
    ) -> isize;
    rbd fn rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
    rbd fn rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
    rbd fn rbd_watchers_list_cleanup(*mut Watcher, usize);
    rbd fn rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
    rbd fn rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
    rbd fn rbd_metadata_remove(Handle, *const c_char) -> c_int;
    rbd fn rbd_aio_create_completion(*mut c_void, *const c_void, *mut Handle) -> c_int;
    rbd fn rbd_aio_wait_for_complete(Handle) -> c_int;
    rbd fn rbd_aio_get_return_value(Handle) -> isize;
    rbd fn rbd_aio_release(Handle);
    rbd fn rbd_aio_readv(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
    rbd fn rbd_aio_writev(Handle, *const libc::iovec, c_int, u64, Handle) -> c_int;
    rbd fn rbd_aio_flush(Handle, Handle) -> c_int;
    rbd fn rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
}

/// The two libraries, loaded.
struct Libraries {
    rados: Handle,
    rbd: Handle,
}

impl Libraries {
    fn open() -> Result<Self, String> {
        Ok(Self { rados: open(c"librados.so.2")?, rbd: open(c"librbd.so.1")? })
    }
}

impl Library {
    /// Returns the functions, or why they are missing.
    pub(super) fn get() -> Result<&'static Self, &'static str> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(String::as_str)
    }
}

/// Loads a library.
fn open(name: &CStr) -> Result<Handle, String> {
    if cfg!(target_feature = "crt-static") {
        return Err(
            "a static program can't load the client libraries of Ceph: take vfscale from a \
                    package, or from `cargo install`"
                .into(),
        );
    }
    // SAFETY: the name is a string of C. The constructors of Ceph's libraries run, which is what
    // linking them would do.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!(
            "images of Ceph need its client libraries: install the package librbd1 ({})",
            last_error()
        ));
    }
    Ok(library)
}

/// Finds a function. `name` ends with a zero byte.
fn symbol(library: Handle, name: &str) -> Result<*mut c_void, String> {
    // SAFETY: the library is loaded, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if found.is_null() {
        return Err(format!(
            "the library librbd1 is too old, from before Ceph 14 ({})",
            last_error()
        ));
    }
    Ok(found)
}

fn last_error() -> String {
    // SAFETY: returns null or a string that stays valid until this thread's next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is known".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
