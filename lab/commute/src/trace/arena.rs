//! An allocator that never puts objects of two threads on one cache line.
//!
//! An allocator can put objects of two threads on one cache line, and its own metadata is shared
//! among its users. Neither is a property of the code under test. A recording program therefore
//! uses [`Arenas`] as its global allocator. A thread that holds an [`Arena`] allocates all blocks
//! from it: a whole number of lines, aligned to a line. A freed block is added to the freeing
//! thread's list, whichever thread allocated it. The free lists are separate from the blocks, so a
//! free does not touch the block. Host code within a recording (`as_host`) uses a separate part of
//! the arena, because the recorded code may be in the middle of an allocation. What such code has
//! allocated goes back to that part even if other code frees it, as a recording is freed: otherwise
//! each recording would take new memory. All other threads use the system allocator, at the price
//! of one check of a thread-local word.
//!
//! # Invariants
//!
//! * A block never changes its size, which is that of its class.
//! * If a thread without an arena frees a block of an arena, the block is reused only after the
//!   thread with that arena [collects](collect_returned) such blocks. Recorded code does not do
//!   that.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::trace::memory::Mapping;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Address space of one part of an arena. Only touched pages take memory.
const PART_BYTES: usize = 2 << 30;
/// Parts of an arena: one for recorded code and one for host code.
const PARTS: usize = 2;
/// Maximum number of threads that hold an arena simultaneously.
const ARENAS_MAX: usize = 8;
/// Largest size that is rounded up to whole lines; larger ones are rounded up to a power of two.
const EXACT_MAX: usize = 4096;
const EXACT_CLASSES: usize = EXACT_MAX / LINE;
const CLASSES: usize = EXACT_CLASSES + 20;
/// Capacity of a class's list of free blocks. Blocks freed beyond it are never reused.
const FREE_MAX: usize = 1 << 20;

/// Global allocator of a recording program.
pub struct Arenas;

/// Guard that makes this thread allocate from an arena until it is dropped.
#[must_use = "the thread has the arena for as long as this lives"]
pub struct Arena {
    slot: usize,
    /// Makes the type `!Send`: an arena belongs to one thread.
    not_send: PhantomData<*const ()>,
}

/// Allocation state of one part of an arena, on cache lines of its own.
#[repr(align(128))]
struct Part {
    /// Lowest address that was never allocated.
    next: usize,
    end: usize,
    free_counts: [usize; CLASSES],
    /// Table of `FREE_MAX` addresses for each class.
    free: *mut usize,
    /// Size in lines of the block that begins at each line of the part.
    starts: *mut u32,
    base: usize,
}

/// The contents of a block that a thread without an arena has freed.
struct Returned {
    next: *mut Returned,
    class: usize,
}

/// Address of the first arena; 0 until the first one is created.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Blocks of each arena that threads without an arena have freed.
static RETURNED: [AtomicPtr<Returned>; ARENAS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ARENAS_MAX];
static TAKEN: [AtomicBool; ARENAS_MAX] = [const { AtomicBool::new(false) }; ARENAS_MAX];
static ALL: Mutex<Option<Backing>> = Mutex::new(None);

/// Memory of all arenas. It is never unmapped, because blocks may live until the process ends.
struct Backing {
    /// The blocks.
    #[expect(dead_code, reason = "holds the mapping, which must not be unmapped")]
    memory: Mapping,
    /// One [`Part`] for each part of each arena.
    parts: Mapping,
    /// Tables of free blocks, one for each part.
    free: Vec<Mapping>,
    /// Tables of block starts, one for each part.
    starts: Vec<Mapping>,
}

thread_local! {
    static PART: Cell<*mut Part> = const { Cell::new(std::ptr::null_mut()) };
    static HOST: Cell<usize> = const { Cell::new(0) };
}

/// Returns the class of a layout and the bytes of its blocks, or `None` if no class is large
/// enough.
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

impl Part {
    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let Some((class, bytes)) = class_of(layout) else { return std::ptr::null_mut() };
        if let Some(last) = self.free_counts[class].checked_sub(1) {
            self.free_counts[class] = last;
            // SAFETY: `last` was an index below the count, and that many addresses of the class are
            // stored.
            return unsafe { *self.free.add(class * FREE_MAX + last) as *mut u8 };
        }
        // A block of a power of two is aligned to its size, every other one to a line.
        let align = if class < EXACT_CLASSES { LINE } else { bytes };
        let start = self.next.next_multiple_of(align);
        if start + bytes > self.end {
            return std::ptr::null_mut();
        }
        self.next = start + bytes;
        // SAFETY: the table has an entry for each line of the part.
        unsafe { *self.starts.add((start - self.base) / LINE) = (bytes / LINE) as u32 };
        start as *mut u8
    }

    fn free(&mut self, block: *mut u8, class: usize) {
        let count = self.free_counts[class];
        if count < FREE_MAX {
            // SAFETY: the table has `FREE_MAX` addresses for each class, and `count` is below that.
            unsafe { *self.free.add(class * FREE_MAX + count) = block as usize };
            self.free_counts[class] = count + 1;
        }
    }
}

/// Returns the part of this thread's arena that serves the running code, or null without an arena.
#[inline]
fn current_part() -> *mut Part {
    let part = PART.with(Cell::get);
    // SAFETY: the parts of an arena are adjacent, and `HOST` is 0 or 1.
    if part.is_null() { part } else { unsafe { part.add(HOST.with(Cell::get)) } }
}

/// Returns the number of the arena that an address belongs to.
fn arena_of(address: usize) -> Option<usize> {
    let base = BASE.load(Ordering::Relaxed);
    let arena = address.wrapping_sub(base) / (PART_BYTES * PARTS);
    (base != 0 && arena < ARENAS_MAX).then_some(arena)
}

