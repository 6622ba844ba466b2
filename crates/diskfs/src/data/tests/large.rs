//! Volumes of 1 TiB, run by hand: each test takes minutes, and prints its figures.
//! `cargo test --release -p vfscale-diskfs --lib large -- --ignored --nocapture --test-threads 1`

#![allow(clippy::print_stderr, reason = "a test that prints figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::Random;
use vfscale_testkit::{Call, HookedDevice};

use crate::base::fault::Fault;
use crate::data::Files;
use crate::format::BlockRange;
use crate::icache::table::NodeTable;
use crate::inode::core::InodeCore;
use crate::inode::incore::Node;
use crate::tools::check;
use crate::tools::mkfs::{MkfsOptions, format};
use crate::volume::tx::TxReservation;
use crate::volume::{Settings, Volume};

const TIB: u64 = 1 << 40;
const PAGE: u64 = 4096;
const REGULAR: u32 = 0o100_644;
/// The byte that fills every page of data.
const DATA: u8 = 0xA7;

/// A sparse device that counts the bytes read, and stores no data of files: it drops pages full of
/// [`DATA`].
type Thin = HookedDevice<MemoryDevice, AtomicU64>;

fn thin() -> Arc<Thin> {
    let inner = MemoryDevice::with_block_size(TIB, 4096).unwrap();
    Arc::new(HookedDevice::new(inner, AtomicU64::new(0), |inner, read, call| match call {
        Call::Write(offset, buf) => {
            let pages = buf.chunks(PAGE as usize).zip((offset..).step_by(PAGE as usize));
            let mut stored = pages.filter(|(page, _)| page.iter().any(|byte| *byte != DATA));
            stored.try_for_each(|(page, at)| inner.write_at(at, page))
        }
        call => {
            if let Call::Read(_, buf) = &call {
                read.fetch_add(buf.len() as u64, Ordering::Relaxed);
            }
            call.pass(inner)
        }
    }))
}

/// Returns the number of blocks read since the last call.
fn blocks_read(device: &Thin) -> u64 {
    device.state.swap(0, Ordering::Relaxed) / PAGE
}

fn open(device: &Arc<Thin>) -> Arc<Volume> {
    Arc::new(Volume::open(device.clone(), Settings::default()).unwrap())
}

/// Creates a file without a name.
fn create(volume: &Volume, nodes: &NodeTable) -> Arc<Node> {
    let mut tx =
        volume.begin(TxReservation { log_blocks: 200, space: 8, from_pool: false }).unwrap();
    let node_of = |ino| nodes.claim(ino, volume.cache());
    let (node, generation) = tx.new_node(8, false, node_of).unwrap();
    let guard = node.lock();
    tx.set_core(&node, InodeCore { nlink: 1, ..InodeCore::new(REGULAR, generation, 5) });
    volume.force(tx.commit().unwrap()).unwrap();
    drop(guard);
    node
}

/// Asserts that nothing is wrong with the volume except for names: the files of these tests have
/// none.
fn assert_whole(device: &Arc<Thin>) {
    let report = check::check(device.clone(), &check::Options::default(), &mut ()).unwrap();
    let found = report.findings.iter().find(|found| ![1020, 1021].contains(&found.number()));
    assert!(found.is_none(), "{found:?}");
}

