//! Shared subtrees: the propagation of mounts and unmounts between mounts.
//!
//! A mount may belong to a *peer group*: a mount or unmount on one member happens on all members. A
//! group, or a mount that belongs to none, may be the *slave* of another group, its master: it
//! receives the events of the master, and its own events do not reach the master. A mount is
//! *shared* if it has a group, *private* if it has neither group nor master, and *unbindable* if it
//! is private and must not be bound. See `mount_namespaces(7)`.
//!
//! This module only does the bookkeeping, by the numbers of mounts, under `namespace_sem`; `attach`
//! and `umount` derive from it which mounts to attach and detach.
//!
//! # Invariants
//!
//! * A group has at least one member. When the last one leaves, its slaves become those of its
//!   master, or private.
//! * All members of a group have the group's master. So masters form a forest: a new group is made
//!   below existing ones, and only moves up.
//! * A mount stores a master itself only if it has no group.

use std::collections::{BTreeMap, HashMap};

use crate::mount::ordered_set::OrderedSet;

/// A mount's number; see `Mount::id`.
pub(crate) type MountId = u64;

/// A peer group's number, as `mountinfo` shows it.
pub(crate) type GroupId = u64;

/// The propagation of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountSharing {
    pub(crate) group: Option<GroupId>,
    /// The group whose slave the mount itself is; a shared mount has its group's master.
    pub(crate) master: Option<GroupId>,
    pub(crate) unbindable: bool,
}

#[derive(Debug, Default)]
struct Group {
    peers: OrderedSet<MountId>,
    master: Option<GroupId>,
    slaves: OrderedSet<Slave>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slave {
    Mount(MountId),
    Group(GroupId),
}

/// Mounts that receive the events of another mount and share with each other: the peers of that
/// mount, one of its slave groups, or one slave that is not shared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receivers {
    pub(crate) mounts: Vec<MountId>,
    pub(crate) is_shared: bool,
    /// The index in the list of the receivers whose slaves these are; the first are their own
    /// masters.
    pub(crate) master: usize,
}

/// The peer groups of all mounts. Counterpart of `fs/pnode.c` in Linux.
#[derive(Debug, Default)]
pub(crate) struct PeerGroups {
    /// The sharing of each mount; private mounts are not in the map.
    of: HashMap<MountId, MountSharing>,
    groups: BTreeMap<GroupId, Group>,
}

impl PeerGroups {
    pub(crate) fn sharing(&self, mount: MountId) -> MountSharing {
        self.of.get(&mount).copied().unwrap_or_default()
    }

    pub(crate) fn is_shared(&self, mount: MountId) -> bool {
        self.sharing(mount).group.is_some()
    }

    /// Returns the group whose slave a mount is, by itself or with its group.
    pub(crate) fn master(&self, mount: MountId) -> Option<GroupId> {
        let MountSharing { group, master, .. } = self.sharing(mount);
        group.map_or(master, |group| self.master_of(group))
    }

    /// Returns the master of a group.
    pub(crate) fn master_of(&self, group: GroupId) -> Option<GroupId> {
        self.groups.get(&group)?.master
    }

