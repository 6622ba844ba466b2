//! Which two sides meet.

use crate::campaign::Arena;
use crate::mounted::{Fuse, ThroughMount};
use crate::oracle::{Borrowed, Nursery};
use crate::subject::Subject;
use crate::world::Blockless;

/// tmpfs against tmpfs, which must never differ: shows that the test itself is sound, and that what
/// it compares does not depend on chance.
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

/// Why the kernel's side can't be had on this machine, if it can't.
pub fn reason_to_skip() -> Option<String> {
    crate::oracle::Oracle::new().err()
}

/// tmpfs against vfscale on a volume; blocks apart, which a disk counts otherwise than memory.
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
