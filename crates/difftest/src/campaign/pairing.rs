//! The pairs of sides to compare.

use vfscale_testkit::world::Blockless;
use vfscale_testkit::world::mounted::{Fuse, ThroughMount};
use vfscale_testkit::world::oracle::{OraclePool, PooledOracle};
use vfscale_testkit::world::subject::Subject;

use crate::campaign::Pairing;

/// tmpfs against tmpfs, which must never differ: shows that the test itself is sound and compares
/// nothing that depends on chance.
#[derive(Default)]
pub struct TmpfsTwice(OraclePool);

impl Pairing for TmpfsTwice {
    type Oracle = PooledOracle;
    type Subject = PooledOracle;
    fn fresh(&self) -> Result<(PooledOracle, PooledOracle), String> {
        Ok((self.0.get()?, self.0.get()?))
    }
}

/// tmpfs against vfscale.
#[derive(Default)]
pub struct TmpfsAndVfscale(OraclePool);

impl Pairing for TmpfsAndVfscale {
    type Oracle = PooledOracle;
    type Subject = Subject;
    fn fresh(&self) -> Result<(PooledOracle, Subject), String> {
        Ok((self.0.get()?, Subject::new()?))
    }
}

/// Returns why this machine does not permit the kernel's side, or `None` if it does.
pub fn reason_to_skip() -> Option<String> {
    vfscale_testkit::world::oracle::Oracle::new().err()
}

/// tmpfs against vfscale on a volume. Block counts are not compared: a disk counts them differently
/// from memory.
#[derive(Default)]
pub struct TmpfsAndVolume {
    oracles: OraclePool,
    /// The depth of the branch of a pool that the volume is in.
    depth: Option<u32>,
}

impl TmpfsAndVolume {
    /// Returns the pair with the volume in a branch that was forked `depth` times.
    pub fn in_branch(depth: Option<u32>) -> Self {
        Self { depth, ..Self::default() }
    }
}

impl Pairing for TmpfsAndVolume {
    type Oracle = Blockless<PooledOracle>;
    type Subject = Blockless<Subject>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        Ok((Blockless(self.oracles.get()?), Blockless(Subject::on_volume(self.depth)?)))
    }
}

/// tmpfs against vfscale in memory, mounted: system calls on both sides. The kernel announces each
/// opening, so inode flags work.
#[derive(Default)]
pub struct TmpfsAndMount(OraclePool);

impl Pairing for TmpfsAndMount {
    type Oracle = Fuse<PooledOracle>;
    type Subject = Fuse<ThroughMount>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        Ok((Fuse::new(self.0.get()?, true), Fuse::new(ThroughMount::of_memory()?, true)))
    }
}

/// tmpfs against vfscale on a volume, mounted. The kernel opens files itself, so no inode becomes
/// immutable or append-only.
#[derive(Default)]
pub struct TmpfsAndMountedVolume {
    oracles: OraclePool,
    /// The depth of the branch of a pool that the volume is in.
    depth: Option<u32>,
}

impl TmpfsAndMountedVolume {
    /// Returns the pair with the volume in a branch that was forked `depth` times.
    pub fn in_branch(depth: Option<u32>) -> Self {
        Self { depth, ..Self::default() }
    }
}

impl Pairing for TmpfsAndMountedVolume {
    type Oracle = Fuse<PooledOracle>;
    type Subject = Fuse<ThroughMount>;
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String> {
        let mounted = ThroughMount::of_volume(self.depth)?;
        Ok((Fuse::new(self.oracles.get()?, false), Fuse::new(mounted, false)))
    }
}
