//! Memory: pages and their pool, and hints to the processor's caches.

pub mod page;
pub mod prefetch;
