//! The memory file system driver.
mod pages;
mod space;
