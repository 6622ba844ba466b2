//! Instrumented copies of code.

use std::collections::HashMap;
use std::io;

use iced_x86::{
    Code as Opcode, CodeSize, ConditionCode, Decoder, DecoderOptions, Encoder, FlowControl,
    Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

use super::emit;
use crate::trace::memory::Mapping;

/// Bytes of a mapping for copies.
const REGION_BYTES: usize = 64 << 20;
/// Maximum distance from the original, within which instruction-relative addresses are in reach.
const REACH: u64 = 1 << 30;
/// Maximum number of instructions in a block.
const BLOCK_MAX: u32 = 64;
/// Maximum length of an instruction in bytes.
const INSTRUCTION_BYTES: usize = 15;
const PAGE: u64 = 4096;

/// Instrumented copies of code, made on demand and cached.
pub struct CodeCache {
    blocks: HashMap<u64, Block>,
    /// Functions that are replaced by others.
    replaced: HashMap<u64, u64>,
    sites: Vec<Site>,
    regions: Vec<Region>,
    factory: InstructionInfoFactory,
}

/// A copy of a basic block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) entry: u64,
    pub(super) instructions: u32,
}

/// A location in a copy that appends an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) ip: u64,
    pub(super) kind: SiteKind,
}

/// Meaning of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum SiteKind {
    /// A memory access. `repeat`: it is part of a string instruction with a count. `in_thread`: the
    /// address is relative to the base of `fs`. `masked`: if not 0, the size of the elements that
    /// the preceding mask event selects.
    Access {
        size: u16,
        read: bool,
        write: bool,
        in_thread: bool,
        repeat: bool,
        masked: u8,
    },
    /// Mask of a vector instruction: a bit for each selected element.
    Mask,
    /// Repeat count of a string instruction before it.
    CountBefore,
    /// Repeat count after the instruction.
    CountAfter,
    Call,
    Return,
    SystemCall,
    NotUnderstood,
}

struct Region {
    memory: Mapping,
    used: usize,
}

/// A block under construction.
struct BlockBuilder<'a> {
    bytes: Vec<u8>,
    /// Address that the copy will have.
    entry: u64,
    sites: &'a mut Vec<Site>,
    factory: &'a mut InstructionInfoFactory,
}

