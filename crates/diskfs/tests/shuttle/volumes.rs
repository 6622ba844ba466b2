//! New volumes in memory for models of volumes, and the schedules of these models.

use std::sync::{Arc, OnceLock};

use shuttle::sync::RwLock;
use shuttle::thread;
use vfscale_block::{Device, MemoryDevice, Operation, OsError};
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_diskfs::{DiskFs, Fault, Settings};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::scaling::Scaling;
use vfscale_testkit::{Call, FaultyDevice, HookedDevice};
use vfscale_vfs::Vfs;

const SCHEDULES: usize = 300;
pub const BYTES: usize = 16 << 20;
pub const PAGE: usize = 4096;
/// The length of a file.
pub const SIZE: usize = 2 * PAGE;
/// The byte that fills unused parts of the device. No read may ever return it.
const POISON: u8 = 0xEE;

/// Runs a model in random schedules.
pub fn schedules(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

/// Returns a new volume. Its bytes are created once for all schedules.
pub fn device() -> Arc<Disk> {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    disk(MADE.get_or_init(|| formatted(256)))
}

/// Returns a new volume with a log that has space for some delayed names.
pub fn device_with_long_log() -> Arc<Disk> {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    disk(MADE.get_or_init(|| formatted(1000)))
}

fn formatted(log_blocks: u64) -> Vec<u8> {
    let mut bytes = vec![POISON; BYTES];
    let device = memory(&bytes);
    let log_blocks = Some(log_blocks);
    let options = MkfsOptions { force: true, log_blocks, ..MkfsOptions::default() };
    mkfs::format(&device, &options).unwrap();
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

pub fn memory(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::with_block_size(BYTES as u64, PAGE as u32).unwrap();
    device.write_at(0, bytes).unwrap();
    device
}

/// A disk whose power can be cut between two writes: a [copy](copy_of) of it shows one moment.
/// Writers share its lock, and a copy takes it exclusively.
pub type Disk = HookedDevice<MemoryDevice, RwLock<()>>;

fn disk(bytes: &[u8]) -> Arc<Disk> {
    Arc::new(HookedDevice::new(memory(bytes), RwLock::new(()), |memory, copying, call| {
        let is_change = matches!(call, Call::Write(..) | Call::Discard(..));
        let _whole = is_change.then(|| copying.read().unwrap());
        call.pass(memory)
    }))
}

/// Returns a device as a power cut at this moment would leave it.
pub fn copy_of(device: &Disk) -> Arc<dyn Device> {
    let mut bytes = vec![0; BYTES];
    let at_once = device.state.write().unwrap();
    device.read_at(0, &mut bytes).unwrap();
    drop(at_once);
    Arc::new(memory(&bytes))
}

/// Returns an error that stops a volume.
pub fn failure() -> Fault {
    Fault::Device(vfscale_block::Error::Io {
        device: "a model".into(),
        operation: Operation::Write,
        offset: 0,
        length: 0,
        source: OsError::IO,
    })
}

/// Asserts that nothing is written to the device while `meanwhile` runs, nor for so long after it
/// that a commit that was not waited for would reach the device.
pub fn assert_no_writes<D: Device>(device: &FaultyDevice<D>, meanwhile: impl FnOnce()) {
    let before = device.calls(Operation::Write);
    meanwhile();
    for _ in 0..100 {
        thread::yield_now();
    }
    assert_eq!(device.calls(Operation::Write), before);
}

/// Returns options of a file system that starts no work by itself, with one list of each kind, for
/// which threads contend.
pub fn one_list() -> Settings {
    let mut settings =
        Settings { data_cache_bytes: 1 << 20, sync_interval: None, ..Settings::default() };
    let scaling = Scaling::before("dirty-list").unwrap();
    settings.journal.scaling = scaling.with_orphan_parts(1);
    settings
}

pub fn mounted(device: Arc<dyn Device>, options: Settings) -> (Arc<DiskFs>, Vfs) {
    let fs = DiskFs::open(device, options).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    (fs, vfs)
}
