use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale::Mode;
use vfscale::block::{Device, MemoryDevice};
use vfscale::posix::OFlags;
use vfscale_diskfs::mkfs::MkfsOptions;

use super::*;
use crate::case::Op;
use crate::generate::{self, Options};

fn memory() -> World {
    World::new(vfscale::memory().size(8 << 20).build().unwrap())
}

/// Counts the cases that differ from the model, and prints the first ones.
fn differences(cases: &[Case], world: fn() -> World, compares: Compares) -> usize {
    let mut kinds = BTreeMap::<_, Vec<String>>::new();
    let mut count = 0;
    for case in cases {
        if let Err(difference) = check(case, world, compares) {
            count += 1;
            kinds.entry(case.pair).or_default().push(format!("{}\n    {difference}", case.name));
        }
    }
    for (pair, found) in kinds.iter().take(40) {
        println!("{pair:?}: {} such as {}", found.len(), found[0]);
    }
    count
}

#[test]
fn the_library_does_what_the_model_says() {
    assert_eq!(differences(generate::tests::cases(), memory, Compares::All), 0);
}

/// Makes a world on an empty volume on a device in memory.
fn volume() -> World {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20).unwrap());
    vfscale_diskfs::mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    World::new(vfscale::volume_on(device).open().unwrap().vfs().clone())
}

#[test]
fn a_volume_does_what_the_model_says() {
    let options =
        Options { volume: true, per_pair: 3, tries: 300, triples: 20, ..Options::default() };
    let cases = generate::sample(400, &options);
    assert_eq!(differences(&cases, volume, Compares::NotBlocks), 0);
}

#[test]
fn a_model_that_says_something_else_is_noticed() {
    let mode = Mode::from(0o644);
    let by = |op| Call { process: 0, op };
    let open =
        by(Op::Open { path: "a".into(), flags: OFlags::CREATE | OFlags::RDWR, mode, slot: 0 });
    // The model has whole pages only.
    let write = by(Op::Pwrite { slot: 0, len: 10, byte: 1, offset: 0 });
    let case = Case::new("test".into(), vec![open], write, by(Op::Getcwd {}));
    let difference = check(&case, memory, Compares::All).unwrap_err();
    assert!(difference.contains("the model says Error"), "{difference}");
}