impl CodeCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> CodeCache {
        CodeCache {
            blocks: HashMap::new(),
            replaced: HashMap::new(),
            sites: Vec::new(),
            regions: Vec::new(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Makes recorded calls run `other` instead of `function`. Both have the same signature and
    /// live as long as the program. Must be called before the first recording.
    pub fn replace(&mut self, function: u64, other: u64) {
        self.replaced.insert(function, other);
    }

    pub(super) fn site(&self, index: u32) -> Site {
        self.sites[index as usize]
    }

    /// Returns the copy of the code at `pc`, which must be an address of code.
    ///
    /// # Panics
    /// If the system has no memory for it, or forbids executing written memory. The recorded call
    /// cannot continue then.
    pub(super) fn block(&mut self, pc: u64) -> Block {
        if let Some(block) = self.blocks.get(&pc) {
            return *block;
        }
        let from = self.replaced.get(&pc).copied().unwrap_or(pc);
        let block = match self.copy(from) {
            Ok(block) => block,
            Err(e) => panic!("no memory for copies of code: {e}"),
        };
        self.blocks.insert(pc, block);
        block
    }

    fn copy(&mut self, pc: u64) -> io::Result<Block> {
        let region = self.region(pc)?;
        let region = &mut self.regions[region];
        let entry = region.memory.start().as_ptr() as u64 + region.used as u64;
        let (sites, factory) = (&mut self.sites, &mut self.factory);
        let mut builder = BlockBuilder { bytes: Vec::with_capacity(4096), entry, sites, factory };
        let instructions = builder.fill(pc);
        // SAFETY: `region` checked that there is room, and nothing executes or reads that memory
        // yet.
        unsafe {
            let target = region.memory.start().as_ptr().add(region.used);
            target.copy_from_nonoverlapping(builder.bytes.as_ptr(), builder.bytes.len());
        }
        region.used += builder.bytes.len().next_multiple_of(16);
        Ok(Block { entry, instructions })
    }

    /// Returns a region within reach of `pc` that has room for a block.
    fn region(&mut self, pc: u64) -> io::Result<usize> {
        let fits = |region: &Region| {
            let start = region.memory.start().as_ptr() as u64;
            start.abs_diff(pc) < REACH && region.used + (1 << 16) < region.memory.len()
        };
        if let Some(found) = self.regions.iter().position(fits) {
            return Ok(found);
        }
        self.regions.push(Region { memory: Mapping::code(pc, REGION_BYTES)?, used: 0 });
        Ok(self.regions.len() - 1)
    }
}

impl Default for CodeCache {
    fn default() -> CodeCache {
        CodeCache::new()
    }
}

/// Decodes the instruction at an address of this process's code.
fn decode(ip: u64) -> Instruction {
    let decode = |len: usize| {
        // SAFETY: there is code at `ip`. Bytes beyond its page are only read if the instruction
        // continues there.
        let bytes = unsafe { std::slice::from_raw_parts(ip as *const u8, len) };
        Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
    };
    let in_page = ((PAGE - ip % PAGE) as usize).min(INSTRUCTION_BYTES);
    let instruction = decode(in_page);
    if instruction.is_invalid() && in_page < INSTRUCTION_BYTES {
        return decode(INSTRUCTION_BYTES);
    }
    instruction
}

impl BlockBuilder<'_> {
    /// Copies from `pc` to the first jump. Returns the number of instructions.
    fn fill(&mut self, pc: u64) -> u32 {
        let mut ip = pc;
        for count in 1..=BLOCK_MAX {
            let instruction = decode(ip);
            ip = instruction.next_ip();
            if self.put(&instruction) {
                return count;
            }
        }
        emit::exit_to(&mut self.bytes, ip);
        BLOCK_MAX
    }

    /// Copies an instruction. Returns whether it was the last of the block.
    fn put(&mut self, instruction: &Instruction) -> bool {
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::ConditionalBranch => {
                self.conditional(instruction);
                emit::exit_to(&mut self.bytes, next);
                emit::exit_to(&mut self.bytes, instruction.near_branch_target());
            }
            FlowControl::UnconditionalBranch => {
                emit::exit_to(&mut self.bytes, instruction.near_branch_target());
            }
            FlowControl::Call if instruction.code() == Opcode::Syscall => {
                self.note(instruction, SiteKind::SystemCall);
                self.verbatim(instruction);
                return false;
            }
            FlowControl::Call => {
                self.note(instruction, SiteKind::Call);
                emit::push(&mut self.bytes, next);
                emit::exit_to(&mut self.bytes, instruction.near_branch_target());
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => self.indirect(instruction),
            FlowControl::Return => {
                self.note(instruction, SiteKind::Return);
                let more = if instruction.op_count() == 1 { instruction.immediate16() } else { 0 };
                emit::pop_pc(&mut self.bytes, more.into());
                emit::exit(&mut self.bytes);
            }
            // A transaction may always abort, so each one aborts at its beginning.
            FlowControl::XbeginXabortXend if instruction.mnemonic() == Mnemonic::Xbegin => {
                self.bytes.extend_from_slice(&[0xb8, 0, 0, 0, 0]);
                emit::exit_to(&mut self.bytes, instruction.near_branch_target());
            }
            _ => {
                self.plain(instruction);
                return false;
            }
        }
        true
    }

    /// Emits a jump over the following exit, under the instruction's condition.
    fn conditional(&mut self, instruction: &Instruction) {
        let over = emit::EXIT_BYTES;
        match instruction.condition_code() {
            ConditionCode::None => {
                let opcode = match instruction.mnemonic() {
                    Mnemonic::Loopne => 0xe0,
                    Mnemonic::Loope => 0xe1,
                    Mnemonic::Loop => 0xe2,
                    _ => 0xe3,
                };
                self.bytes.extend_from_slice(&[opcode, over]);
            }
            // The variants are in the order of the condition codes, after `None`.
            condition => {
                self.bytes.extend_from_slice(&[0x70 | (condition as u8 - 1), over]);
            }
        }
    }

    /// Emits a call or jump to an address in a register or in memory.
    fn indirect(&mut self, instruction: &Instruction) {
        let is_call = instruction.flow_control() == FlowControl::IndirectCall;
        self.accesses(instruction);
        if is_call {
            self.note(instruction, SiteKind::Call);
        }
        emit::save(&mut self.bytes);
        let moved = match instruction.op0_kind() {
            OpKind::Register => {
                let target = instruction.op0_register();
                Instruction::with2(Opcode::Mov_r64_rm64, Register::RAX, target)
            }
            _ => {
                let segment = instruction.segment_prefix();
                let operand = MemoryOperand::new(
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_index_scale(),
                    instruction.memory_displacement64().cast_signed(),
                    instruction.memory_displ_size(),
                    false,
                    segment,
                );
                Instruction::with2(Opcode::Mov_r64_rm64, Register::RAX, operand)
            }
        };
        match moved {
            Ok(moved) => self.encode(&moved),
            Err(e) => panic!("a jump that can't be copied at {:#x}: {e}", instruction.ip()),
        }
        emit::set_pc(&mut self.bytes);
        if is_call {
            emit::push(&mut self.bytes, instruction.next_ip());
        }
        emit::exit(&mut self.bytes);
    }

    /// Copies an instruction that continues with the next one.
    fn plain(&mut self, instruction: &Instruction) {
        let repeats = instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
        self.accesses(instruction);
        if repeats {
            self.note_register(instruction, Register::RCX, SiteKind::CountBefore);
        }
        if instruction.is_ip_rel_memory_operand() {
            self.encode(instruction);
        } else {
            self.verbatim(instruction);
        }
        if repeats {
            self.note_register(instruction, Register::RCX, SiteKind::CountAfter);
        }
    }

    fn verbatim(&mut self, instruction: &Instruction) {
        // SAFETY: the instruction was decoded from there.
        let bytes =
            unsafe { std::slice::from_raw_parts(instruction.ip() as *const u8, instruction.len()) };
        self.bytes.extend_from_slice(bytes);
    }

    /// Encodes an instruction for its new address, with the same effect.
    fn encode(&mut self, instruction: &Instruction) {
        let mut encoder = Encoder::new(64);
        match encoder.encode(instruction, self.entry + self.bytes.len() as u64) {
            Ok(_) => self.bytes.extend_from_slice(&encoder.take_buffer()),
            Err(e) => panic!("an instruction that can't be copied at {:#x}: {e}", instruction.ip()),
        }
    }

    fn site(&mut self, instruction: &Instruction, kind: SiteKind) -> u32 {
        self.sites.push(Site { ip: instruction.ip(), kind });
        self.sites.len() as u32 - 1
    }

    /// Notes that the instruction is executed.
    fn note(&mut self, instruction: &Instruction, kind: SiteKind) {
        let site = self.site(instruction, kind);
        emit::save(&mut self.bytes);
        emit::note_and_restore(&mut self.bytes, site);
    }

    fn note_register(&mut self, instruction: &Instruction, register: Register, kind: SiteKind) {
        let site = self.site(instruction, kind);
        emit::save(&mut self.bytes);
        if let Ok(moved) = Instruction::with2(Opcode::Mov_r64_rm64, Register::RAX, register) {
            self.encode(&moved);
        }
        emit::note_and_restore(&mut self.bytes, site);
    }

    /// Notes the memory accesses of the instruction.
    fn accesses(&mut self, instruction: &Instruction) {
        // The stack belongs to the thread alone.
        if instruction.is_stack_instruction() && instruction.op_count() == 0 {
            return;
        }
        let used: Vec<UsedMemory> = self.factory.info(instruction).used_memory().to_vec();
        for memory in used {
            let (read, write) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                _ => continue,
            };
            let own_stack = instruction.is_stack_instruction() && memory.base() == Register::RSP;
            if own_stack && !instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
                continue;
            }
            let repeat = instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
            // An instruction without an operand size saves registers.
            let element = instruction.memory_size().size();
            let size = match memory.memory_size().size() {
                0 if repeat => element as u16,
                0 => 64,
                size => size as u16,
            };
            let in_thread = memory.segment() == Register::FS;
            let masked = self.mask(instruction);
            let kind = SiteKind::Access { size, read, write, in_thread, repeat, masked };
            self.note_address(instruction, &memory, kind);
        }
    }

    /// Notes the mask of an AVX-512 instruction. Returns the size of its elements, or 0 without a
    /// mask.
    fn mask(&mut self, instruction: &Instruction) -> u8 {
        let mask = instruction.op_mask();
        if mask == Register::None {
            return 0;
        }
        let site = self.site(instruction, SiteKind::Mask);
        emit::save(&mut self.bytes);
        if let Ok(moved) = Instruction::with2(Opcode::VEX_Kmovq_r64_kr, Register::RAX, mask) {
            self.encode(&moved);
        }
        emit::note_and_restore(&mut self.bytes, site);
        instruction.memory_size().element_size() as u8
    }

    fn note_address(&mut self, instruction: &Instruction, memory: &UsedMemory, kind: SiteKind) {
        let start = self.bytes.len();
        emit::save(&mut self.bytes);
        if memory.base() == Register::None && memory.index() == Register::None {
            emit::set_rax(&mut self.bytes, memory.displacement());
        } else {
            let operand = MemoryOperand::new(
                memory.base(),
                memory.index(),
                memory.scale(),
                memory.displacement().cast_signed(),
                if memory.base() == Register::None { 8 } else { 1 },
                false,
                Register::None,
            );
            let lea = Instruction::with2(Opcode::Lea_r64_m, Register::RAX, operand);
            let usable = memory.vsib_size() == 0 && memory.address_size() == CodeSize::Code64;
            match lea {
                Ok(lea) if usable => self.encode(&lea),
                _ => {
                    self.bytes.truncate(start);
                    return self.note(instruction, SiteKind::NotUnderstood);
                }
            }
        }
        let site = self.site(instruction, kind);
        emit::note_and_restore(&mut self.bytes, site);
    }
}
