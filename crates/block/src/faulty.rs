//! A device that fails on purpose.
//!
//! # Purpose
//!
//! The code of a volume must survive a failure of every call. A [`FaultyDevice`] passes calls on to
//! its inner device until one matches a [`Fault`]: the N-th write, every flush from the third on,
//! any call in a range. Calls are counted, so that a test can try all of them:
//!
//! ```
//! use vfscale_block::{Device, Fault, FaultyDevice, MemoryDevice, Operation};
//!
//! let store = |device: &dyn Device| {
//!     device.write_at(0, &[1; 512])?;
//!     device.write_at(512, &[2; 512])?;
//!     device.flush()
//! };
//! let mut tried = 0;
//! for n in 1.. {
//!     let device = FaultyDevice::new(MemoryDevice::new(4096)?);
//!     device.arm(Fault::on(Operation::Write).nth(n));
//!     let stored = store(&device);
//!     if device.fired() == 0 {
//!         stored?;
//!         break;
//!     }
//!     assert!(stored.is_err());
//!     tried = n;
//! }
//! assert_eq!(tried, 2);
//! # Ok::<(), vfscale_block::Error>(())
//! ```
//!
//! # Invariants
//!
//! * A call that matches no fault reaches the inner device unchanged, and once.
//! * A batch counts as its elements, in their order.
//! * Each fault counts the calls of its kind and in its range since it was armed. The effects of
//!   other faults do not change its count.
//!
//! # Durability
//!
//! As for the inner device, unless a fault lies about it. A
//! [`RecordingDevice`](crate::RecordingDevice) inside of a lying device never sees the flush, and
//! so yields the states that the lie permits.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vfscale_sync::{Condvar, Mutex};

use crate::device::CallRange;
use crate::{Device, Discards, Error, Operation, OsError};

vfscale_sync::lock_class! {
    /// The list of faults of a [`FaultyDevice`]. Never held during a call of the inner device.
    pub(crate) FaultPlan = ("fault_plan", 64870);
}

vfscale_sync::lock_class! {
    /// Whether a [`Gate`] is open, and how many calls wait at it.
    pub(crate) GateState = ("fault_gate", 64871);
}

/// Unit of torn writes in bytes: the smallest sector size of any disk.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Trigger {
    Always,
    Nth(u64),
    From(u64),
}

impl Trigger {
    /// Returns whether the fault applies to call number `call`, counted from 1.
    fn applies_to(self, call: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(n) => call == n,
            Self::From(n) => call >= n,
        }
    }
}

/// A gate that delays calls until a test opens it. `Send` and `Sync`.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<(bool, usize), GateState>,
    changed: Condvar,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until `calls` calls wait at the gate, or have passed it.
    pub fn wait_for(&self, calls: usize) {
        drop(self.changed.wait_while(self.state.lock(), |(_, came)| *came < calls));
    }

    /// Opens the gate for all calls from now on.
    pub fn open(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }

    /// Waits until the gate is open.
    fn pass(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(is_open, _)| !*is_open));
    }
}

