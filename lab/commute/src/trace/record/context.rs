//! The registers of a recorded thread, and the entry to and exit from copied code.
//!
//! `gs` points to a [`Context`]. [`enter`] loads all registers from it and jumps into a copy. A
//! copy ends with a jump to [`leave`], which stores the registers and returns to the caller of
//! `enter`.

use std::arch::naked_asm;
use std::mem::offset_of;

/// Bytes for the vector registers and the rest of the `xsave` area.
const VECTOR_BYTES: usize = 16 << 10;

/// State of a recorded thread that copied code accesses through `gs`.
#[repr(C, align(64))]
pub(super) struct Context {
    pub(super) general: [u64; 16],
    /// Address in the original code.
    pub(super) pc: u64,
    pub(super) flags: u64,
    pub(super) scratch: [u64; 2],
    /// Address of the next event.
    pub(super) cursor: u64,
    host_stack: u64,
    /// Address of the copy to continue with.
    pub(super) code: u64,
    /// Address of [`leave`].
    pub(super) exit: u64,
    pub(super) vector: [u8; VECTOR_BYTES],
}

/// An entry of the recording buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Event {
    /// An address or a count.
    pub(super) value: u64,
    /// Index into the sites of a [`CodeCache`](super::code::CodeCache).
    pub(super) site: u32,
    pub(super) unused: u32,
}

/// Loads the registers from the context and jumps to its `code`. Returns after [`leave`].
///
/// # Safety
/// `context` is valid, `gs` points to it, and its `code` is a copy that ends in `leave`.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn enter(context: *mut Context) {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        "mov [rdi + {host}], rsp",
        "mov eax, -1", "mov edx, -1", "xrstor64 [rdi + {vector}]",
        "push qword ptr [rdi + {flags}]", "popfq",
        "mov rax, [rdi]", "mov rcx, [rdi + 8]", "mov rdx, [rdi + 16]", "mov rbx, [rdi + 24]",
        "mov rsp, [rdi + 32]", "mov rbp, [rdi + 40]", "mov rsi, [rdi + 48]",
        "mov r8, [rdi + 64]", "mov r9, [rdi + 72]", "mov r10, [rdi + 80]", "mov r11, [rdi + 88]",
        "mov r12, [rdi + 96]", "mov r13, [rdi + 104]", "mov r14, [rdi + 112]", "mov r15, [rdi + 120]",
        "mov rdi, [rdi + 56]",
        "jmp qword ptr gs:[{code}]",
        host = const offset_of!(Context, host_stack),
        vector = const offset_of!(Context, vector),
        flags = const offset_of!(Context, flags),
        code = const offset_of!(Context, code),
    )
}

/// Stores all registers in the context that `gs` points to, and returns from [`enter`].
///
/// # Safety
/// Only copied code jumps here.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn leave() {
    naked_asm!(
        "mov gs:[0], rax", "mov gs:[8], rcx", "mov gs:[16], rdx", "mov gs:[24], rbx",
        "mov gs:[32], rsp", "mov gs:[40], rbp", "mov gs:[48], rsi", "mov gs:[56], rdi",
        "mov gs:[64], r8", "mov gs:[72], r9", "mov gs:[80], r10", "mov gs:[88], r11",
        "mov gs:[96], r12", "mov gs:[104], r13", "mov gs:[112], r14", "mov gs:[120], r15",
        "mov rsp, gs:[{host}]",
        "pushfq", "pop qword ptr gs:[{flags}]",
        "mov eax, -1", "mov edx, -1", "xsave64 gs:[{vector}]",
        "cld",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        host = const offset_of!(Context, host_stack),
        vector = const offset_of!(Context, vector),
        flags = const offset_of!(Context, flags),
    )
}
