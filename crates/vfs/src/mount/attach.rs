//! Attaching mounts, to one path and to the mounts that share with it.
//!
//! A [`NewTree`] is the branch to attach: a new mount, copies of mounts (a bind), or mounts that
//! are attached elsewhere (a move). If it is attached to a shared mount, every peer and slave of
//! that mount that shows the mountpoint gets a copy of the branch. Copies on peers are peers of the
//! branch; copies on a slave are slaves of the copies on its master, or of those on the nearest
//! master above that got any. All mounts of a branch on a shared mount become shared. The rules
//! follow `mount_namespaces(7)`.
//!
//! If a receiver already has a mount at the mountpoint, the copy is attached beneath that mount,
//! because a mount that was attached there directly stays on top. For this reason the root of a
//! branch is also claimed as a mountpoint, which fails for a root that was removed.
//!
//! All steps that can fail come first: claims, limits, copies. A failed call has no effect.

use std::collections::HashMap;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::mount::propagation::{GroupId, MountId, Receivers};
use crate::mount::topology::{MOUNTS_MAX, MountTopology, Step, claim_mountpoint};
use crate::mount::vfs_shared::VfsShared;
use crate::objects::dcache::climb::is_below;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::vfsmount::{Mount, MountRef, OwnedMount, Path};

/// A tree of mounts to attach: parents first, beginning with the root.
pub(crate) struct NewTree {
    twigs: Vec<NewMount>,
}

struct NewMount {
    mount: MountRef,
    /// A new mount, until it is attached.
    own: Option<OwnedMount>,
    /// The mount that this one copies.
    original: Option<MountId>,
    /// The index of its parent in the tree, and its mountpoint; `None` for the root.
    at: Option<(usize, DentryRef)>,
}

/// A copy of a branch for a mount that shares with the target.
struct PropagatedCopy {
    /// The index of the receivers that the mount belongs to.
    receivers: usize,
    on: MountId,
    mounts: Vec<OwnedMount>,
}

impl NewMount {
    fn of_new(
        own: OwnedMount,
        original: Option<MountId>,
        at: Option<(usize, DentryRef)>,
    ) -> NewMount {
        NewMount { mount: MountRef::new(&own), own: Some(own), original, at }
    }

    fn as_raw(&self) -> NonNull<Mount> {
        NonNull::from(&*self.mount)
    }
}

impl NewTree {
    /// Creates a tree of a single new mount.
    pub(crate) fn of_new(mount: OwnedMount) -> NewTree {
        NewTree { twigs: vec![NewMount::of_new(mount, None, None)] }
    }

    /// Copies a mount, showing its directory `root`, and with `recursive` the mounts below `root`.
    /// Omits unbindable mounts unless `whole`.
    pub(crate) fn copy_of(
        vfs_shared: &VfsShared,
        trees: &MountTopology,
        (top, root): (&Mount, DentryRef),
        recursive: bool,
        whole: bool,
        guard: &Guard,
    ) -> NewTree {
        let below_root = |dentry: &Dentry| is_below(dentry, &root, guard);
        let shape =
            if recursive { shape(trees, top, &below_root, whole, guard) } else { Vec::new() };
        let copy = |mount: &Mount, root: DentryRef, at| {
            let own = vfs_shared.clone_mount(mount.sb().clone(), root, mount.flags());
            NewMount::of_new(own, Some(mount.id()), at)
        };
        let mut twigs = vec![copy(top, root.clone(), None)];
        for (mount, at) in shape.into_iter().skip(1) {
            twigs.push(copy(mount, mount.root_ref(), at));
        }
        NewTree { twigs }
    }

    /// Collects the mounts of a tree to move.
    pub(crate) fn of_attached(trees: &MountTopology, top: &Mount, guard: &Guard) -> NewTree {
        let twig = |(mount, at): (&Mount, _)| NewMount {
            mount: MountRef::new(mount),
            own: None,
            original: None,
            at,
        };
        let all = shape(trees, top, &|_| true, true, guard);
        NewTree { twigs: all.into_iter().map(twig).collect() }
    }

