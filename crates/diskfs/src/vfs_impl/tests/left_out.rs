//! Groups whose headers or trees of free space can't be read: they are left out, and the rest of
//! the volume goes on.

use std::collections::BTreeSet;

use vfscale_testkit::Fault as DeviceFault;
use vfscale_vfs::OFlags;

use super::unreadable::{Unreadable, lose, made};
use super::*;
use crate::format::byte_of_block;
use crate::format::group::{CHUNK_ROOT_AT, FREE_ROOT_AT, HEADER_AT};
use crate::format::inode::block_of;
use crate::tools::check::{Finding, Options, Report, check};
use crate::volume::copies::read_block;

/// Number of names of the directory that a push changes.
const NAMES: usize = 600;

fn name(number: usize) -> String {
    format!("/d/name-{number:04}-{}", "x".repeat(number % 40))
}

/// Returns the first block of the group with the inode of a path, and the number of its group.
fn group_of(mounted: &Mounted, path: &str) -> u64 {
    let geometry = mounted.fs.volume().geometry();
    let group = geometry.group_of(block_of(mounted.stat(path).ino)).unwrap();
    geometry.blocks_of(group).unwrap().start
}

fn checked(device: &Arc<MemoryDevice>, repair: bool) -> Report {
    let options = Options { repair, ..Options::default() };
    check(device.clone(), &options, &mut ()).unwrap()
}

/// Repairs the volume, if all findings have one of these numbers. The second check finds nothing.
fn repaired(device: &Arc<MemoryDevice>, permitted: &[u32], about: &str) {
    let report = checked(device, true);
    let numbers: Vec<_> = report.findings.iter().map(|found| found.number()).collect();
    assert!(numbers.iter().all(|number| permitted.contains(number)), "{about}: {numbers:?}");
    assert_eq!(report.left, 0, "{about}");
    assert_eq!(checked(device, true).count, 0, "{about}");
}

fn free_of(task: &Task) -> u64 {
    task.posix().statfs(At::Cwd, "/").unwrap().blocks_free
}

/// Has a push write names of a directory whose group can't be read in part: names are added, or
/// removed. Then uses the volume elsewhere.
fn push(image: &Arc<MemoryDevice>, (start, lost): (u64, u64), (adds, removes): (bool, bool)) {
    let about = format!("block {lost} of the group, adding {adds}, removing {removes}");
    let volume = Unreadable::open(copy_of(&**image));
    let before = free_of(&volume.task);
    // If names are removed, the group is in use before, and has an index.
    if removes {
        volume.task.write("/d/data", [7; 3 * 4096]).unwrap();
        volume.sync(&about);
    }
    let (mut first, mut end) = (0, NAMES);
    while volume.device.fired() == 0 {
        volume.device.disarm();
        volume.fs.volume().journal().unwrap().quiesce().unwrap();
        // So few names that all can be delayed: no call writes any of them. More than so few items
        // that the next changes are not delayed.
        for number in 0..20 {
            let mode = Mode::from(0o600 + (end + first) as u32 % 2);
            volume.task.set_permissions(format!("/{number}"), mode).unwrap();
        }
        for _ in 0..3 {
            if adds {
                volume.task.hard_link("/file", name(end)).unwrap();
                end += 1;
            }
            if removes {
                volume.task.remove_file(name(first)).unwrap();
                first += 1;
            }
        }
        volume.drop_cached();
        volume.lose(start + lost);
        assert_eq!(volume.device.fired(), 0, "{about}: a call has met it");
        volume.sync(&about);
        assert!(end < 2 * NAMES && first < NAMES - 3, "{about}: no push reads it");
    }
    // Names and data elsewhere, and names in that directory.
    for round in 0..3 {
        volume.task.create_dir(format!("/new-{round}")).expect(&about);
        for number in 0..50 {
            let path = format!("/new-{round}/{number}");
            volume.task.write(path, [number; 20_000]).expect(&about);
            volume.task.hard_link("/file", format!("/d/more-{round}-{number}")).expect(&about);
        }
        volume.sync(&about);
        volume.fs.volume().journal().unwrap().quiesce().expect(&about);
        volume.drop_cached();
    }
    // Free blocks of the group can't be had.
    let of_group = volume.fs.volume().geometry().group_blocks();
    let after = free_of(&volume.task);
    assert!(after + of_group / 2 < before, "{about}: {before} blocks were free, {after} are");
    volume.device.disarm();
    let device = Arc::clone(volume.close(false).inner());
    // Blocks that the push has freed there are free after a repair only.
    repaired(&device, &[1012], &about);
    let mounted = opened(device);
    for round in 0..3 {
        for number in 0..50 {
            assert_eq!(mounted.read(&format!("/new-{round}/{number}")), [number; 20_000]);
        }
    }
    let more = (0..150).map(|number| format!("more-{}-{}", number / 50, number % 50));
    let names = (first..end).map(|number| name(number)[3..].to_owned());
    let mut wanted: Vec<_> = names.chain(more).collect();
    if removes {
        wanted.push("data".to_owned());
        assert_eq!(mounted.read("/d/data"), [7; 3 * 4096]);
    }
    let mut found = mounted.names("/d");
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted, "{about}");
    mounted.again();
}

