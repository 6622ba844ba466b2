//! The memory file system driver.