    pub(crate) fn root(&self) -> &Mount {
        &self.twigs[0].mount
    }

    fn is_new(&self) -> bool {
        self.twigs[0].own.is_some()
    }

    /// Returns the index of the mount that covers the root of all others.
    fn top(&self) -> usize {
        let mut top = 0;
        let covers = |twig: &NewMount, top: usize| {
            let at = twig.at.as_ref();
            at.is_some_and(|(on, dentry)| {
                *on == top && std::ptr::eq(&**dentry, self.twigs[top].mount.root())
            })
        };
        while let Some(above) = self.twigs.iter().position(|twig| covers(twig, top)) {
            top = above;
        }
        top
    }

    /// Returns its mounts, the root first.
    fn mounts(&self) -> impl Iterator<Item = &Mount> {
        self.twigs.iter().map(|twig| &*twig.mount)
    }

    /// Returns the mounts, each with the mount that it copies.
    pub(crate) fn copies_of(&self) -> impl Iterator<Item = (MountId, MountRef)> {
        let pair = |twig: &NewMount| Some((twig.original?, twig.mount.clone()));
        self.twigs.iter().filter_map(pair)
    }

    /// Makes a copy of each mount, in the same order.
    fn copies(&self, vfs_shared: &VfsShared) -> Vec<OwnedMount> {
        let copy = |mount: &Mount| {
            vfs_shared.clone_mount(mount.sb().clone(), mount.root_ref(), mount.flags())
        };
        self.mounts().map(copy).collect()
    }

    /// Appends the steps that attach `mounts`, which have the shape of this tree, to each other.
    fn join(&self, mounts: &[NonNull<Mount>], steps: &mut Vec<Step>) {
        for (twig, mount) in self.twigs.iter().zip(mounts) {
            if let Some((on, mountpoint)) = &twig.at {
                let (parent, mountpoint) = (mounts[*on], mountpoint.clone());
                steps.push(Step::Attach { mount: *mount, parent, mountpoint });
            }
        }
    }
}

/// Lists a mount and those below it, parents first, each with the index of its parent in this list
/// and its mountpoint. Mounts on `top` itself are included only where `is_shown` returns true,
/// unbindable mounts only if `whole`.
fn shape<'t>(
    trees: &'t MountTopology,
    top: &'t Mount,
    is_shown: &dyn Fn(&Dentry) -> bool,
    whole: bool,
    guard: &Guard,
) -> Vec<(&'t Mount, Option<(usize, DentryRef)>)> {
    let mut found: Vec<(&Mount, Option<(usize, DentryRef)>)> = vec![(top, None)];
    let mut at = 0;
    while at < found.len() {
        for child in trees.children(found[at].0.id()) {
            let unbindable = trees.groups.sharing(child).unbindable;
            let Some(mount) = trees.mount(child).filter(|_| whole || !unbindable) else {
                continue;
            };
            let Some((_, mountpoint)) = mount.attached_at(guard) else { continue };
            if at > 0 || is_shown(mountpoint) {
                found.push((mount, Some((at, mountpoint.to_ref(guard)))));
            }
        }
        at += 1;
    }
    found
}

impl VfsShared {
    /// Returns the path for a new mount at `target`: on top of all mounts there.
    pub(crate) fn topmost(&self, target: &Path, guard: &Guard) -> Path {
        let mut place = target.clone();
        while let Some(upper) = self.find_mount(place.mount(), place.dentry(), guard) {
            place = Path::new(MountRef::new(upper), upper.root_ref());
        }
        place
    }

