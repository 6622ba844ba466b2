//! The vfscale command.

fn main() {}