// SAFETY: each block has the size and alignment of its layout and is returned once: it is from the
// thread's own free list, from memory never allocated before, or from the system allocator.
unsafe impl GlobalAlloc for Arenas {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let part = current_part();
        if part.is_null() {
            // SAFETY: the caller's contract is passed on.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: the part belongs to this thread alone, and `Part::alloc` does not allocate.
        unsafe { (*part).alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(arena) = arena_of(block as usize) else {
            // SAFETY: the caller's contract is passed on; a block outside the arenas is the
            // system's.
            return unsafe { System.dealloc(block, layout) };
        };
        let Some((class, _)) = class_of(layout) else { return };
        let part = current_part();
        if part.is_null() {
            return give_back(&RETURNED[arena], block, class);
        }
        // SAFETY: both parts belong to this thread alone, and `Part::free` does not allocate.
        unsafe { (*part_for(block)).free(block, class) }
    }
}

/// Returns the part of this thread's arena whose list gets a freed block: that of host code if it
/// runs, as the other one may be in the middle of an allocation, or if it allocated the block in
/// any arena. The thread has an arena, and the block is from one.
fn part_for(block: *mut u8) -> *mut Part {
    let offset = block as usize - BASE.load(Ordering::Relaxed);
    let of_host = offset / PART_BYTES % PARTS;
    let running = HOST.with(Cell::get);
    // SAFETY: the parts of an arena are adjacent, and both numbers are 0 or 1.
    unsafe { PART.with(Cell::get).add(running | of_host) }
}

/// Puts a freed block on its arena's list of returned ones. The caller has no arena.
fn give_back(list: &AtomicPtr<Returned>, block: *mut u8, class: usize) {
    let block = block.cast::<Returned>();
    let mut next = list.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else uses a freed block; it has a line at least, and is aligned to one.
        unsafe { block.write(Returned { next, class }) };
        let (ok, failed) = (Ordering::Release, Ordering::Relaxed);
        match list.compare_exchange_weak(next, block, ok, failed) {
            Ok(_) => return,
            Err(other) => next = other,
        }
    }
}

impl Arena {
    /// Creates the arena of this thread.
    ///
    /// # Errors
    /// If the system has no memory, or too many threads hold an arena.
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
            // SAFETY: there are `ARENAS_MAX` times `PARTS` of them, and `slot` is below
            // `ARENAS_MAX`.
            let own = unsafe { all.parts.start().cast::<Part>().add(slot * PARTS) };
            PART.with(|mine| mine.set(own.as_ptr()));
        }
        Ok(Arena { slot, not_send: PhantomData })
    }
}

/// Lets this thread's arena reuse those of its blocks that threads without one have freed, such as
/// a volume's. Does nothing in a thread without an arena.
pub fn collect_returned() {
    let part = current_part();
    if part.is_null() {
        return;
    }
    // SAFETY: the part belongs to this thread alone.
    let Some(arena) = arena_of(unsafe { (*part).base }) else { return };
    let mut next = RETURNED[arena].swap(std::ptr::null_mut(), Ordering::Acquire);
    while !next.is_null() {
        // SAFETY: `give_back` has written it, and the list belongs to this thread alone since the
        // swap.
        let block = unsafe { next.read() };
        // SAFETY: both parts belong to this thread alone.
        unsafe { (*part_for(next.cast())).free(next.cast(), block.class) };
        next = block.next;
    }
}

fn make_all() -> io::Result<Backing> {
    let memory = Mapping::new(PART_BYTES * PARTS * ARENAS_MAX)?;
    let base = memory.start().as_ptr() as usize;
    let parts = Mapping::new(size_of::<Part>() * PARTS * ARENAS_MAX)?;
    let mut all = Backing { memory, parts, free: Vec::new(), starts: Vec::new() };
    for part in 0..PARTS * ARENAS_MAX {
        let free = Mapping::new(CLASSES * FREE_MAX * size_of::<usize>())?;
        let starts = Mapping::new(PART_BYTES / LINE * size_of::<u32>())?;
        let start = base + part * PART_BYTES;
        let made = Part {
            next: start,
            end: start + PART_BYTES,
            free_counts: [0; CLASSES],
            free: free.start().cast().as_ptr(),
            starts: starts.start().cast().as_ptr(),
            base: start,
        };
        // SAFETY: the mapping has room for all of them and is aligned to a page.
        unsafe { all.parts.start().cast::<Part>().add(part).write(made) };
        all.free.push(free);
        all.starts.push(starts);
    }
    BASE.store(base, Ordering::Relaxed);
    Ok(all)
}

impl Drop for Arena {
    fn drop(&mut self) {
        PART.with(|own| own.set(std::ptr::null_mut()));
        TAKEN[self.slot].store(false, Ordering::Release);
    }
}

/// A block of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOf {
    /// Address of the first byte.
    pub start: u64,
    /// Size, which may be larger than the one requested.
    pub bytes: u64,
}

/// Returns the block that contains an address, if the address is in an arena.
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
        // SAFETY: the table has an entry for each line of the part.
        let lines = unsafe { starts.add(start).read_volatile() } as usize;
        if lines != 0 {
            let bytes = (lines * LINE) as u64;
            let start = (base + offset / PART_BYTES * PART_BYTES + start * LINE) as u64;
            return (address < start + bytes).then_some(BlockOf { start, bytes });
        }
    }
    None
}

/// Guard that marks the running code of this thread as host code of a recording.
pub(crate) struct Host(());

/// Marks the running code of this thread as host code until the guard is dropped.
pub(crate) fn as_host() -> Host {
    HOST.with(|host| host.set(1));
    Host(())
}

impl Host {
    /// Runs recorded code with host mode off.
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