    /// Attaches a branch at `place`, which is no mountpoint, and copies of it to the mounts that
    /// share with that one. Returns the former mountpoints of a moved branch and of the mounts that
    /// now cover its copies.
    pub(crate) fn attach_tree(
        &self,
        trees: &mut MountTopology,
        branch: NewTree,
        place: &Path,
        guard: &Guard,
    ) -> Result<Vec<Path>, Errno> {
        let top_root = branch.twigs[branch.top()].mount.root_ref();
        claim_mountpoint(&top_root, guard)?;
        let claimed = claim_mountpoint(place.dentry(), guard);
        let offshoots = claimed.and_then(|()| self.grow(trees, &branch, place, guard));
        let result = match offshoots {
            Ok((receivers, offshoots)) => {
                Ok(self.commit(trees, branch, place, &receivers, offshoots, guard))
            }
            Err(errno) => {
                trees.unclaim(place.dentry());
                Err(errno)
            }
        };
        trees.unclaim(&top_root);
        result
    }

    /// Makes the copies for other mounts, if the limits allow them and the branch.
    fn grow(
        &self,
        trees: &MountTopology,
        branch: &NewTree,
        place: &Path,
        guard: &Guard,
    ) -> Result<(Vec<Receivers>, Vec<PropagatedCopy>), Errno> {
        let receivers = trees.groups.receivers(place.mount().id());
        let mut targets = Vec::new();
        {
            // Prevents moves of directories, so the answers for all mounts are consistent.
            let _names = self.rename_lock().read();
            for (number, group) in receivers.iter().enumerate() {
                let shows = |id: &&MountId| {
                    let mount = trees.mount(**id);
                    mount.is_some_and(|m| is_below(place.dentry(), m.root(), guard))
                };
                targets.extend(group.mounts.iter().filter(shows).map(|id| (number, *id)));
            }
        }
        let mut room: HashMap<u64, usize> = HashMap::new();
        let trees_of = targets.iter().map(|(_, id)| *id);
        let own = branch.is_new().then(|| place.mount().id());
        for id in trees_of.chain(own) {
            let tree = trees.mount(id).and_then(|mount| trees.tree_of(mount)).unwrap_or(0);
            let left =
                room.entry(tree).or_insert_with(|| MOUNTS_MAX.saturating_sub(trees.size(tree)));
            *left = left.checked_sub(branch.twigs.len()).ok_or(Errno::NOSPC)?;
        }
        let offshoot =
            |(receivers, on)| PropagatedCopy { receivers, on, mounts: branch.copies(self) };
        Ok((receivers, targets.into_iter().map(offshoot).collect()))
    }

    /// Makes a branch of new mounts a separate tree.
    pub(crate) fn plant(
        &self,
        trees: &mut MountTopology,
        mut branch: NewTree,
        tree: u64,
        guard: &Guard,
    ) {
        add_to_namespace(trees, &mut branch, tree);
        let mounts: Vec<NonNull<Mount>> = branch.twigs.iter().map(NewMount::as_raw).collect();
        let mut steps = Vec::new();
        branch.join(&mounts, &mut steps);
        // No mount is detached, so none can be busy.
        let left = self.change(trees, steps, || false, guard);
        debug_assert!(left.is_ok_and(|left| left.is_empty()));
    }

    /// Makes the planned change. Cannot fail.
    fn commit(
        &self,
        trees: &mut MountTopology,
        mut branch: NewTree,
        place: &Path,
        receivers: &[Receivers],
        mut offshoots: Vec<PropagatedCopy>,
        guard: &Guard,
    ) -> Vec<Path> {
        let is_new = branch.is_new();
        let tree = trees.tree_of(place.mount()).unwrap_or(0);
        add_to_namespace(trees, &mut branch, tree);
        if !receivers.is_empty() {
            share(trees, &branch, receivers, &offshoots);
        }
        let mut steps = Vec::new();
        let mounts: Vec<NonNull<Mount>> = branch.twigs.iter().map(NewMount::as_raw).collect();
        if is_new {
            branch.join(&mounts, &mut steps);
        } else {
            steps.push(Step::Detach(mounts[0]));
        }
        let parent = NonNull::from(place.mount());
        steps.push(Step::Attach { mount: mounts[0], parent, mountpoint: place.dentry_ref() });
        for offshoot in &mut offshoots {
            self.attach_offshoot(trees, &branch, place, offshoot, &mut steps, guard);
        }
        // A mount in use may be mounted on, so none is busy.
        self.change(trees, steps, || false, guard).unwrap_or_default()
    }

