//! A store of small values: each value is a file, and a new value replaces the file.
//!
//! The keys are files in 1,000 directories. A put writes the value to a temporary file beside the
//! key's and renames it over that, so a reader sees the old value or the new one, never a part of
//! one. All workers use the same directories, and each has `--files` keys of its own. Keys and
//! sizes of values are drawn from a generator with a fixed seed for each worker.

use std::ffi::CStr;

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

const DIRS: u64 = 1_000;
const VALUE_MIN: usize = 256;
const VALUE_MAX: usize = 4_096;
/// Number of puts whose values a worker checks after each round.
const CHECKED: usize = 32;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreCall {
    Put,
    PutSync,
    Get,
}

pub(super) struct Store(pub(super) StoreCall);

impl Workload for Store {
    type Work<C: Calls> = StoreWork<C>;

    /// Puts a first value for every key. If the puts to come are durable, so are these: otherwise
    /// the file system would write them beside the measured ones.
    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for dir in 0..DIRS {
            calls.mkdir(&name(format!("d{dir:03}")))?;
        }
        for worker in 0..scene.workers {
            let (mut names, mut value) = (Names::new(scene, worker), Value::new(worker));
            let mut rng = Rng::new(scene.random_seed);
            for key in 0..scene.files {
                names.choose(key);
                put(calls, &names, value.make(key, 0, &mut rng), false)?;
            }
        }
        if self.0 == StoreCall::PutSync {
            calls.sync_fs(&calls.open(c".", OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<StoreWork<C>> {
        Ok(StoreWork {
            calls,
            call: self.0,
            names: Names::new(scene, worker),
            value: Value::new(worker),
            rng: Rng::new(scene.random_seed ^ (worker as u64 + 1) << 32),
            keys: scene.files,
            puts: 0,
            last: [(0, 0); CHECKED],
        })
    }

    /// Checks that every key has a value of its own, and that no temporary file is left.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", DIRS as usize)?;
        for dir in 0..DIRS {
            let keys = (scene.files + DIRS - 1 - dir) / DIRS * scene.workers as u64;
            expect_names(calls, &name(format!("d{dir:03}")), keys as usize)?;
        }
        for worker in 0..scene.workers {
            let (mut names, mut value) = (Names::new(scene, worker), Value::new(worker));
            for key in 0..scene.files {
                names.choose(key);
                value.get(calls, &names, key)?;
            }
        }
        Ok(())
    }
}

/// The names for one key of a worker. Their letters are ready before time is taken; choosing a key
/// changes the digits.
struct Names {
    /// `d012/k0-00012`.
    key: Vec<u8>,
    /// `d012/k0-00012.new`.
    temporary: Vec<u8>,
    /// `d012`.
    dir: Vec<u8>,
    /// Number of digits of a key.
    digits: usize,
}

impl Names {
    fn new(scene: &Scene, worker: usize) -> Names {
        let digits = scene.files.max(1).ilog10() as usize + 1;
        let key = format!("d000/k{worker}-{:0digits$}", 0);
        Names {
            temporary: format!("{key}.new\0").into_bytes(),
            key: format!("{key}\0").into_bytes(),
            dir: b"d000\0".to_vec(),
            digits,
        }
    }

    /// Stores the digits of a key, which is below the number of keys, and of its directory.
    #[inline]
    fn choose(&mut self, key: u64) {
        let end = self.key.len() - 1;
        write_digits(&mut self.key[end - self.digits..end], key);
        write_digits(&mut self.key[1..4], key % DIRS);
        self.temporary[..end].copy_from_slice(&self.key[..end]);
        self.dir[1..4].copy_from_slice(&self.key[1..4]);
    }
}

#[inline]
fn write_digits(into: &mut [u8], mut n: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

#[inline]
fn path(bytes: &[u8]) -> &CStr {
    // All names end with the only NUL.
    CStr::from_bytes_with_nul(bytes).unwrap_or_default()
}

/// A buffer for values. A value begins with its owner, its key, its length and the number of the
/// put that wrote it.
struct Value {
    bytes: Vec<u8>,
    worker: u64,
}

const HEAD: usize = 32;

impl Value {
    fn new(worker: usize) -> Value {
        // A byte more than the longest value, so reading shows that a value is too long.
        Value { bytes: vec![0x6b; VALUE_MAX + 1], worker: worker as u64 }
    }

    /// Makes the value of a put, of a random length.
    #[inline]
    fn make(&mut self, key: u64, put: u64, rng: &mut Rng) -> &[u8] {
        let len = VALUE_MIN + rng.below((VALUE_MAX - VALUE_MIN + 1) as u64) as usize;
        let head = [self.worker, key, len as u64, put];
        for (into, n) in self.bytes[..HEAD].chunks_exact_mut(8).zip(head) {
            into.copy_from_slice(&n.to_le_bytes());
        }
        &self.bytes[..len]
    }

    /// Reads the value of a key. Returns the number of the put that wrote it.
    #[inline]
    fn get<C: Calls>(&mut self, calls: &C, names: &Names, key: u64) -> Outcome<u64> {
        let file = calls.open(path(&names.key), OFlags::RDONLY)?;
        let len = calls.pread(&file, &mut self.bytes, 0)?;
        let number = |at: usize| {
            let bytes = self.bytes[at..at + 8].iter().rev();
            bytes.fold(0, |n, byte| n << 8 | u64::from(*byte))
        };
        if len < HEAD || (number(0), number(8), number(16)) != (self.worker, key, len as u64) {
            let key = path(&names.key).to_string_lossy();
            return Err(Fault::wrong(format!("{key} does not hold a value of its key")));
        }
        Ok(number(24))
    }
}

/// Replaces the value of a key. With `is_durable` the file is made durable before it gets its name,
/// and the name before the return.
#[inline]
fn put<C: Calls>(calls: &C, names: &Names, value: &[u8], is_durable: bool) -> Outcome<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let temporary = path(&names.temporary);
    let file = calls.open(temporary, flags)?;
    write_at(calls, &file, value, 0)?;
    if is_durable {
        calls.sync(&file)?;
    }
    drop(file);
    calls.rename(temporary, path(&names.key))?;
    if is_durable {
        calls.sync(&calls.open(path(&names.dir), OFlags::RDONLY | OFlags::DIRECTORY)?)?;
    }
    Ok(())
}

pub(super) struct StoreWork<C: Calls> {
    calls: C,
    call: StoreCall,
    names: Names,
    value: Value,
    rng: Rng,
    keys: u64,
    /// Number of puts so far.
    puts: u64,
    /// The keys and numbers of the last puts; numbers begin at 1.
    last: [(u64, u64); CHECKED],
}

impl<C: Calls> Work for StoreWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        let key = self.rng.below(self.keys);
        self.names.choose(key);
        if self.call == StoreCall::Get {
            self.value.get(&self.calls, &self.names, key)?;
            return Ok(1);
        }
        self.puts += 1;
        let value = self.value.make(key, self.puts, &mut self.rng);
        put(&self.calls, &self.names, value, self.call == StoreCall::PutSync)?;
        self.last[self.puts as usize % CHECKED] = (key, self.puts);
        Ok(1)
    }

    /// Checks that the last keys have the values of the last puts.
    fn end(&mut self) -> Outcome<()> {
        let last = self.last;
        for (key, _) in last.iter().filter(|(_, put)| *put > 0) {
            self.names.choose(*key);
            let seen = self.value.get(&self.calls, &self.names, *key)?;
            let due = last.iter().filter(|(of, _)| of == key).map(|(_, put)| *put).max();
            expect_equal("the number of a put", seen, due.unwrap_or(0))?;
        }
        Ok(())
    }
}