/// A push that can't read the free space of a group writes the names of a directory nevertheless:
/// new blocks are those of other groups, and freed ones are lost until a repair.
#[test]
fn a_push_leaves_out_a_group_that_it_cannot_read() {
    let mounted = made(64 * MIB);
    mounted.mkdir("/d");
    mounted.write("/file", b"");
    (0..20).for_each(|number| mounted.write(&format!("/{number}"), b""));
    (0..NAMES).for_each(|number| mounted.task.hard_link("/file", name(number)).unwrap());
    let start = group_of(&mounted, "/d");
    let image = mounted.again().copy();
    for lost in [HEADER_AT, FREE_ROOT_AT] {
        for how in [(true, false), (false, true)] {
            push(&image, (start, lost), how);
        }
    }
}

/// Returns a volume with files in many groups, closed or not, and the first blocks of these.
fn with_files(is_closed: bool) -> (Arc<MemoryDevice>, Vec<u64>) {
    let mounted = made(64 * MIB);
    for dir in 0..16 {
        mounted.mkdir(&format!("/{dir}"));
        (0..20).for_each(|file| mounted.write(&format!("/{dir}/{file}"), &[dir; 9000]));
    }
    mounted.fs.sync_fs().unwrap();
    let used: BTreeSet<_> = (0..16).map(|dir| group_of(&mounted, &format!("/{dir}"))).collect();
    assert!(used.len() > 4, "{used:?}");
    let image = if is_closed { mounted.again().copy() } else { mounted.copy() };
    (image, used.into_iter().collect())
}

fn all_is_there(task: &Task, about: &str) {
    for dir in 0..16 {
        for file in 0..20 {
            assert_eq!(task.read(format!("/{dir}/{file}")).expect(about), [dir; 9000], "{about}");
        }
    }
}

