//! Other libraries with a file system in memory, each by its cheapest calls.

mod axfs;
mod rsfs_mem;
mod vfs_memory;

pub use axfs::Axfs;
pub use rsfs_mem::Rsfs;
pub use vfs_memory::VfsMemory;

use crate::subject::Subject;

/// Creates a subject for each library.
///
/// # Errors
/// Returns the error of the library whose tree could not be made.
pub fn all() -> Result<Vec<Box<dyn Subject>>, String> {
    Ok(vec![Box::new(Axfs::new()?), Box::new(Rsfs::new()?), Box::new(VfsMemory::new()?)])
}
