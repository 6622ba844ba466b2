//! Runs the copied code of a call and reads what it has noted.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::code::CodeCache;
use super::context::{Context, Event, enter, leave};
use super::steps::{Access, Step, Trace};
use crate::trace::arena::{self, Arena};
use crate::trace::memory::Mapping;

/// Bytes of the stack of recorded calls.
const STACK_BYTES: usize = 1 << 20;
/// Maximum number of events of a recording. Only touched pages take memory.
const EVENTS_MAX: usize = 1 << 24;
/// Return address that ends a recording; no code has it.
const END: u64 = 0x10;
/// Number of `rsp` in encodings.
const RSP: usize = 4;
/// Number of `rdi` in encodings.
const RDI: usize = 7;
/// `arch_prctl` operation that sets the base of `gs`.
const ARCH_SET_GS: libc::c_int = 0x1001;
/// Offset of the control word `mxcsr` in the `xsave` area.
const CONTROL: usize = 24;
/// Initial value of `mxcsr`: all exceptions are masked.
const CONTROL_AT_FIRST: u32 = 0x1f80;
/// Initial `rflags`: interrupts on, and the bit that is always set.
const FLAGS: u64 = 0x202;

/// Records the calls of one thread. Not `Send`, like its arena.
pub struct Recorder {
    context: NonNull<Context>,
    /// Memory of the context.
    _context_memory: Mapping,
    stack: Mapping,
    events: Mapping,
}

/// A closure and its result.
struct GuestCall<F, R> {
    call: Option<F>,
    result: Option<std::thread::Result<R>>,
}

/// Runs the closure of a job; recorded code begins here.
extern "sysv64" fn begin<F: FnOnce() -> R, R>(job: *mut GuestCall<F, R>) {
    // SAFETY: `record` passes a valid job and does not touch it until this function returns.
    let job = unsafe { &mut *job };
    if let Some(call) = job.call.take() {
        job.result = Some(catch_unwind(AssertUnwindSafe(call)));
    }
}

impl Recorder {
    /// Creates a recorder for the thread that holds this arena, from which host code allocates.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn new(_arena: &Arena) -> std::io::Result<Recorder> {
        let memory = Mapping::new(size_of::<Context>())?;
        let context = memory.start().cast::<Context>();
        let exit = leave as *const () as u64;
        // SAFETY: the memory is new, zeroed, large enough and aligned to a page.
        unsafe { (*context.as_ptr()).exit = exit };
        Ok(Recorder {
            context,
            _context_memory: memory,
            stack: Mapping::new(STACK_BYTES)?,
            events: Mapping::new(EVENTS_MAX * size_of::<Event>())?,
        })
    }

    /// Makes a call and records it. Resumes a panic of the call.
    pub fn record<R>(&mut self, code: &mut CodeCache, call: impl FnOnce() -> R) -> (R, Trace) {
        let mut job = GuestCall { call: Some(call), result: None };
        let entry = entry_of(&job);
        self.set_up(entry, (&raw mut job) as u64);
        let host = arena::as_host();
        let instructions = self.run(code, &host);
        drop(host);
        let trace = self.trace(code, instructions);
        match job.result {
            Some(Ok(result)) => (result, trace),
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("a recorded call ends"),
        }
    }

    /// Sets the registers for the first instruction of a function with one argument.
    fn set_up(&mut self, function: u64, argument: u64) {
        let top = (self.stack.start().as_ptr() as usize + STACK_BYTES - 64) as *mut u64;
        // SAFETY: the context and the stack belong to this recorder, and no copy runs. The stack
        // pointer is 8 below a multiple of 16, as after a call.
        unsafe {
            let stack_pointer = top.sub(1);
            *stack_pointer = END;
            let context = &mut *self.context.as_ptr();
            context.general[RSP] = stack_pointer as u64;
            context.general[RDI] = argument;
            context.pc = function;
            context.flags = FLAGS;
            context.vector.fill(0);
            context.vector[CONTROL..CONTROL + 4].copy_from_slice(&CONTROL_AT_FIRST.to_le_bytes());
            context.cursor = self.events.start().as_ptr() as u64;
            libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, self.context.as_ptr());
        }
    }

    /// Runs to the end of the call; returns the number of instructions.
    fn run(&mut self, code: &mut CodeCache, host: &arena::Host) -> u64 {
        let mut instructions = 0;
        loop {
            // SAFETY: the context belongs to this recorder, and no copy runs.
            let context = unsafe { &mut *self.context.as_ptr() };
            if context.pc == END {
                return instructions;
            }
            let block = code.block(context.pc);
            instructions += u64::from(block.instructions);
            context.code = block.entry;
            let used = context.cursor - self.events.start().as_ptr() as u64;
            assert!(
                used as usize / size_of::<Event>() < EVENTS_MAX / 2,
                "a recorded call does not end"
            );
            // SAFETY: `set_up` has pointed `gs` to the context, and blocks end in `leave`.
            host.leave_for(|| unsafe { enter(self.context.as_ptr()) });
        }
    }

    fn trace(&self, code: &CodeCache, instructions: u64) -> Trace {
        let start = self.events.start().cast::<Event>().as_ptr();
        // SAFETY: copied code wrote this many consecutive events.
        let events = unsafe {
            let end = (*self.context.as_ptr()).cursor;
            let count = (end - start as u64) as usize / size_of::<Event>();
            std::slice::from_raw_parts(start, count)
        };
        read_events(events, code, instructions)
    }
}

