//! Volumes with arbitrary bytes: a check, a repair, a dump and an opening all end. A volume is
//! repaired if the repair says so.
//!
//! `VFSCALE_FUZZ_ROUNDS` is the number of images, 300 by default; `VFSCALE_FUZZ_SEED` selects other
//! images.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::random::Random;

use super::sample::{CHUNK, GROUP, Sample};
use crate::format::byte_of_block;
use crate::tools::check::{self, Options};
use crate::tools::dump::{Dump, What};
use crate::vfs_impl::DiskFs;
use crate::{Settings, Volume};

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Returns the blocks that are not all zero.
fn interesting(sample: &Sample) -> Vec<u64> {
    let blocks = sample.superblock.geometry().blocks();
    let mut bytes = [0; 4096];
    let is_used = |block: &u64| {
        sample.device.read_at(byte_of_block(*block), &mut bytes).unwrap();
        bytes.iter().any(|byte| *byte != 0)
    };
    (0..blocks).filter(is_used).collect()
}

/// Changes a few bytes of a few blocks, or replaces a block by another. Mostly corrects the
/// checksum, so the test covers more than checksums.
fn damage(sample: &Sample, blocks: &[u64], random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = blocks[random.below(blocks.len() as u64) as usize];
        let from = blocks[random.below(blocks.len() as u64) as usize];
        let is_sealed = random.below(4) != 0;
        let mut block = sample.media().raw(if random.below(8) == 0 { from } else { at }).unwrap();
        for _ in 0..=random.below(4) {
            let bytes = block.bytes_mut();
            let end = if random.below(2) == 0 { 160 } else { 4096 };
            let place = random.below(end) as usize;
            bytes[place] = match random.below(4) {
                0 => 0,
                1 => 0xFF,
                2 => bytes[place] ^ 1 << random.below(8),
                _ => random.below(256) as u8,
            };
        }
        if is_sealed {
            super::sample::write(&*sample.device, at, &block);
            // A record has a checksum of its own, which covers only the record.
            reseal_records(sample, at, random);
        } else {
            sample.device.write_at(byte_of_block(at), block.bytes()).unwrap();
        }
    }
}

fn reseal_records(sample: &Sample, at: u64, random: &mut Random) {
    if (CHUNK..CHUNK + 8).contains(&at) && random.below(4) != 0 {
        sample.block(at, |block| {
            for record in crate::format::inode::records_mut(block) {
                record.seal();
            }
        });
    }
}

fn look(device: &Arc<dyn Device>) {
    let Ok(dump) =
        Dump::open(device.clone(), None, true).or_else(|_| Dump::open(device.clone(), None, false))
    else {
        return;
    };
    let _ = dump.figures().to_string();
    let inodes = 64..80;
    let whats = inodes.flat_map(|ino| {
        [What::Inode(ino), What::Directory(ino), What::Extents(ino), What::Attributes(ino)]
    });
    let blocks = (0..120).chain(GROUP..GROUP + 8).flat_map(|at| [What::Block(at), What::Tree(at)]);
    let groups = (0..5).map(What::Group);
    for what in whats.chain(blocks).chain(groups).chain([What::Superblock, What::Log]) {
        if let Ok(value) = dump.show(what) {
            let _ = serde_json::to_string(&value).unwrap();
        }
    }
}

/// Repairs a volume. If the repair leaves no finding, checks that a new check has none, and that
/// the volume can be opened and used.
fn mend(copy: &Sample, give_up_unreadable: bool) -> bool {
    let options = Options { repair: true, give_up_unreadable, ..Options::default() };
    let Ok(report) = check::check(copy.device.clone(), &options, &mut ()) else { return false };
    assert!(report.count > 0 || report.left == 0);
    if report.left > 0 {
        return false;
    }
    assert_eq!(copy.check().findings, []);
    let fs = DiskFs::open(copy.device.clone(), Settings::default()).unwrap();
    fs.close().unwrap();
    assert_eq!(copy.check().findings, [], "after it was used");
    report.count > 0
}

#[test]
fn check_and_repair_end_on_any_bytes() {
    let sample = Sample::new();
    let blocks = interesting(&sample);
    let rounds = from_environment("VFSCALE_FUZZ_ROUNDS", 300);
    let mut random = Random::new(from_environment("VFSCALE_FUZZ_SEED", 0x5EED_5EED));
    let (mut found, mut repaired) = (std::collections::BTreeSet::new(), 0);
    for round in 0..rounds {
        let copy = sample.copied();
        damage(&copy, &blocks, &mut random);
        let device = copy.device.clone();
        if let Ok(report) = check::check(device.clone(), &Options::default(), &mut ()) {
            found.extend(report.findings.iter().map(check::Finding::number));
        }
        if round % 8 == 0 {
            look(&device);
        }
        if round % 8 == 4 {
            drop(Volume::open(device.clone(), Settings::default()));
        }
        if round % 2 == 1 {
            repaired += u64::from(mend(&copy, round % 4 == 3));
        }
    }
    // In most rounds blocks are lost.
    assert!(rounds < 300 || repaired > rounds / 10, "{repaired} of {rounds}");
    assert!(rounds < 300 || found.len() > 15, "only {found:?}");
}
