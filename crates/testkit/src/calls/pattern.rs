//! Bytes that identify their origin.
//!
//! Each write has a tag. Every 16 bytes of its pattern hold the tag and their offset in the
//! pattern, which begins where the file does, or the append. So bytes that appear in the wrong file
//! or at the wrong offset are recognised and named.

/// Unit in which bytes repeat their origin.
pub const UNIT: u64 = 16;
/// Mixed into each unit; distinguishes a pattern from zeros and stray bytes.
const MARK: u32 = 0x7666_7363;

/// Fills `bytes`, which lie at `offset` of the pattern of this tag.
pub fn fill(tag: u32, offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        *byte = unit(tag, at / UNIT)[(at % UNIT) as usize];
    }
}

/// Returns `len` bytes at `offset` of the pattern of a tag.
pub fn bytes(tag: u32, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(tag, offset, &mut bytes);
    bytes
}

fn unit(tag: u32, number: u64) -> [u8; UNIT as usize] {
    let mut unit = [0; UNIT as usize];
    unit[..4].copy_from_slice(&MARK.to_le_bytes());
    unit[4..8].copy_from_slice(&tag.to_le_bytes());
    unit[8..].copy_from_slice(&number.to_le_bytes());
    unit
}

/// Describes the origin of bytes.
pub fn explain(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return "zeros".into();
    }
    if bytes.iter().all(|byte| *byte == vfscale_block::DISCARDED) {
        return "discarded bytes".into();
    }
    for unit in bytes.windows(UNIT as usize) {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| unit[at + i]));
        if word(0) == MARK {
            let offset = (u64::from(word(12)) << 32 | u64::from(word(8))) * UNIT;
            return format!("bytes of write {} at {offset}", word(4));
        }
    }
    format!("strange bytes {:02x?}", &bytes[..bytes.len().min(16)])
}

#[cfg(test)]
mod tests;
