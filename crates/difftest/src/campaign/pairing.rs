//! The pairs of sides to compare.

use crate::campaign::Arena;
use crate::world::Blockless;
use crate::world::mounted::{Fuse, ThroughMount};
use crate::world::oracle::{Borrowed, Nursery};
use crate::world::subject::Subject;

/// tmpfs against tmpfs, which must never differ: shows that the test itself is sound and compares
/// nothing that depends on chance.
#[derive(Default)]
pub struct TmpfsTwice(Nursery);

impl Arena for TmpfsTwice {
    type Oracle = Borrowed;
    type Subject = Borrowed;
    fn fresh(&self) -> Result<(Borrowed, Borrowed), String> {
        Ok((self.0.get()?, self.0.get()?))
    }
}

/// tmpfs against vfscale.
#[derive(Default)]
pub struct TmpfsAndVfscale(Nursery);

impl Arena for TmpfsAndVfscale {
    type Oracle = Borrowed;
    type Subject = Subject;
    fn fresh(&self) -> Result<(Borrowed, Subject), String> {
        Ok((self.0.get()?, Subject::new()?))
    }
}

/// Returns why this machine does not permit the kernel's side, or `None` if it does.
pub fn reason_to_skip() -> Option<String> {
    crate::world::oracle::Oracle::new().err()
}

/// tmpfs against vfscale on a volume. Block counts are not compared: a disk counts them differently
/// from memory.
#[derive(Default)]
pub struct TmpfsAndVolume(Nursery);

impl Arena for TmpfsAndVolume {
    type Oracle = Blockless<Borrowed>;
    type Subject = Blockless<Subject>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        Ok((Blockless(self.0.get()?), Blockless(Subject::on_volume()?)))
    }
}

/// tmpfs against vfscale in memory, mounted: system calls on both sides.
#[derive(Default)]
pub struct TmpfsAndMount(Nursery);

impl Arena for TmpfsAndMount {
    type Oracle = Fuse<Borrowed>;
    type Subject = Fuse<ThroughMount>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        Ok((Fuse(self.0.get()?), Fuse(ThroughMount::of_memory()?)))
    }
}

/// tmpfs against vfscale on a volume, mounted.
#[derive(Default)]
pub struct TmpfsAndMountedVolume(Nursery);

impl Arena for TmpfsAndMountedVolume {
    type Oracle = Fuse<Borrowed>;
    type Subject = Fuse<ThroughMount>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        Ok((Fuse(self.0.get()?), Fuse(ThroughMount::of_volume()?)))
    }
}
