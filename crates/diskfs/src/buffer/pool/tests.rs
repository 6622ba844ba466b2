use std::sync::Arc;

use vfscale_journal::Image;

use super::{KEPT, make_mut, release, slots};
use crate::format::Block;

fn block(first: u8) -> Arc<Block> {
    let mut block = Block::zeroed();
    block.body_mut()[0] = first;
    block.into()
}

#[test]
fn a_block_that_others_see_is_copied_and_one_that_nobody_else_sees_is_not() {
    let shared = block(1);
    let mut own = Arc::clone(&shared);
    make_mut(&mut own).body_mut()[0] = 2;
    assert_eq!((shared.body()[0], own.body()[0]), (1, 2));
    let memory = Arc::as_ptr(&own);
    make_mut(&mut own).body_mut()[0] = 3;
    assert_eq!((Arc::as_ptr(&own), own.body()[0]), (memory, 3));
}

#[test]
fn a_copy_in_used_memory_is_the_whole_block() {
    // On any CPU, this thread gets most of its blocks back.
    for _ in 0..KEPT {
        let mut full = Block::zeroed();
        full.bytes_mut().fill(0xFF);
        Image::release(Arc::<Block>::from(full));
    }
    let shared = block(7);
    for _ in 0..KEPT {
        let mut own = Arc::clone(&shared);
        make_mut(&mut own);
        assert_eq!(own.bytes(), shared.bytes());
    }
}

#[test]
fn the_buffer_pool_is_bounded_and_takes_no_referenced_block() {
    let shared = block(9);
    release(Arc::clone(&shared));
    assert_eq!(Arc::strong_count(&shared), 1);
    for _ in 0..3 * KEPT {
        release(block(1));
    }
    let slots = slots().unwrap();
    assert!(slots.iter().all(|slot| slot.lock().len() <= KEPT));
}