/// A function of the test that runs when a fault applies.
#[derive(Clone)]
struct Hook(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// Value of the bytes that a garbled write leaves.
const GARBAGE: u8 = 0x6B;

#[derive(Clone, Debug)]
enum Effect {
    Fail(OsError),
    Tear { bytes: u64, error: Option<OsError> },
    Garble,
    Run(Hook),
    Lie,
    Delay(Duration),
    Hold(Arc<Gate>),
    Flip { address: u64, bits: u8 },
}

/// A planned fault of a [`FaultyDevice`]: its effect, and the calls that it applies to. By default
/// every matching call fails with [`OsError::IO`].
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until a device is armed with it"]
pub struct Fault {
    operation: Option<Operation>,
    range: std::ops::Range<u64>,
    trigger: Trigger,
    effect: Effect,
}

impl Fault {
    /// Creates a fault of calls of one kind.
    pub fn on(operation: Operation) -> Self {
        Self { operation: Some(operation), ..Self::on_any() }
    }

    /// Creates a fault of calls of any kind, counted together.
    pub fn on_any() -> Self {
        let (trigger, effect) = (Trigger::Always, Effect::Fail(OsError::IO));
        Self { operation: None, range: 0..u64::MAX, trigger, effect }
    }

    /// Restricts the fault to the `n`-th matching call, counted from 1.
    pub fn nth(self, n: u64) -> Self {
        Self { trigger: Trigger::Nth(n), ..self }
    }

    /// Restricts the fault to the `n`-th matching call, counted from 1, and all later ones.
    pub fn from(self, n: u64) -> Self {
        Self { trigger: Trigger::From(n), ..self }
    }

    /// Restricts the fault to calls that touch these bytes of the device. A flush, or a change of
    /// size, touches no bytes.
    pub fn within(self, range: std::ops::Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Makes the call fail with `error`, such as [`OsError::NO_SPACE`], without any effect.
    pub fn fail(self, error: OsError) -> Self {
        Self { effect: Effect::Fail(error), ..self }
    }

    /// Makes a write fail after its first `bytes`, rounded down to sectors of 512. Other calls fail
    /// without any effect.
    pub fn tear(self, bytes: u64) -> Self {
        Self { effect: Effect::Tear { bytes, error: Some(OsError::IO) }, ..self }
    }

    /// Tears a write like [`tear`](Self::tear), but reports success.
    pub fn tear_silently(self, bytes: u64) -> Self {
        Self { effect: Effect::Tear { bytes, error: None }, ..self }
    }

    /// Makes a write fail and leave garbage in all of its range. Other calls fail without any
    /// effect.
    pub fn garble(self) -> Self {
        Self { effect: Effect::Garble, ..self }
    }

    /// Runs `hook` before the call proceeds, in the caller's thread. It may note the time, or
    /// change the inner device as a part of the fault; another fault may then make the call fail.
    pub fn run(self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self { effect: Effect::Run(Hook(Arc::new(hook))), ..self }
    }

    /// Reports success without doing anything: a lost write, or a flush that the disk ignores. A
    /// read returns zeros.
    pub fn lie(self) -> Self {
        Self { effect: Effect::Lie, ..self }
    }

    /// Sleeps before the call proceeds, in the caller's thread. Other calls are not delayed.
    pub fn delay(self, time: Duration) -> Self {
        Self { effect: Effect::Delay(time), ..self }
    }

    /// Waits at a gate before the call proceeds, in the caller's thread. Other calls are not
    /// delayed.
    pub fn hold(self, gate: &Arc<Gate>) -> Self {
        Self { effect: Effect::Hold(gate.clone()), ..self }
    }

    /// Flips these bits of the byte at `address` in the results of reads. The stored byte does not
    /// change.
    pub fn flip(self, address: u64, bits: u8) -> Self {
        let (operation, range) = (Some(Operation::Read), address..address.saturating_add(1));
        Self { operation, range, effect: Effect::Flip { address, bits }, ..self }
    }

    fn matches(&self, call: CallRange) -> bool {
        let whole = self.range == (0..u64::MAX);
        let touches = call.length > 0
            && call.offset < self.range.end
            && call.offset.saturating_add(call.length) > self.range.start;
        self.operation.is_none_or(|operation| operation == call.operation) && (whole || touches)
    }
}

/// A fault that a device is armed with.
#[derive(Debug)]
struct Armed {
    fault: Fault,
    calls: AtomicU64,
}

/// Number of calls of each kind.
#[derive(Debug, Default)]
struct CallCounts {
    read: AtomicU64,
    write: AtomicU64,
    flush: AtomicU64,
    discard: AtomicU64,
    other: AtomicU64,
}

impl CallCounts {
    fn of(&self, operation: Operation) -> &AtomicU64 {
        match operation {
            Operation::Read => &self.read,
            Operation::Write => &self.write,
            Operation::Flush => &self.flush,
            Operation::Discard => &self.discard,
            Operation::Open | Operation::Resize | Operation::Reserve => &self.other,
        }
    }
}

/// A device that fails on purpose. Counterpart of `dm-flakey` in Linux. See the [module](self).
pub struct FaultyDevice<D> {
    inner: D,
    faults: Mutex<Vec<Arc<Armed>>, FaultPlan>,
    calls: CallCounts,
    fired: AtomicU64,
}

impl<D: Device> FaultyDevice<D> {
    /// Creates a device that passes all calls to `inner` until it is armed.
    pub fn new(inner: D) -> Self {
        let (faults, calls) = (Mutex::new(Vec::new()), CallCounts::default());
        Self { inner, faults, calls, fired: AtomicU64::new(0) }
    }

    /// Adds a fault. If several faults match a call, all delays, gates, hooks and flipped bits take
    /// effect; of the faults that replace the call, only the first one armed does.
    pub fn arm(&self, fault: Fault) {
        let armed = Arc::new(Armed { fault, calls: AtomicU64::new(0) });
        self.faults.lock().push(armed);
    }

    /// Removes all faults. Calls that have already matched one are still affected.
    pub fn disarm(&self) {
        self.faults.lock().clear();
    }

    /// Returns the number of calls of this kind, successful or not.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.calls.of(operation).load(Ordering::Relaxed)
    }

    /// Returns how many times a fault took effect.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Unwraps the inner device.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Counts a call, and returns the effects of the faults that it matches.
    fn meet(&self, call: CallRange) -> Vec<Effect> {
        self.calls.of(call.operation).fetch_add(1, Ordering::Relaxed);
        let faults: Vec<_> = self.faults.lock().iter().cloned().collect();
        let met = faults.iter().filter(|armed| {
            armed.fault.matches(call)
                && armed.fault.trigger.applies_to(armed.calls.fetch_add(1, Ordering::Relaxed) + 1)
        });
        let effects: Vec<_> = met.map(|armed| armed.fault.effect.clone()).collect();
        self.fired.fetch_add(effects.len() as u64, Ordering::Relaxed);
        for effect in &effects {
            match effect {
                Effect::Delay(time) => thread::sleep(*time),
                Effect::Hold(gate) => gate.pass(),
                Effect::Run(Hook(hook)) => hook(),
                _ => {}
            }
        }
        effects
    }

    fn error(&self, call: CallRange, source: OsError) -> Error {
        let CallRange { operation, offset, length } = call;
        Error::Io { device: self.inner.name().into(), operation, offset, length, source }
    }

    /// Runs a call that can't be done in part.
    fn all_or_nothing(
        &self,
        call: CallRange,
        go_on: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        match replacement(&self.meet(call)) {
            None => go_on(),
            Some(Effect::Lie | Effect::Tear { error: None, .. }) => Ok(()),
            Some(effect) => Err(self.error(call, failure(effect))),
        }
    }

    /// Writes the first `bytes` of `buf`, in sectors, even if they end inside of a block of the
    /// device.
    fn write_torn(&self, offset: u64, buf: &[u8], bytes: u64) -> Result<(), Error> {
        let written = usize::try_from(bytes).unwrap_or(usize::MAX).min(buf.len());
        let written = written / SECTOR_BYTES * SECTOR_BYTES;
        let mut whole = buf.to_vec();
        self.inner.read_at(offset + written as u64, &mut whole[written..])?;
        let blocks = written.next_multiple_of(self.inner.block_size() as usize).min(whole.len());
        self.inner.write_at(offset, &whole[..blocks])
    }
}

/// Returns the effect that replaces the call, if any.
fn replacement(effects: &[Effect]) -> Option<Effect> {
    let goes_on = |e: &&Effect| {
        matches!(e, Effect::Delay(_) | Effect::Hold(_) | Effect::Run(_) | Effect::Flip { .. })
    };
    effects.iter().find(|effect| !goes_on(effect)).cloned()
}

fn failure(effect: Effect) -> OsError {
    match effect {
        Effect::Fail(error) | Effect::Tear { error: Some(error), .. } => error,
        _ => OsError::IO,
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        format!("{}, with faults", self.inner.describe())
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let call = CallRange::new(Operation::Read, offset, buf.len()).inside(self)?;
        let effects = self.meet(call);
        match replacement(&effects) {
            None => self.inner.read_at(offset, buf)?,
            Some(Effect::Lie | Effect::Tear { error: None, .. }) => buf.fill(0),
            Some(effect) => return Err(self.error(call, failure(effect))),
        }
        for effect in effects {
            if let Effect::Flip { address, bits } = effect {
                buf[(address - offset) as usize] ^= bits;
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let call = CallRange::new(Operation::Write, offset, buf.len());
        call.inside(self)?.in_blocks(self)?;
        match replacement(&self.meet(call)) {
            None => self.inner.write_at(offset, buf),
            Some(Effect::Lie) => Ok(()),
            Some(Effect::Tear { bytes, error }) => {
                self.write_torn(offset, buf, bytes)?;
                error.map_or(Ok(()), |error| Err(self.error(call, error)))
            }
            Some(Effect::Garble) => {
                self.inner.write_at(offset, &vec![GARBAGE; buf.len()])?;
                Err(self.error(call, OsError::IO))
            }
            Some(effect) => Err(self.error(call, failure(effect))),
        }
    }

    fn flush(&self) -> Result<(), Error> {
        let call = CallRange { operation: Operation::Flush, offset: 0, length: 0 };
        self.all_or_nothing(call, || self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let call = CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        self.all_or_nothing(call, || self.inner.discard(offset, len))
    }

    fn discards(&self) -> Option<Discards> {
        self.inner.discards()
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.inner.identity()
    }

    fn must_reserve(&self) -> bool {
        self.inner.must_reserve()
    }

    fn room(&self) -> Option<u64> {
        self.inner.room()
    }

    fn reserve(&self, blocks: u64, is_urgent: bool) -> Result<(), Error> {
        self.inner.reserve(blocks, is_urgent)
    }

    fn unreserve(&self, blocks: u64) {
        self.inner.unreserve(blocks);
    }

    fn renew(&self, blocks: u64, most: u64) -> u64 {
        self.inner.renew(blocks, most)
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        let call = CallRange { operation: Operation::Reserve, offset: 0, length: 0 };
        self.all_or_nothing(call, || self.inner.reserve_ranges(ranges))
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        let call = CallRange { operation: Operation::Resize, offset: 0, length: 0 };
        self.all_or_nothing(call, || self.inner.set_size(size))
    }
}

impl<D: fmt::Debug> fmt::Debug for FaultyDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDevice")
            .field("inner", &self.inner)
            .field("faults", &*self.faults.lock())
            .field("calls", &self.calls)
            .field("fired", &self.fired)
            .finish()
    }
}

#[cfg(test)]
mod tests;
