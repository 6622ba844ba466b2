//! Chunks of 64 KiB, carved into objects, and the regions of memory that they come from.
//!
//! A chunk starts at a multiple of its size: the chunk of an object is found by its address. Its
//! header has the number of its depot, which never changes, and marks the free objects in a bitmap,
//! which is used under the lock of that depot.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{self, NonNull};

/// The size and alignment of a chunk in bytes.
pub(super) const CHUNK: usize = 64 << 10;
/// The minimum distance of two objects: a line, so no two share one.
const OBJECT_ALIGN: usize = 64;
/// Number of words of a bitmap, enough for the smallest objects.
const WORDS: usize = CHUNK / OBJECT_ALIGN / 64;
/// Maximum number of chunks that are wholly free and retain their memory.
const RESERVE: usize = 4;
/// Number of chunks that are mapped together. Their memory becomes resident when it is touched.
const REGION_CHUNKS: usize = if cfg!(miri) { 1 } else { 128 };

/// Size and offset of the objects in a chunk.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    size: usize,
    stride: usize,
    first: usize,
    count: usize,
}

impl Shape {
    /// Returns the shape for objects of type `T`, checked at compile time.
    pub(super) const fn of<T>() -> Self {
        let align = if align_of::<T>() > OBJECT_ALIGN { align_of::<T>() } else { OBJECT_ALIGN };
        let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
        let stride = size.next_multiple_of(align);
        let first = size_of::<Header>().next_multiple_of(align);
        assert!(stride <= CHUNK / 8, "objects of a slab are at most 8 KiB");
        Self { size: size_of::<T>(), stride, first, count: (CHUNK - first) / stride }
    }

    /// Returns the size of an object in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the memory that an object takes, in bytes.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Aborts like the standard library without memory.
    pub(super) fn out_of_memory(&self) -> ! {
        handle_alloc_error(Layout::from_size_align(CHUNK, CHUNK).unwrap_or(Layout::new::<u64>()))
    }
}

/// The start of a chunk.
struct Header {
    /// The number of the depot.
    depot: usize,
    state: State,
}

/// The part of a header that is used under the lock of the depot.
struct State {
    /// A set bit for each free object.
    free: [u64; WORDS],
    free_count: usize,
    /// The index in the list of partly free chunks.
    position: usize,
}

type Chunk = NonNull<Header>;

/// Returns the state of a chunk.
///
/// # Safety
///
/// The chunk is valid, and the caller holds the lock of its depot as long as it uses the state; no
/// two states of one chunk are in use.
unsafe fn state_of<'c>(chunk: Chunk) -> &'c mut State {
    // SAFETY: as the caller promises. Only the state is borrowed, since other threads may read the
    // rest of the header.
    unsafe { &mut (*chunk.as_ptr()).state }
}

/// Returns the chunk of an object, and the object's offset in it.
fn chunk_of(object: NonNull<u8>) -> (Chunk, usize) {
    let offset = object.addr().get() % CHUNK;
    // SAFETY: The object is in a chunk, which starts at a multiple of its size.
    (unsafe { object.sub(offset) }.cast(), offset)
}

/// Returns the number of the depot that an object's chunk belongs to. The object is in use, or free
/// and not in its chunk's bitmap.
pub(super) fn depot_of(object: NonNull<u8>) -> usize {
    let (chunk, _) = chunk_of(object);
    // SAFETY: The chunk is valid as long as the object is outside of its bitmap. The word was
    // written before any of its objects was handed out, and never since.
    unsafe { (*chunk.as_ptr()).depot }
}

/// The chunks of a depot.
pub(super) struct Chunks {
    shape: Shape,
    /// The number of the depot.
    depot: usize,
    /// Chunks with free and with used objects. Chunks without free objects are in no list.
    partial: Vec<Chunk>,
    /// Chunks without used objects, with their memory.
    whole: Vec<Chunk>,
    /// Chunks whose memory was returned to the system: addresses only.
    void: Vec<NonNull<u8>>,
    /// The mappings of the chunks.
    regions: Vec<memory::Region>,
    resident: usize,
}

impl Chunks {
    pub(super) fn new(shape: Shape, depot: usize) -> Self {
        Self {
            shape,
            depot,
            partial: Vec::new(),
            whole: Vec::new(),
            void: Vec::new(),
            regions: Vec::new(),
            resident: 0,
        }
    }

