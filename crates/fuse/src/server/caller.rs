//! Calls with the credentials of the calling process.
//!
//! A request carries the caller's user and group, but neither its other groups nor its
//! capabilities. Those are in `/proc`, and reading them costs as much as the rest of a request. So
//! a call is first tried without them, and repeated with them only if it was refused: more groups
//! and more capabilities never ctx a permitted call into a refused one. A few calls succeed
//! differently with more rights (they retain or clear a set-group-id bit); these use the exact
//! credentials from the start.
//!
//! User 0 is first assumed to have all capabilities. The kernel checks permissions as well, with
//! the caller's true credentials and before it sends the request (the mount has
//! `default_permissions`). It refuses a root process that has dropped its capabilities.

use vfscale::{Capabilities, Credentials, Errno, Task};

use crate::wire::request::{Header, Request};

/// The process that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    uid: u32,
    gid: u32,
    /// The thread, or 0 if unknown.
    pid: u32,
    /// A supplementary group that the kernel named.
    group: Option<u32>,
}

/// Whether a call may be tried with fewer rights than the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// First without supplementary groups and capabilities.
    Lazy,
    /// With all from the start.
    Exact,
}

impl Caller {
    pub(crate) fn of(request: &Request<'_>) -> Caller {
        let Header { uid, gid, pid, .. } = request.header;
        Caller { uid, gid, pid, group: request.group }
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    /// Returns whether the caller is in the group.
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        self.gid == gid
            || self.group == Some(gid)
            || self.exact_credentials().is_some_and(|exact| exact.groups.contains(&gid))
    }

    /// Returns whether the caller has these capabilities.
    pub(crate) fn has(self, caps: Capabilities) -> bool {
        let known = || self.known_credentials();
        self.exact_credentials().unwrap_or_else(known).caps.contains(caps)
    }

    fn known_credentials(self) -> Credentials {
        let mut credentials = if self.uid == 0 {
            Credentials { gid: self.gid, real_gid: self.gid, ..Credentials::root() }
        } else {
            Credentials::user(self.uid, self.gid)
        };
        credentials.groups.extend(self.group);
        credentials
    }

    /// Returns the credentials as read from `/proc`; `None` if they can't be read.
    fn exact_credentials(self) -> Option<Credentials> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let (groups, caps) = parse_status(&status)?;
        let mut credentials = Credentials::user(self.uid, self.gid);
        credentials.groups = groups;
        credentials.groups.extend(self.group);
        credentials.caps = caps;
        Some(credentials)
    }
}

/// Parses supplementary groups and effective capabilities from `/proc/PID/status`.
fn parse_status(status: &str) -> Option<(Vec<u32>, Capabilities)> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let groups = field("Groups")?.split_whitespace().filter_map(|g| g.parse().ok()).collect();
    let caps = u64::from_str_radix(field("CapEff")?, 16).ok()?;
    Some((groups, Capabilities::from_bits_truncate(caps)))
}

/// Number of callers that a worker remembers.
const REMEMBERED: usize = 4;

/// Tasks that act for recent callers. Each worker has its own.
#[derive(Default)]
pub(crate) struct Callers {
    recent: [Option<(Caller, Task)>; REMEMBERED],
    next: usize,
}

impl Callers {
    /// Returns a task with the credentials that the request names.
    fn known(&mut self, base: &Task, caller: Caller) -> &Task {
        let key = Caller { pid: 0, ..caller };
        let found = self.recent.iter().position(|slot| slot.as_ref().is_some_and(|s| s.0 == key));
        let index = found.unwrap_or_else(|| {
            self.next = (self.next + 1) % REMEMBERED;
            self.next
        });
        let slot = &mut self.recent[index];
        if found.is_none() {
            *slot = None;
        }
        let (_, task) =
            slot.get_or_insert_with(|| (key, base.with_credentials(key.known_credentials())));
        task
    }

    /// Calls `call` with a task that has the caller's credentials.
    ///
    /// # Errors
    /// Returns the error of `call`.
    pub(crate) fn act<T>(
        &mut self,
        base: &Task,
        caller: Caller,
        rights: Rights,
        call: impl Fn(&Task) -> vfscale::Result<T>,
    ) -> Result<T, Errno> {
        if rights == Rights::Exact
            && caller.uid != 0
            && let Some(exact) = caller.exact_credentials()
        {
            return call(&base.with_credentials(exact)).map_err(Errno::from);
        }
        let refused = match call(self.known(base, caller)) {
            Ok(value) => return Ok(value),
            Err(e) => Errno::from(e),
        };
        if !matches!(refused, Errno::ACCESS | Errno::PERM) || rights == Rights::Exact {
            return Err(refused);
        }
        match caller.exact_credentials() {
            Some(exact) if exact != caller.known_credentials() => {
                call(&base.with_credentials(exact)).map_err(Errno::from)
            }
            _ => Err(refused),
        }
    }
}

#[cfg(test)]
mod tests;
