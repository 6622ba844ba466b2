//! Streams: of random branches, cut, damaged and hostile.

use std::collections::BTreeSet;
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::stream::{Head, Writer};
use crate::disk::format::PLACE_BYTES;
use crate::{Branch, Conversion, Error, Pool, Received, SendOptions};

const UNIT: u64 = PLACE_BYTES as u64;

fn new_pool(places: u64, id: u8) -> Pool {
    let device = Arc::new(MemoryDevice::new(places * UNIT).unwrap());
    Pool::create(device, [id; 16]).unwrap()
}

/// Makes a pool of a volume of 1200 blocks, some of which were written.
fn former_volume(random: &mut Random) -> Pool {
    let (first, places) = (1200, 14_000);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(places * UNIT).unwrap());
    for _ in 0..20 {
        device.write_at((1 + random.below(255)) * UNIT, &[9; PLACE_BYTES]).unwrap();
        device.write_at((600 + random.below(600)) * UNIT, &[8; PLACE_BYTES]).unwrap();
    }
    let (id, name, leads) = ([1; 16], "main", [&[0; PLACE_BYTES]; 3]);
    let conversion = Conversion { id, name, first, group: 256, blocks: places, leads };
    Pool::convert(&device, &conversion).unwrap();
    Pool::open_behind(device, first).unwrap()
}

/// Returns the stream of a branch.
fn stream(pool: &Pool, name: &str, options: &SendOptions) -> Result<Vec<u8>, Error> {
    let what = pool.snapshot(name, || ())?;
    let mut bytes = Vec::new();
    let sent = pool.send(&what, name, options, &mut bytes);
    what.close().unwrap();
    let sent = sent?;
    if *options == SendOptions::new().since(None) || bytes.len() as u64 == sent.bytes {
        assert_eq!(sent.bytes, bytes.len() as u64);
    }
    Ok(bytes)
}

fn since(pool: &Pool, name: &str, base: Option<&str>) -> Vec<u8> {
    stream(pool, name, &SendOptions::new().since(base)).unwrap()
}

/// Receives a stream, which has nothing behind its end.
fn receive(pool: &Pool, name: Option<&str>, mut bytes: &[u8]) -> Result<Received, Error> {
    let received = pool.receive(name, &mut bytes)?;
    assert!(bytes.is_empty());
    Ok(received)
}

fn contents(pool: &Pool, name: &str) -> Vec<u8> {
    let branch = pool.branch(name).unwrap();
    let mut bytes = vec![1; branch.size() as usize];
    branch.read_at(0, &mut bytes).unwrap();
    branch.close().unwrap();
    bytes
}

