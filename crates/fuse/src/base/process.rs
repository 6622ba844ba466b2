//! The rights of another process, as `/proc` shows them.

use std::path::PathBuf;
use std::sync::OnceLock;

use vfscale::Capabilities;

/// Returns the state of a process or thread in `/proc`; `None` if it can't be read.
pub(crate) fn status(pid: u32) -> Option<String> {
    // Number 0 is that of a process that can't be seen from here.
    if pid == 0 {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Returns a field of such a state.
pub(crate) fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Parses the effective capabilities of such a state.
pub(crate) fn capabilities(status: &str) -> Option<Capabilities> {
    let caps = u64::from_str_radix(field(status, "CapEff")?, 16).ok()?;
    Some(Capabilities::from_bits_truncate(caps))
}

/// Returns whether a process is in the user namespace of this one; `None` if this process may not
/// examine it.
pub(crate) fn is_in_own_user_namespace(pid: u32) -> Option<bool> {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let theirs = std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
    let own = OWN.get_or_init(|| std::fs::read_link("/proc/self/ns/user").ok());
    Some(*own.as_ref()? == theirs)
}

/// Returns whether a process is known to have these capabilities in the user namespace of this one.
/// Root of a container has them in another one.
pub(crate) fn certainly_has(pid: u32, caps: Capabilities) -> bool {
    is_in_own_user_namespace(pid) == Some(true)
        && status(pid).and_then(|status| capabilities(&status)).is_some_and(|it| it.contains(caps))
}

#[cfg(test)]
mod tests;