/// Returns the address of the code that makes this job's call.
fn entry_of<F: FnOnce() -> R, R>(_: &GuestCall<F, R>) -> u64 {
    begin::<F, R> as *const () as u64
}

/// Converts events to steps.
fn read_events(events: &[Event], code: &CodeCache, instructions: u64) -> Trace {
    use super::code::SiteKind;
    let thread = thread_pointer();
    let mut trace = Trace { instructions, ..Trace::default() };
    let (mut count_before, mut mask) = (0, 0);
    // Accesses of a string instruction, until its repeat count is known.
    let mut repeated: Vec<Access> = Vec::new();
    for event in events {
        let site = code.site(event.site);
        match site.kind {
            SiteKind::Access { size, read, write, in_thread, repeat, masked } => {
                let address = event.value.wrapping_add(if in_thread { thread } else { 0 });
                let whole = Access { address, size: u64::from(size), read, write, ip: site.ip };
                let Some(access) = under_mask(whole, masked, mask) else { continue };
                if repeat { repeated.push(access) } else { trace.steps.push(Step::Access(access)) }
            }
            SiteKind::Mask => mask = event.value,
            SiteKind::CountBefore => count_before = event.value,
            SiteKind::CountAfter => {
                let times = count_before.wrapping_sub(event.value);
                let done = repeated.drain(..).filter(|_| times > 0);
                trace.steps.extend(
                    done.map(|access| Step::Access(Access { size: access.size * times, ..access })),
                );
            }
            SiteKind::Call => trace.steps.push(Step::Call(site.ip)),
            SiteKind::Return => trace.steps.push(Step::Return),
            SiteKind::SystemCall => trace.system_calls += 1,
            SiteKind::NotUnderstood => trace.not_understood += 1,
        }
    }
    trace
}

/// Narrows an access to the range from the first to the last element that its mask selects. An
/// `element` size of 0 means no mask. Returns `None` if the mask is empty.
fn under_mask(access: Access, element: u8, mask: u64) -> Option<Access> {
    if element == 0 {
        return Some(access);
    }
    let elements = access.size / u64::from(element);
    let mask = mask & (u64::MAX >> (64 - elements.clamp(1, 64)));
    let last = mask.checked_ilog2()?;
    let first = mask.trailing_zeros();
    let address = access.address + u64::from(first) * u64::from(element);
    Some(Access { address, size: u64::from(last - first + 1) * u64::from(element), ..access })
}

/// Returns the base of `fs`, which the C library stores at that base.
fn thread_pointer() -> u64 {
    let base: u64;
    // SAFETY: the ABI of thread-local storage puts the pointer there.
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly, preserves_flags));
    }
    base
}