    fn attach_offshoot(
        &self,
        trees: &mut MountTopology,
        branch: &NewTree,
        place: &Path,
        offshoot: &mut PropagatedCopy,
        steps: &mut Vec<Step>,
        guard: &Guard,
    ) {
        let Some(on) = trees.mount(offshoot.on).map(MountRef::new) else { return };
        let tree = trees.tree_of(&on).unwrap_or(0);
        let own = std::mem::take(&mut offshoot.mounts);
        let mounts: Vec<NonNull<Mount>> = own.iter().map(OwnedMount::as_raw).collect();
        own.into_iter().for_each(|mount| trees.insert(mount, tree));
        branch.join(&mounts, steps);
        // A branch that moves away from the mountpoint no longer covers it.
        let in_the_way = self.find_mount(&on, place.dentry(), guard);
        let upper = in_the_way.filter(|upper| !std::ptr::eq(*upper, branch.root()));
        if let Some(upper) = upper {
            steps.push(Step::Detach(NonNull::from(upper)));
        }
        let mountpoint = place.dentry_ref();
        steps.push(Step::Attach { mount: mounts[0], parent: NonNull::from(&*on), mountpoint });
        if let Some(upper) = upper {
            let top = branch.top();
            let mountpoint = branch.twigs[top].mount.root_ref();
            let parent = mounts[top];
            steps.push(Step::Attach { mount: NonNull::from(upper), parent, mountpoint });
        }
    }
}

/// Lists the new mounts of a branch in a tree, with the sharing of the mounts that they copy.
fn add_to_namespace(trees: &mut MountTopology, branch: &mut NewTree, tree: u64) {
    for twig in &mut branch.twigs {
        if let Some(own) = twig.own.take() {
            let id = own.id();
            trees.insert(own, tree);
            if let Some(original) = twig.original {
                trees.groups.add_copy(id, original);
            }
        }
    }
}

/// Makes the branch shared, and its copies peers and slaves according to the mounts that get them.
fn share(
    trees: &mut MountTopology,
    branch: &NewTree,
    receivers: &[Receivers],
    offshoots: &[PropagatedCopy],
) {
    let ids: Vec<MountId> = branch.mounts().map(Mount::id).collect();
    let own: Vec<GroupId> = ids.iter().map(|id| trees.groups.make_shared(*id)).collect();
    // The groups of the copies for each of the receivers; `None` before the first copy.
    let mut groups_of: Vec<Option<Vec<GroupId>>> = vec![None; receivers.len()];
    groups_of[0] = Some(own);
    for PropagatedCopy { receivers: number, mounts, .. } in offshoots {
        let copies = mounts.iter().map(|mount| mount.id());
        if let Some(groups) = &groups_of[*number] {
            copies.zip(groups).for_each(|(copy, group)| trees.groups.join(copy, *group));
            continue;
        }
        let mut above = receivers[*number].master;
        while groups_of[above].is_none() {
            above = receivers[above].master;
        }
        let masters = groups_of[above].clone().unwrap_or_default();
        if !receivers[*number].is_shared {
            copies.zip(masters).for_each(|(copy, master)| trees.groups.add_slave(copy, master));
            continue;
        }
        let groups = copies.zip(masters).map(|(copy, master)| {
            let group = trees.groups.new_group(Some(master));
            trees.groups.join(copy, group);
            group
        });
        groups_of[*number] = Some(groups.collect());
    }
}
