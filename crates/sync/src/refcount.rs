//! Reference counts: with a lock in the word, with a part for each CPU, without weak references.

pub mod lockref;
pub mod percpu_arc;
pub mod percpu_ref;
pub mod shared;
