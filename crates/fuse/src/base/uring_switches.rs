//! The switches that FUSE over io_uring needs, and the errors that name the one that is off.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::base::device;

/// The switch of the kernel's FUSE module.
const MODULE: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch of io_uring: 0 for all, 1 for privileged processes, 2 for none.
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// The reason why a mount over io_uring can't be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum UringObstacle {
    /// The kernel lacks FUSE over io_uring.
    Kernel,
    /// The switch of the kernel's FUSE module is off.
    Module,
    /// The sysctl `kernel.io_uring_disabled` forbids io_uring to this process.
    Sysctl {
        /// Its value.
        value: u32,
    },
    /// A filter of system calls (seccomp) forbids io_uring to this process.
    Filter {
        /// The error of `io_uring_setup(2)`.
        source: io::Error,
    },
    /// A queue could not be set up.
    Queue {
        /// The error of the system call.
        source: io::Error,
    },
}

impl UringObstacle {
    /// Returns the reason why the kernel has not offered it at `INIT`.
    pub(crate) fn not_offered() -> UringObstacle {
        if Path::new(MODULE).exists() { UringObstacle::Module } else { UringObstacle::Kernel }
    }

    /// Returns the reason why the kernel has refused to make an io_uring.
    pub(crate) fn of_setup(source: io::Error) -> UringObstacle {
        match Errno::from_io_error(&source) {
            Some(Errno::PERM) => match sysctl() {
                Some(value) if value != 0 => UringObstacle::Sysctl { value },
                _ => UringObstacle::Filter { source },
            },
            Some(Errno::NOSYS) => UringObstacle::Filter { source },
            _ => UringObstacle::Queue { source },
        }
    }

    /// Returns the reason why the kernel has refused the entries of a queue.
    pub(crate) fn of_registration(source: io::Error) -> UringObstacle {
        match Errno::from_io_error(&source) {
            // The switch was on when the kernel offered it.
            Some(Errno::OPNOTSUPP) => UringObstacle::Module,
            _ => UringObstacle::Queue { source },
        }
    }
}

impl fmt::Display for UringObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UringObstacle::Kernel => f.write_str(
                "this kernel has no FUSE over io_uring: it takes Linux 6.14, configured with \
                 CONFIG_FUSE_IO_URING; mount with the classic transport",
            ),
            UringObstacle::Module => write!(
                f,
                "FUSE over io_uring is off in the kernel: switch it on as root \
                 (echo Y > {MODULE}, or mount with --enable-uring)"
            ),
            UringObstacle::Sysctl { value } => write!(
                f,
                "io_uring is forbidden to this process (kernel.io_uring_disabled is {value}): \
                 permit it as root (sysctl kernel.io_uring_disabled=0, or mount with \
                 --enable-uring)"
            ),
            UringObstacle::Filter { source } => write!(
                f,
                "io_uring is forbidden to this process by a filter of system calls, as containers \
                 have ({source}): permit io_uring_setup, io_uring_enter and io_uring_register in \
                 the container's seccomp profile, or mount with the classic transport"
            ),
            UringObstacle::Queue { source } => {
                write!(f, "cannot set up a queue of FUSE over io_uring: {source}")
            }
        }
    }
}

impl std::error::Error for UringObstacle {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UringObstacle::Filter { source } | UringObstacle::Queue { source } => Some(source),
            _ => None,
        }
    }
}

/// Checks, before anything is mounted, that the module's switch is not off. A module that is not
/// loaded yet, or can't be seen from a container, may turn out to be.
pub(crate) fn check_module() -> Result<(), UringObstacle> {
    match fs::read_to_string(MODULE) {
        Ok(text) if is_off(&text) => Err(UringObstacle::Module),
        _ => Ok(()),
    }
}

/// Returns whether a Boolean parameter of a module is off.
fn is_off(text: &str) -> bool {
    matches!(text.trim(), "N" | "n" | "0")
}

fn sysctl() -> Option<u32> {
    fs::read_to_string(SYSCTL).ok()?.trim().parse().ok()
}

/// Switches FUSE over io_uring on, for the whole machine until it is restarted: the parameter
/// `enable_uring` of the kernel's FUSE module, and `kernel.io_uring_disabled` where that forbids
/// io_uring. Returns a text for each change, such as `kernel.io_uring_disabled = 0 (was 2)`.
///
/// # Errors
/// Returns `NotFound` if the kernel lacks FUSE over io_uring; `PermissionDenied` if the caller may
/// not change the settings.
pub fn enable_uring() -> io::Result<Vec<String>> {
    let mut changes = Vec::new();
    if !Path::new(MODULE).exists() {
        // The kernel loads the module when its device is opened.
        drop(device::open(Path::new(device::PATH))?);
    }
    if is_off(&fs::read_to_string(MODULE)?) {
        fs::write(MODULE, "Y")?;
        changes.push("the parameter enable_uring of the module fuse = Y (was N)".to_owned());
    }
    if let Some(value) = sysctl().filter(|value| *value != 0) {
        fs::write(SYSCTL, "0")?;
        changes.push(format!("kernel.io_uring_disabled = 0 (was {value})"));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
