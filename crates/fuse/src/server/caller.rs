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
//!
//! Any user can make a user namespace, and has all capabilities in it. `/proc` shows these, and
//! they mean nothing for a mount that was made outside. So capabilities count only in the user
//! namespace of the server. But the kernel counts them for files whose owner and group are mapped
//! there, which the server can't see. So where the kernel is known to check every call
//! ([`Checks::Shared`]), a caller in another namespace may do what it has let through.
//!
//! Where mounts may be id-mapped, a request that creates a file carries its owner, as it is to be
//! stored, and all others carry no ids. The ids of the process itself can't be compared with those
//! of files, because the mount that it uses maps them. So the server relies on the kernel's checks.

use rustix::net::UCred;
use vfscale::{Capabilities, Credentials, Errno, Task};

use crate::base::process::{self, field};
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
    /// The side that checks what the caller may do.
    checks: Checks,
}

/// The side that checks permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// The server, and perhaps the kernel.
    Server,
    /// The kernel before it sends a request, and the server, except of callers in other user
    /// namespaces.
    Shared,
    /// The kernel alone: user and group are the owner of a new file, or [`NOBODY`].
    Kernel,
}

/// The number of no user and no group.
const NOBODY: u32 = u32::MAX;

/// Whether a call may be tried with fewer rights than the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// First without supplementary groups and capabilities.
    Lazy,
    /// With all from the start.
    Exact,
    /// Like `Lazy`, for what the kernel does not check.
    Unchecked,
}

impl Caller {
    /// Returns the caller of a request.
    pub(crate) fn of(request: &Request<'_>, checks: Checks) -> Caller {
        let Header { uid, gid, pid, .. } = request.header;
        Caller { uid, gid, pid, group: request.group, checks }
    }

    /// Returns the process at the other end of a socket.
    pub(crate) fn peer(peer: &UCred) -> Caller {
        let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
        let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
        Caller { uid, gid, pid, group: None, checks: Checks::Server }
    }

    /// Returns whether the kernel alone has checked what the caller may do.
    pub(crate) fn is_checked(self) -> bool {
        self.checks == Checks::Kernel
    }

    /// Returns whether a file that the caller creates retains its set-id bits when it is written
    /// through the handle of the creation.
    pub(crate) fn retains_set_id(self) -> bool {
        self.uid == 0 || self.is_checked()
    }

    /// Returns whether the caller is this user, who has mounted the file system.
    pub(crate) fn is_user(self, uid: u32) -> bool {
        match self.is_checked() {
            false => self.uid == uid,
            true => self.status().and_then(|status| parse_user(&status)) == Some(uid),
        }
    }

    /// Returns whether the caller is in the group; false if a mount may map its groups.
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        if self.is_checked() {
            return false;
        }
        self.gid == gid
            || self.group == Some(gid)
            || self.exact_credentials().is_some_and(|exact| exact.groups.contains(&gid))
    }

    /// Returns whether the caller has these capabilities.
    pub(crate) fn has(self, caps: Capabilities) -> bool {
        let exact = self.exact_credentials();
        if self.is_checked() {
            return exact.is_some_and(|exact| exact.caps.contains(caps));
        }
        exact.unwrap_or_else(|| self.known_credentials()).caps.contains(caps)
    }

    /// Returns whether the caller is known to have these capabilities, in the user namespace of
    /// this server.
    pub(crate) fn certainly_has(self, caps: Capabilities) -> bool {
        process::certainly_has(self.pid, caps)
    }

    /// Returns the credentials for what the kernel has permitted: those of an owner of new files
    /// who may do everything.
    fn checked_credentials(self) -> Credentials {
        Credentials { caps: Capabilities::all(), ..Credentials::user(self.uid, self.gid) }
    }

    fn known_credentials(self) -> Credentials {
        if self.is_checked() {
            return self.checked_credentials();
        }
        let mut credentials = if self.uid == 0 {
            Credentials { gid: self.gid, real_gid: self.gid, ..Credentials::root() }
        } else {
            Credentials::user(self.uid, self.gid)
        };
        credentials.groups.extend(self.group);
        credentials
    }

    /// Returns the state of the process in `/proc`; `None` if it can't be read.
    fn status(self) -> Option<String> {
        process::status(self.pid)
    }

    /// Returns the credentials as read from `/proc`; `None` if they can't be read.
    fn exact_credentials(self) -> Option<Credentials> {
        let status = self.status()?;
        let (groups, caps) = parse_status(&status)?;
        let mut credentials = Credentials::user(self.uid, self.gid);
        credentials.groups = groups;
        credentials.groups.extend(self.group);
        if self.is_in_user_namespace() {
            credentials.caps = caps;
        }
        Some(credentials)
    }

    /// Returns the credentials as read from `/proc`; those of a user without capabilities if they
    /// can't be read.
    pub(crate) fn certain_credentials(self) -> Credentials {
        self.exact_credentials().unwrap_or_else(|| Credentials {
            caps: Capabilities::empty(),
            ..Credentials::user(self.uid, self.gid)
        })
    }

    /// Returns whether the process is in the user namespace of this server. Of one that the server
    /// may not examine only user 0 is believed to be: nobody else becomes that user in a namespace.
    fn is_in_user_namespace(self) -> bool {
        process::is_in_own_user_namespace(self.pid).unwrap_or(self.uid == 0)
    }

    /// Returns whether the process is in another user namespace, and has passed the kernel's
    /// checks.
    fn is_elsewhere(self) -> bool {
        self.checks == Checks::Shared && process::is_in_own_user_namespace(self.pid) == Some(false)
    }
}

