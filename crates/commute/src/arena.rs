//! Memory that two threads never share a line of by accident.
//!
//! Two objects that belong to different threads may lie on one cache line only because an allocator put
//! them there, and every allocator has lines of its own that its users meet on. Neither says anything
//! about the code that is recorded. So a program that records has [`Arenas`] as its allocator: a thread
//! with an
//! [`Arena`] gets every block from there, a whole number of lines, aligned to a line. A thread keeps what it
//! frees, whoever allocated it. Which blocks are free stands apart from them, so that freeing doesn't
//! touch them. Host code within a recording (`as_host`) has a part of the arena for itself, since what is
//! recorded may be in the middle of an allocation. All other threads are served by the system as ever, for
//! the price of looking at a thread-local word.
//!
//! # Invariants
//!
//! * A block has one size for ever, that of its class.
//! * What a thread without an arena frees of an arena is not used again. Programs drop what they made in
//!   arenas on threads that have one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::memory::Mapping;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Addresses of a part of an arena. Only what is touched costs memory.
const PART_BYTES: usize = 2 << 30;
/// Parts of an arena: the thread's own, and that of host code.
const PARTS: usize = 2;
/// Threads that may have an arena at the same time.
const ARENAS_MAX: usize = 8;
/// Blocks up to here are of as many lines as they need; others of a power of two.
const EXACT_MAX: usize = 4096;
const EXACT_CLASSES: usize = EXACT_MAX / LINE;
const CLASSES: usize = EXACT_CLASSES + 20;
/// Free blocks of a class; what is freed beyond is not used again.
const FREE_MAX: usize = 1 << 20;

/// The allocator of a program that records.
pub struct Arenas;

/// Gives this thread an arena until it is dropped.
#[must_use = "the thread has the arena for as long as this lives"]
pub struct Arena {
    slot: usize,
    /// It belongs to one thread.
    not_send: PhantomData<*const ()>,
}

/// A part of an arena, and which of it is in use. On lines of its own.
#[repr(align(128))]
struct Own {
    /// The first byte that was never given out.
    next: usize,
    end: usize,
    free_counts: [usize; CLASSES],
    /// `FREE_MAX` addresses for each class.
    free: *mut usize,
    /// For each line of the arena, the lines of the block that begins there.
    starts: *mut u32,
    base: usize,
}

/// The address of the first arena, once there is one.
static BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: [AtomicBool; ARENAS_MAX] = [const { AtomicBool::new(false) }; ARENAS_MAX];
static ALL: Mutex<Option<Backing>> = Mutex::new(None);

/// What arenas lie in; it stays until the process ends, for blocks may live as long.
struct Backing {
    /// Where blocks are.
    #[expect(dead_code, reason = "kept, so that it is not unmapped")]
    memory: Mapping,
    /// An [`Own`] for each part of each arena.
    owns: Mapping,
    /// Free blocks of each part, in the same order.
    free: Vec<Mapping>,
    /// Where blocks begin, likewise.
    starts: Vec<Mapping>,
}

thread_local! {
    static OWN: Cell<*mut Own> = const { Cell::new(std::ptr::null_mut()) };
    static HOST: Cell<usize> = const { Cell::new(0) };
}

/// The class of a layout, and the bytes of its blocks; `None` if it is larger than any.
fn class_of(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(1);
    if bytes <= EXACT_MAX && layout.align() <= LINE {
        let lines = bytes.div_ceil(LINE);
        return Some((lines - 1, lines * LINE));
    }
    let bytes = bytes.max(layout.align()).next_power_of_two();
    let class = EXACT_CLASSES + (bytes.trailing_zeros() - LINE.trailing_zeros()) as usize;
    (class < CLASSES).then_some((class, bytes))
}

impl Own {
    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some((class, bytes)) = class_of(layout) else { return std::ptr::null_mut() };
        if let Some(last) = self.free_counts[class].checked_sub(1) {
            self.free_counts[class] = last;
            // SAFETY: that many addresses of the class were stored.
            return unsafe { *self.free.add(class * FREE_MAX + last) as *mut u8 };
        }
        // Blocks of a power of two are aligned to their size, and others to a line.
        let align = if class < EXACT_CLASSES { LINE } else { bytes };
        let start = self.next.next_multiple_of(align);
        if start + bytes > self.end {
            return std::ptr::null_mut();
        }
        self.next = start + bytes;
        // SAFETY: the table has an entry for each line of the arena.
        unsafe { *self.starts.add((start - self.base) / LINE) = (bytes / LINE) as u32 };
        start as *mut u8
    }

    fn free(&mut self, block: *mut u8, layout: Layout) {
        let Some((class, _)) = class_of(layout) else { return };
        let count = self.free_counts[class];
        if count < FREE_MAX {
            // SAFETY: there is room for so many addresses.
            unsafe { *self.free.add(class * FREE_MAX + count) = block as usize };
            self.free_counts[class] = count + 1;
        }
    }
}

