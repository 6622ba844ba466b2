//! The names of `std::fs`, as methods of [`Task`](crate::Task) and [`File`](crate::File): whole
//! files, whole trees, options, locks. Each is made of the Linux calls of
//! [`Task::posix`](crate::Task::posix), and fails with their errors.

pub(crate) mod copy;
pub(crate) mod descent;
pub(crate) mod file;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod read_dir;
pub(crate) mod remove_dir_all;
pub(crate) mod replace;
pub(crate) mod task;
pub(crate) mod walk_dir;
