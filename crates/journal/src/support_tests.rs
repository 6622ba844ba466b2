//! Helpers that the tests of several modules use.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use vfscale_block::{Device, MemoryDevice};

use crate::{
    Error, Hooks, ItemState, Journal, LogItem, LogKey, LogVector, Lsn, Options, Pushed, Recovered,
    RecoverySink, Region, Result, VolumeId,
};
use vfscale_sync::scaling::Scaling;

pub(crate) const VOLUME: VolumeId = VolumeId([7; 16]);
pub(crate) const LOG: Region = Region { offset: 8192, length: 1 << 20 };

/// An item that consists of some bytes, and has no on-disk location.
pub(crate) struct Thing {
    state: ItemState,
    key: LogKey,
    pub(crate) bytes: Mutex<Option<Vec<u8>>>,
    pub(crate) committed: AtomicU64,
    pub(crate) logged: AtomicU64,
    pub(crate) pushes: AtomicUsize,
    pub(crate) aborts: AtomicUsize,
}

impl Thing {
    /// Memory of each item, as it reports it.
    pub(crate) const MEMORY_BYTES: usize = 1000;

    pub(crate) fn new(id: u64, bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            state: ItemState::new(),
            key: LogKey { kind: 3, id },
            bytes: Mutex::new(Some(bytes.to_vec())),
            committed: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            pushes: AtomicUsize::new(0),
            aborts: AtomicUsize::new(0),
        })
    }

    /// Sets the contents that it logs from now on; `None`: a cancellation.
    pub(crate) fn set(&self, bytes: Option<&[u8]>) {
        *self.bytes.lock().unwrap() = bytes.map(<[u8]>::to_vec);
    }
}

impl LogItem for Thing {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn key(&self) -> LogKey {
        self.key
    }

    fn format(&self, vector: &mut LogVector) {
        match &*self.bytes.lock().unwrap() {
            Some(bytes) => vector.push(bytes),
            None => vector.cancel(),
        }
    }

    fn memory_bytes(&self) -> usize {
        Self::MEMORY_BYTES
    }

    fn push(&self, _: Lsn) -> Result<Pushed> {
        if self.state.is_pinned() {
            return Ok(Pushed::Pinned);
        }
        self.pushes.fetch_add(1, Ordering::Relaxed);
        Ok(Pushed::Written)
    }

    fn logged(&self, sequence: u64) {
        self.logged.store(sequence, Ordering::Relaxed);
    }

    fn committed(&self, lsn: Lsn) {
        self.committed.store(lsn.to_bits(), Ordering::Relaxed);
    }

    fn aborted(&self, _: &Error) {
        self.aborts.fetch_add(1, Ordering::Relaxed);
    }
}

/// A sink that collects replayed items.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) replayed: Vec<(u64, Vec<u8>, Lsn)>,
    pub(crate) finished: usize,
}

impl Sink {
    /// Returns the last contents of each item.
    pub(crate) fn last(&self) -> BTreeMap<u64, Vec<u8>> {
        self.replayed.iter().map(|(id, bytes, _)| (*id, bytes.clone())).collect()
    }
}

impl RecoverySink for Sink {
    fn replay(&mut self, key: LogKey, bytes: &[u8], lsn: Lsn) -> Result<()> {
        self.replayed.push((key.id, bytes.to_vec(), lsn));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.finished += 1;
        Ok(())
    }
}

pub(crate) fn device() -> Arc<dyn Device> {
    let device = MemoryDevice::new(LOG.offset + LOG.length + 4096).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    Arc::new(device)
}

pub(crate) fn options() -> Options {
    Options { scaling: Scaling::with_slots(4), sync_interval: None, ..Options::default() }
}

pub(crate) fn open_with(
    device: &Arc<dyn Device>,
    hooks: Arc<dyn Hooks>,
    options: Options,
) -> Result<(Journal, Recovered, Sink)> {
    let mut sink = Sink::default();
    let opened = Journal::open(device.clone(), LOG, VOLUME, hooks, &mut sink, options);
    opened.map(|(journal, recovered)| (journal, recovered, sink))
}

pub(crate) fn open(device: &Arc<dyn Device>) -> (Journal, Recovered, Sink) {
    open_with(device, Arc::new(crate::NoHooks), options()).unwrap()
}

/// Returns the bytes that would be written of `vector`.
pub(crate) fn bytes_of(vector: &LogVector) -> Vec<u8> {
    let mut all = Vec::new();
    let write = &mut |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        Ok(())
    };
    vector.write(write).unwrap();
    assert_eq!(all.len(), vector.len());
    all
}
