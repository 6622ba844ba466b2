//! Branches that travel from pool to pool: the same trees, with the same inode numbers.

use std::sync::Arc;

use vfscale::block::{Device, MemoryDevice};
use vfscale::{ForkOptions, Pool, PoolError, SendOptions};
use vfscale_diskfs::{check, check::Options, mkfs, mkfs::MkfsOptions};
use vfscale_sync::random::{Random, seed};
use vfscale_vfs::Errno;

use crate::common::within;
use crate::diffs::change;
use crate::tree_common::{Tree, read_tree};

fn new_pool() -> Pool {
    let device = Arc::new(MemoryDevice::with_block_size(64 << 20, 4096).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    vfscale::pool_on(device).convert(true).open().unwrap()
}

fn tree(pool: &Pool, name: &str) -> Tree {
    within(pool, name, |task| read_tree(task).unwrap())
}

fn stream(pool: &Pool, name: &str, base: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sent = pool.send(name, &SendOptions::new().since(base), &mut bytes).unwrap();
    assert_eq!(sent.bytes, bytes.len() as u64);
    bytes
}

/// Asserts that the volume in a branch, with its log, is sound.
fn assert_sound(pool: &Pool, name: &str) {
    let device: Arc<dyn Device> = pool.still_device(name).unwrap();
    let report = check::check(device, &Options::default(), &mut ()).unwrap();
    assert_eq!(report.findings, [], "{name}");
}

/// Makes states of a branch, and sends each since the one before: of a branch that is open, with a
/// log to be replayed, and of one that is closed.
fn chain(from: &Pool, to: &Pool, name: &str, random: &mut Random) {
    from.fork("main", name).unwrap();
    let mut base: Option<String> = None;
    for round in 0..4 {
        let volume = from.open(name).unwrap();
        let task = volume.task();
        for _ in 0..1 + random.below(12) {
            change(&task, random);
        }
        drop(task);
        let is_open = random.below(2) == 0;
        let mut volume = Some(volume);
        if !is_open {
            volume.take().unwrap().close().unwrap();
        }
        let state = from.checkpoint(name, "").unwrap();
        let stream = stream(from, &state, base.as_deref());
        volume.into_iter().for_each(|volume| volume.close().unwrap());
        let received = to.receive(None, &mut &stream[..]).unwrap();
        assert_eq!(received.name, state);
        assert!(tree(from, &state) == tree(to, &state), "{state}, open: {is_open}");
        assert_sound(to, &state);
        // Forks of what has come are written.
        let fork = format!("{state} fork");
        to.fork(&state, &fork).unwrap();
        within(to, &fork, |task| (0..3).for_each(|_| change(task, random)));
        assert_sound(to, &fork);
        if let Some(base) = base.replace(state).filter(|_| round > 0) {
            to.delete(&format!("{base} fork")).unwrap();
            to.delete(&base).unwrap();
        }
    }
    to.reap().unwrap();
    assert_eq!(to.check().unwrap(), [""; 0]);
}

/// More with `VFSCALE_CHAINS`, by their number.
#[test]
fn trees_travel_with_their_inode_numbers() {
    let more = std::env::var("VFSCALE_CHAINS").ok().and_then(|count| count.parse().ok());
    let (seed, count) = (seed(), more.unwrap_or(100));
    let mut pools = [new_pool(), new_pool()];
    for round in 0..count {
        if round % 10 == 9 {
            pools = [new_pool(), new_pool()];
        }
        let [from, to] = &pools;
        chain(from, to, &format!("chain {round}"), &mut Random::new(seed + round));
    }
}

/// A branch that has come becomes the volume itself, as after the loss of an image.
#[test]
fn an_image_is_restored() {
    let (from, to) = (new_pool(), new_pool());
    within(&from, "main", |task| task.write("/f", "kept")).unwrap();
    from.fork_with("main", "kept", ForkOptions::new().read_only(true)).unwrap();
    to.receive(Some("back"), &mut &stream(&from, "kept", None)[..]).unwrap();
    to.rollback_to("main", "back").unwrap();
    assert!(tree(&from, "main") == tree(&to, "main"));
    within(&to, "main", |task| task.write("/g", "goes on")).unwrap();
    assert_sound(&to, "main");
    to.close().unwrap();
}

/// A branch that is open is sent as it is, with what was not synced.
#[test]
fn a_branch_in_use_is_sent_with_what_was_not_synced() {
    let (from, to) = (new_pool(), new_pool());
    let main = from.open("main").unwrap();
    main.task().write("/f", "not synced").unwrap();
    let stream = stream(&from, "main", None);
    main.task().write("/f", "later").unwrap();
    let cut = to.receive(Some("cut"), &mut &stream[..stream.len() - 1]).unwrap_err();
    assert!(matches!(cut, PoolError::Branches { .. }) && cut.errno() == Errno::BADMSG, "{cut}");
    to.receive(Some("came"), &mut &stream[..]).unwrap();
    assert_eq!(within(&to, "came", |task| task.read_to_string("/f")).unwrap(), "not synced");
    main.close().unwrap();
    let again = to.receive(Some("again"), &mut &stream[..]).unwrap_err();
    assert_eq!(again.errno(), Errno::EXIST);
}

/// A few changed files of many: the stream is small.
#[test]
fn a_small_change_has_a_small_stream() {
    let (from, to) = (new_pool(), new_pool());
    within(&from, "main", |task| {
        for n in 0..5000 {
            task.write(format!("/f{n}"), format!("{n}")).unwrap();
        }
    });
    let base = from.checkpoint("main", "").unwrap();
    to.receive(None, &mut &stream(&from, &base, None)[..]).unwrap();
    within(&from, "main", |task| {
        (0..10).for_each(|n| task.write(format!("/f{}", n * 499), "changed").unwrap());
    });
    let next = from.checkpoint("main", "").unwrap();
    let bytes = stream(&from, &next, Some(&base));
    assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
    to.receive(None, &mut &bytes[..]).unwrap();
    assert!(tree(&from, &next) == tree(&to, &next));
}
