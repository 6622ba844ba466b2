//! Instruction encodings that copies add to the original code.
//!
//! None of the instructions changes a flag.

use std::mem::offset_of;

use super::context::Context;

/// General registers that the added code uses, by their number in encodings.
#[derive(Clone, Copy)]
pub(super) enum Register {
    Rax = 0,
    Rcx = 1,
}

/// Length of the code of [`exit_to`] in bytes.
pub(super) const EXIT_BYTES: u8 = 32;

const SCRATCH: [usize; 2] = [offset_of!(Context, scratch), offset_of!(Context, scratch) + 8];

fn behind_gs(code: &mut Vec<u8>, opcode: &[u8], register: u8, offset: usize) {
    code.push(0x65);
    code.extend_from_slice(opcode);
    // An absolute 32-bit displacement.
    code.extend_from_slice(&[register << 3 | 4, 0x25]);
    code.extend_from_slice(&(offset as u32).to_le_bytes());
}

fn store(code: &mut Vec<u8>, register: Register, offset: usize) {
    behind_gs(code, &[0x48, 0x89], register as u8, offset);
}

fn load(code: &mut Vec<u8>, register: Register, offset: usize) {
    behind_gs(code, &[0x48, 0x8b], register as u8, offset);
}

/// Saves the registers that a note uses.
pub(super) fn save(code: &mut Vec<u8>) {
    store(code, Register::Rax, SCRATCH[0]);
    store(code, Register::Rcx, SCRATCH[1]);
}

/// Appends an event with the value of `rax`, and restores the saved registers.
pub(super) fn note_and_restore(code: &mut Vec<u8>, site: u32) {
    let cursor = offset_of!(Context, cursor);
    load(code, Register::Rcx, cursor);
    // mov [rcx], rax; mov dword [rcx + 8], site; lea rcx, [rcx + 16]
    code.extend_from_slice(&[0x48, 0x89, 0x01, 0xc7, 0x41, 0x08]);
    code.extend_from_slice(&site.to_le_bytes());
    code.extend_from_slice(&[0x48, 0x8d, 0x49, 0x10]);
    store(code, Register::Rcx, cursor);
    load(code, Register::Rcx, SCRATCH[1]);
    load(code, Register::Rax, SCRATCH[0]);
}

/// Emits `mov rax, value`.
pub(super) fn set_rax(code: &mut Vec<u8>, value: u64) {
    code.extend_from_slice(&[0x48, 0xb8]);
    code.extend_from_slice(&value.to_le_bytes());
}

/// Continues with the copy of the code at `pc`.
pub(super) fn exit_to(code: &mut Vec<u8>, pc: u64) {
    let offset = offset_of!(Context, pc);
    for (half, value) in [(0, pc as u32), (4, (pc >> 32) as u32)] {
        behind_gs(code, &[0xc7], 0, offset + half);
        code.extend_from_slice(&value.to_le_bytes());
    }
    exit(code);
}

/// Leaves the copy; the context holds the address to continue at.
pub(super) fn exit(code: &mut Vec<u8>) {
    behind_gs(code, &[0xff], 4, offset_of!(Context, exit));
}

/// Sets the original's address to continue at to `rax`, and restores `rax`.
pub(super) fn set_pc(code: &mut Vec<u8>) {
    store(code, Register::Rax, offset_of!(Context, pc));
    load(code, Register::Rax, SCRATCH[0]);
}

/// Pushes the return address of the original code.
pub(super) fn push(code: &mut Vec<u8>, address: u64) {
    // lea rsp, [rsp - 8]; mov dword [rsp], low; mov dword [rsp + 4], high
    code.extend_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0xf8, 0xc7, 0x04, 0x24]);
    code.extend_from_slice(&(address as u32).to_le_bytes());
    code.extend_from_slice(&[0xc7, 0x44, 0x24, 0x04]);
    code.extend_from_slice(&((address >> 32) as u32).to_le_bytes());
}

/// Pops the return address of the original code, and `more` bytes.
pub(super) fn pop_pc(code: &mut Vec<u8>, more: u32) {
    store(code, Register::Rax, SCRATCH[0]);
    // mov rax, [rsp]
    code.extend_from_slice(&[0x48, 0x8b, 0x04, 0x24]);
    set_pc(code);
    // lea rsp, [rsp + 8 + more]
    code.extend_from_slice(&[0x48, 0x8d, 0xa4, 0x24]);
    code.extend_from_slice(&(8 + more).to_le_bytes());
}