    /// Returns the memory of chunks that are in use or in reserve, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.resident * CHUNK
    }

    /// Takes up to `count` free objects, at least one, from chunks that are in use if there are
    /// any. Aborts if there is no memory.
    pub(super) fn carve(&mut self, count: usize, into: &mut Vec<NonNull<u8>>) {
        let chunk = match self.partial.last() {
            Some(chunk) => *chunk,
            None => self.add_partial(),
        };
        // SAFETY: Chunks in the lists are valid, and the depot's lock makes them ours.
        let state = unsafe { state_of(chunk) };
        for _ in 0..count.min(state.free_count) {
            let Some(word) = state.free.iter().position(|word| *word != 0) else { break };
            let bit = state.free[word].trailing_zeros() as usize;
            state.free[word] &= state.free[word] - 1;
            state.free_count -= 1;
            let offset = self.shape.first + (word * 64 + bit) * self.shape.stride;
            // SAFETY: The offset is within the chunk, as the bit was set.
            into.push(unsafe { chunk.cast::<u8>().add(offset) });
        }
        if state.free_count == 0 {
            self.partial.pop();
        }
    }

    /// Puts a chunk without used objects at the end of the list of partly free ones.
    fn add_partial(&mut self) -> Chunk {
        let chunk = match self.whole.pop() {
            Some(chunk) => chunk,
            None => self.add_chunk(),
        };
        // SAFETY: Chunks in the lists are valid, and the depot's lock makes them ours.
        unsafe { state_of(chunk) }.position = self.partial.len();
        self.partial.push(chunk);
        chunk
    }

    /// Returns a chunk with fresh memory.
    fn add_chunk(&mut self) -> Chunk {
        if self.void.is_empty() {
            let Some(region) = memory::Region::new(REGION_CHUNKS) else {
                self.shape.out_of_memory();
            };
            self.void.extend(region.chunks().rev());
            self.regions.push(region);
        }
        let Some(memory) = self.void.pop() else { self.shape.out_of_memory() };
        let mut state = State { free: [0; WORDS], free_count: self.shape.count, position: 0 };
        for index in 0..self.shape.count {
            state.free[index / 64] |= 1 << (index % 64);
        }
        let chunk = memory.cast::<Header>();
        // SAFETY: The chunk is large and aligned enough, and no other thread has it.
        unsafe { chunk.write(Header { depot: self.depot, state }) };
        self.resident += 1;
        chunk
    }

    /// Marks an object as free in its chunk, and returns the chunk's memory to the system if it was
    /// the last one in use and the reserve is full.
    pub(super) fn put(&mut self, object: NonNull<u8>) {
        debug_assert!(depot_of(object) == self.depot, "an object of another depot");
        let (chunk, offset) = chunk_of(object);
        let index = (offset - self.shape.first) / self.shape.stride;
        // SAFETY: The chunk of an object is valid, and the depot's lock makes it ours.
        let state = unsafe { state_of(chunk) };
        let bit = 1 << (index % 64);
        debug_assert!(state.free[index / 64] & bit == 0, "an object was freed twice");
        state.free[index / 64] |= bit;
        state.free_count += 1;
        if state.free_count == 1 {
            state.position = self.partial.len();
            self.partial.push(chunk);
        }
        if state.free_count == self.shape.count {
            let position = state.position;
            self.partial.swap_remove(position);
            if let Some(moved) = self.partial.get(position) {
                // SAFETY: Chunks in the lists are valid and ours; it is another chunk than `chunk`.
                unsafe { state_of(*moved) }.position = position;
            }
            self.whole.push(chunk);
            if self.whole.len() > RESERVE {
                self.discard_one();
            }
        }
    }

    /// Returns the memory of the reserve to the system.
    pub(super) fn discard_reserve(&mut self) {
        while self.discard_one() {}
    }

    /// Returns the memory of one chunk of the reserve to the system. Returns false if there is
    /// none.
    fn discard_one(&mut self) -> bool {
        let Some(chunk) = self.whole.pop() else { return false };
        memory::discard(chunk.cast());
        self.void.push(chunk.cast());
        self.resident -= 1;
        true
    }
}

/// Memory of the system, in regions of whole chunks.
#[cfg(not(miri))]
mod memory {
    use super::{CHUNK, NonNull, ptr};

    /// Consecutive chunks. Dropping it unmaps them.
    pub(super) struct Region {
        mapping: NonNull<u8>,
        len: usize,
    }

    impl Region {
        /// Maps address space for `count` chunks, without memory so far.
        pub(super) fn new(count: usize) -> Option<Self> {
            // One chunk more, since the start of the mapping need not be aligned.
            let len = (count + 1) * CHUNK;
            // SAFETY: A new anonymous mapping at an address of the kernel's choice affects no other
            // memory.
            let mapping = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    len,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if mapping == libc::MAP_FAILED {
                return None;
            }
            Some(Self { mapping: NonNull::new(mapping.cast())?, len })
        }

        /// Returns the chunks within.
        pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = NonNull<u8>> + use<> {
            let skip = self.mapping.align_offset(CHUNK);
            let (mapping, count) = (self.mapping, self.len / CHUNK - 1);
            // SAFETY: `skip` is less than a chunk, so all of these are within the mapping.
            (0..count).map(move |index| unsafe { mapping.add(skip + index * CHUNK) })
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: The mapping is ours, and no part of it is used any more. The call can't fail
            // for a whole mapping, and a failure would only leak it.
            unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.len) };
        }
    }

    /// Returns the memory of a chunk to the system; its addresses remain ours.
    pub(super) fn discard(chunk: NonNull<u8>) {
        // SAFETY: The chunk is in a mapping of ours, and its contents are not needed. If the kernel
        // refuses, the memory merely remains resident.
        unsafe { libc::madvise(chunk.as_ptr().cast(), CHUNK, libc::MADV_DONTNEED) };
    }
}

/// Memory for Miri, which has no `madvise`.
#[cfg(miri)]
mod memory {
    use super::{CHUNK, Layout, NonNull};
    use std::alloc::{alloc, dealloc};

    pub(super) struct Region(NonNull<u8>);

    impl Region {
        fn layout() -> Option<Layout> {
            Layout::from_size_align(CHUNK, CHUNK).ok()
        }

        pub(super) fn new(count: usize) -> Option<Self> {
            assert_eq!(count, 1);
            // SAFETY: The layout isn't empty.
            NonNull::new(unsafe { alloc(Self::layout()?) }).map(Self)
        }

        pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = NonNull<u8>> + use<> {
            std::iter::once(self.0)
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            if let Some(layout) = Self::layout() {
                // SAFETY: Allocated with this layout.
                unsafe { dealloc(self.0.as_ptr(), layout) };
            }
        }
    }

    pub(super) fn discard(_: NonNull<u8>) {}
}
