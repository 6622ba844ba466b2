//! Showing what is on disk, in words and as JSON.

mod value;

pub use value::Value;