fn assert_whole(pool: &Pool) {
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

fn reap(pool: &Pool) {
    while pool.reap(10_000).unwrap().more {}
}

fn names(pool: &Pool) -> BTreeSet<String> {
    pool.list().into_iter().map(|info| info.name).collect()
}

/// Changes a branch at random.
fn change(branch: &Branch, random: &mut Random) {
    let blocks = branch.size() / UNIT;
    for _ in 0..1 + random.below(8) {
        let most = if random.below(8) == 0 { 600 } else { 4 };
        let count = 1 + random.below(most);
        let first = random.below(blocks);
        let count = count.min(blocks - first);
        let bytes: Vec<u8> =
            (0..count).flat_map(|_| [random.below(4) as u8; PLACE_BYTES]).collect();
        match random.below(5) {
            0 => branch.discard(first * UNIT, count * UNIT).unwrap(),
            _ => branch.write_at(first * UNIT, &bytes).unwrap(),
        }
    }
    if random.below(2) == 0 {
        branch.flush().unwrap();
    }
}

/// Sends states of a branch, each since an earlier one, from pool to pool to pool.
fn chain(random: &mut Random, from: &Pool) {
    let (to, third) = (new_pool(16_000, 2), new_pool(16_000, 3));
    let mut sent: Vec<String> = Vec::new();
    for round in 0..4 {
        let main = from.branch("main").unwrap();
        change(&main, random);
        if random.below(3) == 0 {
            main.set_size(main.size() + UNIT * random.below(700)).unwrap();
        }
        if random.below(3) == 0 {
            from.fork("main", &format!("other {round}"), false).unwrap();
        }
        let name = from.checkpoint("main", "a text", || ()).unwrap();
        main.close().unwrap();
        let base = sent.last().filter(|_| random.below(6) > 0).cloned();
        let bytes = since(from, &name, base.as_deref());
        assert_eq!(receive(&to, None, &bytes).unwrap().name, name);
        assert!(contents(from, &name) == contents(&to, &name), "{name} since {base:?}");
        let info = to.info(&name).unwrap();
        assert!(info.read_only && info.text == "a text");
        // A state that has come can be sent on, and is the base of what comes from the first pool.
        let is_on = random.below(2) == 0;
        let on = if is_on { since(&to, &name, base.as_deref()) } else { bytes };
        receive(&third, Some(&format!("as {name}")), &on)
            .map(drop)
            .or_else(|error| {
                // Its base has gone by another name.
                assert!(matches!(error, Error::NoBase(_)), "{error}");
                receive(&third, Some(&format!("as {name}")), &since(from, &name, None)).map(drop)
            })
            .unwrap();
        assert!(contents(from, &name) == contents(&third, &format!("as {name}")));
        // A fork of what has come is used, and older states go.
        to.fork(&name, &format!("use {round}"), false).unwrap();
        let fork = to.branch(&format!("use {round}")).unwrap();
        change(&fork, random);
        fork.close().unwrap();
        if let Some(old) = sent.last().filter(|_| random.below(2) == 0) {
            to.delete(old).unwrap();
            third.delete(&format!("as {old}")).unwrap();
        }
        reap(&to);
        [&to, &third, from].into_iter().for_each(assert_whole);
        assert!(contents(from, &name) == contents(&to, &name), "a fork changed {name}");
        sent.push(name);
    }
}

/// More with `VFSCALE_CHAINS`, by their number.
#[test]
fn chains_of_states_travel() {
    let more = std::env::var("VFSCALE_CHAINS").ok().and_then(|count| count.parse().ok());
    let seed = seed();
    for round in 0..more.unwrap_or(100) {
        let mut random = Random::new(seed + round);
        let from = match round % 4 {
            0 => former_volume(&mut random),
            _ => {
                let pool = new_pool(16_000, 1);
                pool.create_branch("main", (1 + random.below(1500)) * UNIT).unwrap();
                pool
            }
        };
        chain(&mut random, &from);
    }
}

/// A pool with two states of a branch, and the streams of the first one and of what the second one
/// has since then.
fn small() -> (Pool, Vec<u8>, Vec<u8>) {
    let pool = new_pool(2000, 1);
    pool.create_branch("main", 600 * UNIT).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(0, &[1; 3 * PLACE_BYTES]).unwrap();
    main.write_at(505 * UNIT, &[1; PLACE_BYTES]).unwrap();
    pool.checkpoint("main", "one", || ()).unwrap();
    main.write_at(UNIT, &[2; PLACE_BYTES]).unwrap();
    main.write_at(2 * UNIT, &[0; PLACE_BYTES]).unwrap();
    // Alone in a part of the map of which nothing else has come: a discard would do nothing.
    main.write_at(505 * UNIT, &[0; PLACE_BYTES]).unwrap();
    main.write_at(510 * UNIT, &[3; PLACE_BYTES]).unwrap();
    pool.checkpoint("main", "two", || ()).unwrap();
    main.close().unwrap();
    let (first, second) = (since(&pool, "main@1", None), since(&pool, "main@2", Some("main@1")));
    (pool, first, second)
}

/// Receives what is none, and asserts that nothing is left of it.
fn refused(pool: &Pool, bytes: &[u8]) -> Error {
    let (before, used) = (names(pool), pool.check().unwrap().used);
    let error = pool.receive(None, &mut &*bytes).unwrap_err();
    assert_eq!(names(pool), before, "{error}");
    reap(pool);
    let report = pool.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{error}");
    // The spare log that the temporary branch had, and the table with its tree, twice.
    assert!(report.used <= used + pool.shared.spare_places() + 8, "{error}");
    error
}

#[test]
fn a_cut_stream_leaves_nothing_at_any_byte() {
    let (_, first, second) = small();
    let pool = new_pool(2000, 2);
    for length in 0..first.len() {
        // All bytes of headers, and some of contents.
        if first.len() < 400 || length < 400 || length % 97 == 0 || length + 100 > first.len() {
            let error = refused(&pool, &first[..length]);
            assert!(matches!(error, Error::Stream { .. }), "{length}: {error}");
        }
    }
    receive(&pool, None, &first).unwrap();
    for length in 0..second.len() {
        if length < 400 || length % 97 == 0 || length + 100 > second.len() {
            let error = refused(&pool, &second[..length]);
            assert!(matches!(error, Error::Stream { .. }), "{length}: {error}");
        }
    }
    receive(&pool, None, &second).unwrap();
}

#[test]
fn flipped_bits_are_found() {
    let (_, first, second) = small();
    let pool = new_pool(2000, 2);
    let mut random = Random::new(seed());
    for stream in [&first, &second] {
        for round in 0..600 {
            let mut bytes = stream.clone();
            for _ in 0..1 + random.below(3) {
                // Half of them in the head.
                let end = if round % 2 == 0 { 336 } else { bytes.len() };
                let at = random.below(end as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            if bytes != *stream {
                let error = refused(&pool, &bytes);
                assert!(matches!(error, Error::Stream { .. }), "{error}");
            }
        }
        receive(&pool, None, stream).unwrap();
    }
}

/// Parts that are left out, doubled, exchanged, or of another stream.
#[test]
fn spliced_streams_are_found() {
    let (from, first, second) = small();
    let pool = new_pool(2000, 2);
    receive(&pool, None, &first).unwrap();
    let whole = since(&from, "main@2", None);
    let head = 336;
    let spliced = [
        [&second[..head], &whole[head..]].concat(),
        [&whole[..head], &second[head..]].concat(),
        [&second[..head], &second[head + 40 + PLACE_BYTES..]].concat(),
        [&second[..head + 40 + PLACE_BYTES], &second[head..]].concat(),
        [&second[..head], &second[second.len() - 40..]].concat(),
        [&second[..], &second[..]].concat()[40..].to_vec(),
    ];
    for bytes in spliced {
        assert!(matches!(refused(&pool, &bytes), Error::Stream { .. }));
    }
}

/// The first bytes of a stream that was cut are taken from another sending.
#[test]
fn a_stream_goes_on_at_any_byte() {
    let (pool, first, second) = small();
    for (name, base, whole) in [("main@1", None, first), ("main@2", Some("main@1"), second)] {
        for cut in [0, 1, 39, 40, 335, 336, 337, 1000, 4471, 4472, 4473, whole.len()] {
            let options = SendOptions::new().since(base).skip(cut as u64);
            assert!(stream(&pool, name, &options).unwrap() == whole[cut..], "{cut}");
        }
    }
    let error = stream(&pool, "main", &SendOptions::new().skip(1)).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

fn head() -> Head {
    let (name, text) = ("came".to_owned(), String::new());
    Head { state: 7, base: None, blocks: 600, name, text }
}

/// Streams with right checksums and wrong contents.
#[test]
fn hostile_streams_are_refused() {
    let (_, first, _) = small();
    let pool = new_pool(2000, 2);
    receive(&pool, None, &first).unwrap();
    let known = pool.shared.state.lock().table.named("main@1").unwrap().sent;
    let base = |number| Some((number, "base".to_owned()));
    let heads = [
        Head { state: 0, ..head() },
        Head { blocks: 0, ..head() },
        Head { blocks: u64::MAX, ..head() },
        Head { base: base(7), ..head() },
        Head { base: base(8), ..head() },
        Head { base: base(known), blocks: 599, ..head() },
        Head { state: known, ..head() },
        Head { name: String::new(), ..head() },
        Head { name: "a/b".into(), ..head() },
        Head { name: "main@1".into(), ..head() },
        Head { text: "a\nb".into(), ..head() },
    ];
    for head in heads {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 0);
        writer.head(&head).unwrap();
        writer.end().unwrap();
        refused(&pool, &bytes);
    }
    let block = [1; PLACE_BYTES];
    type Play = fn(&mut Writer<'_>, &[u8]) -> Result<(), Error>;
    let plays: [Play; 8] = [
        |writer, block| writer.data(600, block),
        |writer, block| writer.data(u64::MAX, block),
        |writer, block| writer.data(5, block).and_then(|()| writer.data(5, block)),
        |writer, block| writer.data(5, block).and_then(|()| writer.data(4, block)),
        |writer, _| writer.data(5, &[]),
        |writer, _| writer.zeros(&(0..601)),
        |writer, _| writer.zeros(&(u64::MAX - 1..u64::MAX)),
        |writer, _| writer.head(&head()),
    ];
    for (number, play) in plays.into_iter().enumerate() {
        for base in [None, base(known)] {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, 0);
            writer.head(&Head { base, ..head() }).unwrap();
            play(&mut writer, &block).unwrap();
            writer.end().unwrap();
            let error = refused(&pool, &bytes);
            assert!(matches!(error, Error::Stream { .. }), "{number}: {error}");
        }
    }
    // All of 16 TiB as zeros, in a pool of 8 MiB.
    let (mut bytes, blocks) = (Vec::new(), 1 << 32);
    let mut writer = Writer::new(&mut bytes, 0);
    writer.head(&Head { base: base(known), blocks, ..head() }).unwrap();
    writer.zeros(&(0..blocks)).unwrap();
    writer.end().unwrap();
    receive(&pool, None, &bytes).unwrap();
    assert_whole(&pool);
    let came = pool.branch("came").unwrap();
    let mut bytes = [1; 3 * PLACE_BYTES];
    came.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 3 * PLACE_BYTES]);
}

/// Only the contents that a stream goes on from are its base, whatever has their name.
#[test]
fn a_wrong_base_is_refused() {
    let (from, first, second) = small();
    let pool = new_pool(2000, 2);
    let is_missing = |error| assert_eq!(error, Error::NoBase("main@1".into()));
    is_missing(refused(&pool, &second));
    // Another branch of that name.
    pool.create_branch("main@1", 600 * UNIT).unwrap();
    is_missing(refused(&pool, &second));
    receive(&pool, Some("base"), &first).unwrap();
    assert_eq!(refused(&pool, &first), Error::Exists("main@1".into()));
    let again = receive(&pool, Some("again"), &first).unwrap_err();
    assert_eq!(again, Error::Received("base".into()));
    // A fork of the base is written, and the base gets another name, or is deleted.
    pool.fork("base", "fork", false).unwrap();
    let fork = pool.branch("fork").unwrap();
    fork.write_at(0, &[9; PLACE_BYTES]).unwrap();
    fork.close().unwrap();
    pool.rename("base", "renamed").unwrap();
    receive(&pool, None, &second).unwrap();
    assert!(contents(&pool, "main@2") == contents(&from, "main@2"));
    pool.delete("main@2").unwrap();
    pool.delete("renamed").unwrap();
    is_missing(refused(&pool, &second));
    reap(&pool);
    is_missing(refused(&pool, &second));
    assert_whole(&pool);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let (pool, ..) = small();
    pool.create_branch("large", 601 * UNIT).unwrap();
    pool.fork("large", "larger", true).unwrap();
    for base in ["main", "main@1", "larger"] {
        let error = stream(&pool, "main@1", &SendOptions::new().since(Some(base))).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{base}: {error}");
    }
    let none = stream(&pool, "main@1", &SendOptions::new().since(Some("none"))).unwrap_err();
    assert_eq!(none, Error::NoBranch("none".into()));
    let main = pool.branch("main").unwrap();
    let error = pool.send(&main, "main", &SendOptions::new(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let mut short: &mut [u8] = &mut [0; 1000];
    let what = pool.snapshot("main@1", || ()).unwrap();
    let error = pool.send(&what, "main@1", &SendOptions::new(), &mut short).unwrap_err();
    assert!(matches!(error, Error::StreamFailed { .. }), "{error}");
}

/// The state of a branch that is in use travels, and stays what it is.
#[test]
fn a_branch_in_use_is_sent() {
    let (from, ..) = small();
    let main = from.branch("main").unwrap();
    main.write_at(3 * UNIT, &[4; PLACE_BYTES]).unwrap();
    let what = from.snapshot("main", || ()).unwrap();
    main.write_at(3 * UNIT, &[5; PLACE_BYTES]).unwrap();
    from.delete("main@1").unwrap();
    reap(&from);
    let mut bytes = Vec::new();
    from.send(&what, "main", &SendOptions::new(), &mut bytes).unwrap();
    let to = new_pool(2000, 2);
    receive(&to, None, &bytes).unwrap();
    assert_eq!(contents(&to, "main")[3 * PLACE_BYTES], 4);
}

#[test]
fn a_full_receiver_gets_its_space_back() {
    let from = new_pool(3000, 1);
    from.create_branch("main", 2000 * UNIT).unwrap();
    let main = from.branch("main").unwrap();
    main.write_at(0, &[1; 1500 * PLACE_BYTES]).unwrap();
    main.close().unwrap();
    let bytes = since(&from, "main", None);
    for places in [200, 700, 1200] {
        let pool = new_pool(places, 2);
        let free = pool.usage().free;
        for _ in 0..3 {
            assert_eq!(refused(&pool, &bytes), Error::Full);
            assert!(pool.usage().free + 8 * UNIT >= free, "{} of {free}", pool.usage().free);
        }
    }
}

/// After a power cut a branch has come whole or not at all, and the pool has its space.
#[test]
fn a_power_cut_leaves_all_or_nothing() {
    let (_, first, second) = small();
    let plan = CrashPlan::default().exhaustive_bits(4).listed_max(6).samples(2);
    let memory = MemoryDevice::with_block_size(600 * UNIT, 4096).unwrap();
    let device = Arc::new(RecordingDevice::new(memory));
    let pool = Pool::create(device.clone(), [2; 16]).unwrap();
    let mut expected = vec![BTreeSet::new()];
    device.mark("begin");
    for (stream, name) in [(&first, "one"), (&second, "two")] {
        receive(&pool, Some(name), stream).unwrap();
        let mut names = expected[expected.len() - 1].clone();
        names.insert(name.to_owned());
        expected.push(names);
        device.mark("received");
        let _ = pool.receive(Some("cut"), &mut &stream[..stream.len() - 1]).unwrap_err();
    }
    let [one, two] = ["one", "two"].map(|name| contents(&pool, name));
    let mut seen = BTreeSet::new();
    for state in device.crash_states(plan).filter(|state| state.marks() > 0) {
        let pool = Pool::open(state.device()).unwrap();
        assert_whole(&pool);
        let (there, marks) = (names(&pool), state.marks());
        let allowed = &expected[marks - 1..expected.len().min(marks + 1)];
        assert!(allowed.contains(&there), "{there:?} after {}", state.id());
        for (name, whole) in [("one", &one), ("two", &two)] {
            if there.contains(name) {
                assert!(contents(&pool, name) == *whole, "{name} after {}", state.id());
            }
        }
        reap(&pool);
        // The contents that are there are still known by its number.
        if there.contains("one") && !there.contains("two") {
            receive(&pool, Some("two"), &second).unwrap();
            assert!(contents(&pool, "two") == two, "after {}", state.id());
        }
        assert_whole(&pool);
        seen.insert((marks, there));
    }
    assert!(seen.len() >= 5, "{seen:?}");
}