/// A header that can't be read, or is wrong, costs the free space of its group: the volume opens,
/// files in the group can be read, and new ones are made elsewhere. A repair makes it anew.
#[test]
fn a_volume_opens_without_a_header() {
    for (is_closed, is_wrong) in [(false, false), (false, true), (true, false), (true, true)] {
        let (image, starts) = with_files(is_closed);
        // A log that is not closed has the headers of all groups that it has changed.
        let (image, starts) = if is_closed { (image, starts) } else { opened_once(&image, starts) };
        let free = free_of(&opened(copy_of(&*image)).task);
        for start in starts {
            let about = format!("group at {start}, closed: {is_closed}, wrong: {is_wrong}");
            let device = Arc::new(FaultyDevice::new(copy_of(&*image)));
            if is_wrong {
                let mut block = read_block(&*device, start + HEADER_AT).unwrap();
                block.bytes_mut()[100] ^= 1;
                device.write_at(byte_of_block(start + HEADER_AT), block.bytes()).unwrap();
            } else {
                lose(&device, start + HEADER_AT);
            }
            let volume = Unreadable::on(device, 0);
            all_is_there(&volume.task, &about);
            for dir in 0..16 {
                let path = format!("/{dir}/new");
                volume.task.write(path, [dir; 30_000]).expect(&about);
            }
            volume.sync(&about);
            let left = free_of(&volume.task);
            assert!(left < free, "{about}: {free} blocks were free, {left} are");
            let device = volume.close(false);
            // A check names the block. A repair of a device that still can't read it ends with it.
            let shared: Arc<dyn Device> = device.clone();
            let report = check(shared.clone(), &Options::default(), &mut ()).unwrap();
            let named = format!("block {}", start + HEADER_AT);
            let is_named = |found: &Finding| found.to_string().contains(&named);
            assert!(report.findings.iter().any(is_named), "{about}: {:?}", report.findings);
            let options = Options { repair: true, ..Options::default() };
            let report = check(shared, &options, &mut ()).unwrap();
            assert_eq!(report.left, u64::from(!is_wrong), "{about}");
            let volume = Unreadable::on(device, 0);
            all_is_there(&volume.task, &about);
            volume.task.write("/0/after", b"repaired").expect(&about);
            let device = volume.close(false);
            device.disarm();
            let device = Arc::clone(device.inner());
            repaired(&device, &[1012, 1013, 1014, 1015, 1016, 1030], &about);
            let mounted = opened(device);
            all_is_there(&mounted.task, &about);
            (0..16).for_each(|dir| assert_eq!(mounted.read(&format!("/{dir}/new")), [dir; 30_000]));
            assert_eq!(mounted.read("/0/after"), b"repaired");
            mounted.again();
        }
    }
}

/// Returns the state of a volume whose log was replayed, and that was stopped after a change of one
/// group, and the first blocks of the other ones.
fn opened_once(image: &Arc<MemoryDevice>, starts: Vec<u64>) -> (Arc<MemoryDevice>, Vec<u64>) {
    let mounted = opened(copy_of(&**image)).again();
    mounted.write("/0/0", &[0; 9000]);
    mounted.fs.sync_fs().unwrap();
    let changed = group_of(&mounted, "/0/0");
    (mounted.copy(), starts.into_iter().filter(|start| *start != changed).collect())
}

/// The ways in which a group is met first after it was damaged.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Files are removed, and truncated.
    Free,
    /// Files are made.
    Claim,
    /// Delayed names are written.
    Push,
}