    /// Returns the members of a group, in the order of joining.
    pub(crate) fn peers(&self, group: GroupId) -> impl Iterator<Item = MountId> + '_ {
        self.groups.get(&group).into_iter().flat_map(|group| group.peers.iter())
    }

    /// Returns the mounts to which events on `origin` propagate: first its peers without itself,
    /// even if it has none, then its slaves, each after its master. Empty if it is not shared.
    pub(crate) fn receivers(&self, origin: MountId) -> Vec<Receivers> {
        let Some(first) = self.sharing(origin).group else { return Vec::new() };
        let peers = self.peers(first).filter(|peer| *peer != origin).collect();
        let mut found = vec![Receivers { mounts: peers, is_shared: true, master: 0 }];
        let mut group_of = vec![Some(first)];
        let mut at = 0;
        while at < found.len() {
            let group = group_of[at].and_then(|group| self.groups.get(&group));
            for slave in group.into_iter().flat_map(|group| group.slaves.iter()) {
                let (mounts, group) = match slave {
                    Slave::Mount(mount) => (vec![mount], None),
                    Slave::Group(group) => (self.peers(group).collect(), Some(group)),
                };
                found.push(Receivers { mounts, is_shared: group.is_some(), master: at });
                group_of.push(group);
            }
            at += 1;
        }
        found
    }

    /// Makes a mount shared, in a new group unless it has one. Returns its group.
    pub(crate) fn make_shared(&mut self, mount: MountId) -> GroupId {
        let sharing = self.sharing(mount);
        if let Some(group) = sharing.group {
            return group;
        }
        let group = self.new_group(sharing.master);
        if let Some(master) = sharing.master {
            self.drop_slave(master, Slave::Mount(mount));
        }
        self.of.remove(&mount);
        self.join(mount, group);
        group
    }

    /// Makes a mount private, and with `unbindable` also unbindable.
    pub(crate) fn make_private(&mut self, mount: MountId, unbindable: bool) {
        self.leave(mount);
        if unbindable {
            self.of.insert(mount, MountSharing { unbindable, ..MountSharing::default() });
        }
    }

    /// Makes a shared mount the slave of its former peers; without peers, of their master if there
    /// is one. Does not change other mounts.
    pub(crate) fn make_slave(&mut self, mount: MountId) {
        if !self.is_shared(mount) {
            return;
        }
        if let Some(master) = self.leave(mount) {
            self.add_slave(mount, master);
        }
    }

    /// Removes a mount that ends or becomes private. Returns the group whose slave it can become,
    /// if it was shared: that of its former peers, or else their master.
    pub(crate) fn leave(&mut self, mount: MountId) -> Option<GroupId> {
        let sharing = self.of.remove(&mount)?;
        if let Some(master) = sharing.master {
            self.drop_slave(master, Slave::Mount(mount));
        }
        let id = sharing.group?;
        let group = self.groups.get_mut(&id)?;
        group.peers.remove(mount);
        if group.peers.is_empty() { self.end_group(id) } else { Some(id) }
    }

    /// Makes `copy` propagate as `original`: a peer of a shared mount, another slave of a slave. A
    /// copy of an unbindable mount, which only a copy of the whole tree makes, is private.
    pub(crate) fn add_copy(&mut self, copy: MountId, original: MountId) {
        let sharing = self.sharing(original);
        if let Some(group) = sharing.group {
            self.join(copy, group);
        } else if let Some(master) = sharing.master {
            self.add_slave(copy, master);
        }
    }

    /// Creates a group without members; the caller adds one immediately.
    pub(crate) fn new_group(&mut self, master: Option<GroupId>) -> GroupId {
        // The lowest free number, as in the kernel.
        let taken = self.groups.keys().zip(1..).take_while(|(id, n)| *id == n).count();
        let id = taken as GroupId + 1;
        self.groups.insert(id, Group { master, ..Group::default() });
        if let Some(master) = master.and_then(|master| self.groups.get_mut(&master)) {
            master.slaves.insert(Slave::Group(id));
        }
        id
    }

    /// Adds a private mount to a group.
    pub(crate) fn join(&mut self, mount: MountId, group: GroupId) {
        self.of.insert(mount, MountSharing { group: Some(group), ..MountSharing::default() });
        if let Some(group) = self.groups.get_mut(&group) {
            group.peers.insert(mount);
        }
    }

    /// Makes a private mount a slave of a group.
    pub(crate) fn add_slave(&mut self, mount: MountId, master: GroupId) {
        self.of.entry(mount).or_default().master = Some(master);
        if let Some(group) = self.groups.get_mut(&master) {
            group.slaves.insert(Slave::Mount(mount));
        }
    }

    fn drop_slave(&mut self, master: GroupId, slave: Slave) {
        if let Some(group) = self.groups.get_mut(&master) {
            group.slaves.remove(slave);
        }
    }

    /// Ends a group without members; returns its master, which gets its slaves.
    fn end_group(&mut self, id: GroupId) -> Option<GroupId> {
        let Group { master, slaves, .. } = self.groups.remove(&id)?;
        if let Some(master) = master {
            self.drop_slave(master, Slave::Group(id));
        }
        for slave in slaves.iter() {
            match slave {
                Slave::Mount(mount) => {
                    self.of.remove(&mount);
                    if master.is_some() {
                        self.of.insert(mount, MountSharing { master, ..MountSharing::default() });
                    }
                }
                Slave::Group(group) => {
                    if let Some(group) = self.groups.get_mut(&group) {
                        group.master = master;
                    }
                }
            }
        }
        if let Some(group) = master.and_then(|master| self.groups.get_mut(&master)) {
            group.slaves.extend(slaves.iter());
        }
        master
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
