//! Shared subtrees: which mounts get what is mounted and unmounted on another.
//!
//! A mount may belong to a *peer group*: what is mounted or unmounted on one of its members is on
//! all of them. A group, or a mount that belongs to none, may be the *slave* of another group, its
//! master: it gets what happens there, and gives nothing back. A mount is *shared* if it has a
//! group, *private* if it has neither group nor master, and *unbindable* if it is private and must
//! not be bound. See `mount_namespaces(7)`.
//!
//! This is bookkeeping alone, by the numbers of mounts, under `namespace_sem`; what is attached
//! where follows from it in `graft` and `prune`.
//!
//! # Invariants
//!
//! * A group has at least one member. When the last one leaves, its slaves become those of its
//!   master, or private.
//! * All members of a group have the group's master. So masters form a forest, in which a group is
//!   made below what is there, and moves up only.
//! * A mount has a master of its own only if it has no group.

use std::collections::{BTreeMap, HashMap};

/// A mount's number; see `Mount::id`.
pub(crate) type MountId = u64;

/// A peer group's number, as `mountinfo` shows it.
pub(crate) type GroupId = u64;

/// The propagation of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountSharing {
    pub(crate) group: Option<GroupId>,
    /// The group that it is a slave of by itself; a shared mount has its group's master.
    pub(crate) master: Option<GroupId>,
    pub(crate) unbindable: bool,
}

#[derive(Debug, Default)]
struct Group {
    peers: Vec<MountId>,
    master: Option<GroupId>,
    slaves: Vec<Slave>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slave {
    Mount(MountId),
    Group(GroupId),
}

/// Mounts that get what happens on another and share among themselves: the peers of that one, one
/// of its slave groups, or one slave that is not shared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receivers {
    pub(crate) mounts: Vec<MountId>,
    pub(crate) is_shared: bool,
    /// The place in the list of the receivers that these are slaves of; the first are their own.
    pub(crate) master: usize,
}

/// The peer groups of all mounts. Counterpart of `fs/pnode.c` in Linux.
#[derive(Debug, Default)]
pub(crate) struct PeerGroups {
    /// Private mounts are not in it.
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

    /// Returns the group that a mount is a slave of, by itself or with its group.
    pub(crate) fn master(&self, mount: MountId) -> Option<GroupId> {
        let MountSharing { group, master, .. } = self.sharing(mount);
        group.map_or(master, |group| self.master_of(group))
    }

    /// Returns the master of a group.
    pub(crate) fn master_of(&self, group: GroupId) -> Option<GroupId> {
        self.groups.get(&group)?.master
    }

    /// Returns the members of a group.
    pub(crate) fn peers(&self, group: GroupId) -> &[MountId] {
        self.groups.get(&group).map_or(&[], |group| &group.peers)
    }

    /// Returns the mounts to which events on `origin` propagate: first its peers without itself,
    /// even if there are none, then its slaves, each after its master. Empty if it is not shared.
    pub(crate) fn receivers(&self, origin: MountId) -> Vec<Receivers> {
        let Some(first) = self.sharing(origin).group else { return Vec::new() };
        let peers = self.peers(first).iter().copied().filter(|peer| *peer != origin).collect();
        let mut found = vec![Receivers { mounts: peers, is_shared: true, master: 0 }];
        let mut group_of = vec![Some(first)];
        let mut at = 0;
        while at < found.len() {
            let group = group_of[at].and_then(|group| self.groups.get(&group));
            for slave in group.into_iter().flat_map(|group| &group.slaves) {
                let (mounts, group) = match *slave {
                    Slave::Mount(mount) => (vec![mount], None),
                    Slave::Group(group) => (self.peers(group).to_vec(), Some(group)),
                };
                found.push(Receivers { mounts, is_shared: group.is_some(), master: at });
                group_of.push(group);
            }
            at += 1;
        }
        found
    }

    /// Makes a mount shared, in a group of its own unless it has one. Returns its group.
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

    /// Makes a mount private; with `unbindable`, so that it can't be bound.
    pub(crate) fn make_private(&mut self, mount: MountId, unbindable: bool) {
        self.leave(mount);
        if unbindable {
            self.of.insert(mount, MountSharing { unbindable, ..MountSharing::default() });
        }
    }

    /// Makes a shared mount the slave of its former peers; without peers, of their master if there
    /// is one. Of others nothing changes.
    pub(crate) fn make_slave(&mut self, mount: MountId) {
        if !self.is_shared(mount) {
            return;
        }
        if let Some(master) = self.leave(mount) {
            self.add_slave(mount, master);
        }
    }

    /// Removes a mount that ends or becomes private. Returns the group that it can be a slave of,
    /// if it was shared: that of its former peers, or else their master.
    pub(crate) fn leave(&mut self, mount: MountId) -> Option<GroupId> {
        let sharing = self.of.remove(&mount)?;
        if let Some(master) = sharing.master {
            self.drop_slave(master, Slave::Mount(mount));
        }
        let id = sharing.group?;
        let group = self.groups.get_mut(&id)?;
        group.peers.retain(|peer| *peer != mount);
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
        // The lowest number that is free, as in the kernel.
        let taken = self.groups.keys().zip(1..).take_while(|(id, n)| *id == n).count();
        let id = taken as GroupId + 1;
        self.groups.insert(id, Group { master, ..Group::default() });
        if let Some(master) = master.and_then(|master| self.groups.get_mut(&master)) {
            master.slaves.push(Slave::Group(id));
        }
        id
    }

    /// Adds a private mount to a group.
    pub(crate) fn join(&mut self, mount: MountId, group: GroupId) {
        self.of.insert(mount, MountSharing { group: Some(group), ..MountSharing::default() });
        if let Some(group) = self.groups.get_mut(&group) {
            group.peers.push(mount);
        }
    }

    /// Makes a private mount a slave of a group.
    pub(crate) fn add_slave(&mut self, mount: MountId, master: GroupId) {
        self.of.entry(mount).or_default().master = Some(master);
        if let Some(group) = self.groups.get_mut(&master) {
            group.slaves.push(Slave::Mount(mount));
        }
    }

    fn drop_slave(&mut self, master: GroupId, slave: Slave) {
        if let Some(group) = self.groups.get_mut(&master) {
            group.slaves.retain(|other| *other != slave);
        }
    }

    /// Ends a group without members; returns its master, which gets its slaves.
    fn end_group(&mut self, id: GroupId) -> Option<GroupId> {
        let Group { master, slaves, .. } = self.groups.remove(&id)?;
        if let Some(master) = master {
            self.drop_slave(master, Slave::Group(id));
        }
        for slave in &slaves {
            match slave {
                Slave::Mount(mount) => {
                    self.of.remove(mount);
                    if master.is_some() {
                        self.of.insert(*mount, MountSharing { master, ..MountSharing::default() });
                    }
                }
                Slave::Group(group) => {
                    if let Some(group) = self.groups.get_mut(group) {
                        group.master = master;
                    }
                }
            }
        }
        if let Some(group) = master.and_then(|master| self.groups.get_mut(&master)) {
            group.slaves.extend(slaves);
        }
        master
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
