//! Memory of the process that no file uses, and that is kept for new pages.
//!
//! Pages of files are the process's, not a tree's: what one tree frees, another one can use. Free
//! memory is kept by use and by time. What was in use within the last second is kept, and of the
//! rest a half goes back to the system each second, also while the program makes no call; 16 MiB
//! stay. If the system is short of memory (`memory.pressure` and `memory.events` of the control
//! group, or the pressure of the machine), all of it goes back. The owner of the process sets the
//! [maximum](set_max).
//!
//! ```
//! vfscale::idle_memory::set_max(8 << 20);
//! let vfs = vfscale::memory().size(64 << 20).build()?;
//! vfs.task().write("/data", vec![7; 32 << 20])?;
//! vfs.task().remove_file("/data")?;
//! vfscale::idle_memory::trim();
//! # Ok::<(), vfscale::Error>(())
//! ```

pub use vfscale_vfs::limits::{
    idle_bytes as bytes, idle_max as max, set_idle_max as set_max, trim_idle as trim,
};