/// A file takes the whole volume by `fallocate`; then single blocks are written at random. Each
/// write splits an unwritten extent: many more splits than 8,192 blocks of trees have room for.
#[test]
#[ignore = "takes minutes, and 2 GiB of memory"]
fn a_volume_full_of_allocated_space_takes_a_million_splits() {
    let writes: u64 = std::env::var("VFSCALE_WRITES").map_or(1_500_000, |n| n.parse().unwrap());
    let device = thin();
    format(&*device, &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let (files, nodes) = (
        Files::new(Arc::clone(&volume), &Settings { sync_interval: None, ..Settings::default() }),
        NodeTable::new(100),
    );
    let node = create(&volume, &nodes);
    let mut size = 0;
    loop {
        let wanted = (volume.space().figures().available * PAGE).min(1 << 36);
        match files.file(&node).allocate(size, wanted, false) {
            Ok(_) if wanted >= 1 << 20 => size += wanted,
            Ok(_) | Err(Fault::NoSpace) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    let full = volume.space().figures();
    eprintln!(
        "allocated {} GiB; left {} blocks, for anybody {}",
        size >> 30,
        full.free,
        full.available
    );
    let (mut random, begun) = (Random::new(1), Instant::now());
    let data = [DATA; PAGE as usize];
    for n in 0..writes {
        files.file(&node).write(random.below(size / PAGE) * PAGE, &data).unwrap();
        if n % 10_000 == 9_999 {
            let written = files.write_back_all();
            assert!(written.is_ok(), "{written:?} after {n} writes");
        }
        if n % 250_000 == 249_999 {
            let (now, seconds) = (volume.space().figures(), begun.elapsed().as_secs());
            let (used, grain) = (full.free - now.free, volume.space().grain());
            eprintln!("{} writes, {seconds} s: {used} blocks of trees, grain {grain}", n + 1);
        }
    }
    files.sync(&node, false).unwrap();
    files.sync_all().unwrap();
    let used = full.free - volume.space().figures().free;
    assert!(used > 8192 || writes < 1_500_000, "{used} blocks of trees");
    files.stop();
    volume.close().unwrap();
    assert_eq!(volume.overruns(), 0);
    drop((node, nodes, files, volume));
    assert_whole(&device);
    eprintln!("checked: nothing is wrong");
}

/// The free space of two groups is fragmented into more than two million runs of 16 KiB.
#[test]
#[ignore = "takes minutes, and 2 GiB of memory"]
fn a_first_claim_in_fragmented_space_reads_and_keeps_little() {
    let device = thin();
    format(&*device, &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let group = volume.geometry().group_blocks();
    // All other space is claimed.
    let need = |space| TxReservation { log_blocks: 20_000, space, from_pool: false };
    let mut claimed = Vec::new();
    while let Ok(run) = {
        let mut tx = volume.begin(need(1 << 20)).unwrap();
        let run = tx.claim(0, 1, 1 << 20);
        volume.force(tx.commit().unwrap()).map(|()| run).unwrap()
    } {
        claimed.push(run);
        if volume.space().figures().available < 1 << 20 {
            break;
        }
    }
    let of_group = |run: &&BlockRange| [3, 4].contains(&(run.start / group));
    let pieces: Vec<_> = claimed
        .iter()
        .filter(of_group)
        .flat_map(|run| (run.start + 4..run.end().saturating_sub(4)).step_by(8))
        .map(|start| BlockRange::new(start, 4))
        .collect();
    for pieces in pieces.chunks(2000) {
        let mut tx = volume.begin(need(0)).unwrap();
        pieces.iter().for_each(|piece| tx.free(*piece));
        tx.commit().unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    blocks_read(&device);
    let volume = open(&device);
    let opened = blocks_read(&device);
    let begun = Instant::now();
    let near = 3 * group + group / 2;
    let run = volume.groups().claim(&volume.reader(), near, 1, 16).unwrap().unwrap();
    let (micros, read) = (begun.elapsed().as_micros(), blocks_read(&device));
    eprintln!(
        "{} pieces; opened: {opened} blocks read. First claim ({} blocks at {}): {micros} us, {read} blocks",
        pieces.len(),
        run.blocks,
        run.start
    );
    volume.groups().unclaim(run);
    assert!(read <= 200, "{read} blocks");
    let (mut random, mut most) = (Random::new(2), 0);
    for _ in 0..20_000 {
        let near = (3 * group) + random.below(2 * group);
        let run = volume.groups().claim(&volume.reader(), near, 1, 16).unwrap().unwrap();
        volume.groups().unclaim(run);
        most = most.max(blocks_read(&device));
    }
    eprintln!(
        "20,000 claims elsewhere: {most} blocks read at most; the indexes have {} KiB",
        volume.groups().index_bytes() >> 10
    );
    assert!(volume.groups().index_bytes() <= 9 << 20);
}