/// Parses supplementary groups and effective capabilities from `/proc/PID/status`.
fn parse_status(status: &str) -> Option<(Vec<u32>, Capabilities)> {
    let groups = field(status, "Groups")?.split_whitespace();
    let groups = groups.filter_map(|group| group.parse().ok()).collect();
    Some((groups, process::capabilities(status)?))
}

/// Parses the user who counts for files from `/proc/PID/status`.
fn parse_user(status: &str) -> Option<u32> {
    field(status, "Uid")?.split_whitespace().nth(3)?.parse().ok()
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
        if caller.is_checked() {
            return self.act_checked(base, caller, rights, call);
        }
        if rights == Rights::Exact
            && caller.uid != 0
            && let Some(exact) = caller.exact_credentials()
        {
            return act_exactly(base, caller, rights, exact, call);
        }
        let refused = match call(self.known(base, caller)) {
            Ok(value) => return Ok(value),
            Err(e) => Errno::from(e),
        };
        if !matches!(refused, Errno::ACCESS | Errno::PERM) || rights == Rights::Exact {
            return Err(refused);
        }
        match caller.exact_credentials() {
            Some(exact) if exact != caller.known_credentials() || caller.is_elsewhere() => {
                act_exactly(base, caller, rights, exact, call)
            }
            _ => Err(refused),
        }
    }

    /// Calls `call` with all rights, since the kernel has permitted it.
    fn act_checked<T>(
        &mut self,
        base: &Task,
        caller: Caller,
        rights: Rights,
        call: impl Fn(&Task) -> vfscale::Result<T>,
    ) -> Result<T, Errno> {
        let called = if caller.uid != NOBODY {
            call(self.known(base, caller))
        } else if rights == Rights::Exact && !caller.has(Capabilities::FSETID) {
            // In no group: without this capability a set-group-id bit is cleared.
            let mut credentials = caller.checked_credentials();
            credentials.caps -= Capabilities::FSETID;
            call(&base.with_credentials(credentials))
        } else {
            call(base)
        };
        called.map_err(Errno::from)
    }
}

/// Calls `call` with a task that has these credentials of the caller, and with all rights if it is
/// refused what the kernel has permitted to a caller in another user namespace.
fn act_exactly<T>(
    base: &Task,
    caller: Caller,
    rights: Rights,
    exact: Credentials,
    call: impl Fn(&Task) -> vfscale::Result<T>,
) -> Result<T, Errno> {
    let permitted = Credentials { caps: Capabilities::all(), ..exact.clone() };
    match call(&base.with_credentials(exact)).map_err(Errno::from) {
        Err(Errno::ACCESS | Errno::PERM)
            if rights != Rights::Unchecked && caller.is_elsewhere() =>
        {
            call(&base.with_credentials(permitted)).map_err(Errno::from)
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests;