/// Changes a byte of a block, on disk.
fn spoil(device: &dyn Device, address: u64) {
    let mut block = read_block(device, address).unwrap();
    block.bytes_mut()[100] ^= 1;
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

/// Frees blocks of files, whole inodes, and both of directories.
fn free_in_damaged(volume: &Unreadable, about: &str) {
    let task = &volume.task;
    for file in 0..8 {
        task.remove_file(format!("/1/{file}")).expect(about);
    }
    for file in 8..12 {
        task.open_with(format!("/1/{file}"), &OpenOptions::new().write(true))
            .unwrap()
            .set_len(0)
            .expect(about);
    }
    for round in 0..4 {
        let dir = format!("/1/dir-{round}");
        task.create_dir(&dir).expect(about);
        task.write(format!("{dir}/file"), [9; 5000]).expect(about);
        task.remove_file(format!("{dir}/file")).expect(about);
        task.remove_dir(&dir).expect(about);
        volume.sync(about);
        volume.fs.volume().journal().unwrap().quiesce().expect(about);
        volume.drop_cached();
    }
}

/// Uses a volume with one wrong byte in a block of a group in which directory `/1` is.
fn use_damaged(image: &Arc<MemoryDevice>, (start, at): (u64, u64), first: First) {
    let about = format!("block {at} of the group, {first:?} first");
    let volume = Unreadable::open(copy_of(&**image));
    let task = &volume.task;
    let groups = volume.fs.volume().groups();
    let (named, free) = (format!("block {}", start + at), free_of(task));
    // The group is in use, or not.
    let (mut links, journal) = (0, volume.fs.volume().journal().unwrap());
    let add_names = |links: &mut usize| {
        for _ in 0..100 {
            task.hard_link("/15/0", format!("/1/link-{links:04}")).expect(&about);
            *links += 1;
        }
    };
    if let First::Push = first {
        add_names(&mut links);
        volume.sync(&about);
        journal.quiesce().unwrap();
        (0..20).for_each(|file| {
            task.set_permissions(format!("/1/{file}"), Mode::from(0o640)).unwrap()
        });
        task.hard_link("/15/0", "/1/delayed").unwrap();
    }
    volume.drop_cached();
    spoil(&**volume.device.inner(), start + at);
    match first {
        First::Free => {}
        First::Claim => task.write("/1/new", [7; 30_000]).unwrap_or_else(|error| {
            // A call that has met it may fail; the next one does not.
            assert_eq!(error.errno(), Errno::UCLEAN, "{about}");
            task.write("/1/new", [7; 30_000]).expect(&about);
        }),
        First::Push => add_names(&mut links),
    }
    volume.sync(&about);
    free_in_damaged(&volume, &about);
    assert_eq!(groups.left_out(), 1, "{about}");
    let of_group = volume.fs.volume().geometry().group_blocks();
    let left = free_of(task);
    assert!(left + of_group / 2 < free, "{about}: {free} blocks were free, {left} are");
    for file in 12..20 {
        assert_eq!(task.read(format!("/1/{file}")).expect(&about), [1; 9000], "{about}");
    }
    let device = Arc::clone(volume.close(false).inner());
    let report = checked(&device, false);
    let is_named = |found: &Finding| found.to_string().contains(&named);
    assert!(report.findings.iter().any(is_named), "{about}: {:?}", report.findings);
    assert_eq!(checked(&device, true).left, 0, "{about}");
    assert_eq!(checked(&device, true).count, 0, "{about}");
    let mounted = opened(device);
    (12..20).for_each(|file| assert_eq!(mounted.read(&format!("/1/{file}")), [1; 9000]));
    (8..12).for_each(|file| assert_eq!(mounted.read(&format!("/1/{file}")), b""));
    let is_link = |name: &&String| name.starts_with("link-");
    assert_eq!(mounted.names("/1").iter().filter(is_link).count(), links, "{about}");
    assert_eq!(mounted.names("/1").iter().filter(|name| name.len() == 1).count(), 2);
    assert_eq!(free_of(&mounted.task) / of_group, free / of_group, "{about}");
    mounted.again();
}

/// A wrong byte in any block of a group that describes it costs the free space of this group: calls
/// that free there go on, and a repair finds the blocks.
#[test]
fn damage_that_a_free_a_claim_or_a_push_meets_costs_its_group() {
    let mounted = made(64 * MIB);
    for dir in [1_u8, 15] {
        mounted.mkdir(&format!("/{dir}"));
        (0..20).for_each(|file| mounted.write(&format!("/{dir}/{file}"), &[dir; 9000]));
    }
    let start = group_of(&mounted, "/1");
    assert_ne!(start, group_of(&mounted, "/15"));
    let image = mounted.again().copy();
    for at in [HEADER_AT, FREE_ROOT_AT, CHUNK_ROOT_AT] {
        for first in [First::Free, First::Claim, First::Push] {
            use_damaged(&image, (start, at), first);
        }
    }
}

/// A mount that reads a group wrong forgets no blocks of its orphans: the next one frees them.
#[test]
fn a_mount_that_reads_a_group_wrong_leaves_its_orphans_to_the_next() {
    let mounted = made(64 * MIB);
    mounted.mkdir("/1");
    mounted.write("/1/gone", &[1; 9000]);
    let start = group_of(&mounted, "/1");
    let gone = mounted.task.posix().open("/1/gone", OFlags::RDONLY, Mode::empty()).unwrap();
    mounted.task.posix().sync();
    mounted.task.remove_file("/1/gone").unwrap();
    mounted.fs.volume().journal().unwrap().quiesce().unwrap();
    let image = mounted.copy();
    for at in [HEADER_AT, FREE_ROOT_AT, CHUNK_ROOT_AT] {
        let device = Arc::new(FaultyDevice::new(copy_of(&*image)));
        let wrong = DeviceFault::on(Operation::Read);
        device.arm(wrong.flip(byte_of_block(start + at) + 2000, 4));
        let volume = Unreadable::on(device, 0);
        assert!(volume.device.fired() > 0, "block {at}");
        volume.again(false).again();
    }
    drop(gone);
    mounted.again();
}