/// The part of this thread's arena that is to be used.
#[inline]
fn mine() -> *mut Own {
    let own = OWN.with(Cell::get);
    // SAFETY: the parts of an arena lie one behind the other.
    if own.is_null() { own } else { unsafe { own.add(HOST.with(Cell::get)) } }
}

fn is_of_arenas(block: *mut u8) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && (block as usize).wrapping_sub(base) < PART_BYTES * PARTS * ARENAS_MAX
}

// SAFETY: blocks are as large and as aligned as asked for, and in one hand: they come from a thread's list or
// from what it never gave out, or from the system.
unsafe impl GlobalAlloc for Arenas {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let own = mine();
        if own.is_null() {
            // SAFETY: passed on.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: only this thread has it, and nothing in there allocates.
        unsafe { (*own).alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_of_arenas(block) {
            // SAFETY: passed on; what is not of an arena is of the system.
            return unsafe { System.dealloc(block, layout) };
        }
        let own = mine();
        if !own.is_null() {
            // SAFETY: only this thread has it, and nothing in there allocates.
            unsafe { (*own).free(block, layout) }
        }
    }
}

impl Arena {
    /// An arena for this thread.
    ///
    /// # Errors
    /// If the system has no memory, or too many threads have one.
    pub fn new() -> io::Result<Arena> {
        let taken = |slot: &usize| {
            let free =
                TAKEN[*slot].compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            free.is_ok()
        };
        let slot = (0..ARENAS_MAX).find(taken).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut all = ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if all.is_none() {
            *all = Some(make_all()?);
        }
        if let Some(all) = all.as_ref() {
            // SAFETY: there are so many.
            let own = unsafe { all.owns.start().cast::<Own>().add(slot * PARTS) };
            OWN.with(|mine| mine.set(own.as_ptr()));
        }
        Ok(Arena { slot, not_send: PhantomData })
    }
}

fn make_all() -> io::Result<Backing> {
    let memory = Mapping::new(PART_BYTES * PARTS * ARENAS_MAX)?;
    let base = memory.start().as_ptr() as usize;
    let owns = Mapping::new(size_of::<Own>() * PARTS * ARENAS_MAX)?;
    let mut all = Backing { memory, owns, free: Vec::new(), starts: Vec::new() };
    for part in 0..PARTS * ARENAS_MAX {
        let free = Mapping::new(CLASSES * FREE_MAX * size_of::<usize>())?;
        let starts = Mapping::new(PART_BYTES / LINE * size_of::<u32>())?;
        let start = base + part * PART_BYTES;
        let made = Own {
            next: start,
            end: start + PART_BYTES,
            free_counts: [0; CLASSES],
            free: free.start().cast().as_ptr(),
            starts: starts.start().cast().as_ptr(),
            base: start,
        };
        // SAFETY: fresh memory for that many, aligned to a page.
        unsafe { all.owns.start().cast::<Own>().add(part).write(made) };
        all.free.push(free);
        all.starts.push(starts);
    }
    BASE.store(base, Ordering::Relaxed);
    Ok(all)
}

impl Drop for Arena {
    fn drop(&mut self) {
        OWN.with(|own| own.set(std::ptr::null_mut()));
        TAKEN[self.slot].store(false, Ordering::Release);
    }
}

/// A block of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOf {
    /// Its first byte.
    pub start: u64,
    /// Its size, which may be larger than what was asked for.
    pub bytes: u64,
}

/// The block that an address belongs to, if it is of an arena.
#[must_use]
pub fn block_of(address: u64) -> Option<BlockOf> {
    let base = BASE.load(Ordering::Relaxed);
    let offset = (address as usize).wrapping_sub(base);
    if base == 0 || offset >= PART_BYTES * PARTS * ARENAS_MAX {
        return None;
    }
    let all = ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let starts = all.as_ref()?.starts[offset / PART_BYTES].start().cast::<u32>();
    let line = offset % PART_BYTES / LINE;
    for start in (0..=line).rev() {
        // SAFETY: the table has an entry for each line of the arena.
        let lines = unsafe { starts.add(start).read_volatile() } as usize;
        if lines != 0 {
            let bytes = (lines * LINE) as u64;
            let start = (base + offset / PART_BYTES * PART_BYTES + start * LINE) as u64;
            return (address < start + bytes).then_some(BlockOf { start, bytes });
        }
    }
    None
}

/// Host code of a recording runs on this thread until it is dropped.
pub(crate) struct Host(());

/// See [`Host`].
pub(crate) fn as_host() -> Host {
    HOST.with(|host| host.set(1));
    Host(())
}

impl Host {
    /// Runs what is recorded.
    pub(crate) fn leave_for(&self, guest: impl FnOnce()) {
        HOST.with(|host| host.set(0));
        guest();
        HOST.with(|host| host.set(1));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        HOST.with(|host| host.set(0));
    }
}

#[cfg(test)]
mod tests;
