//! Tasks (processes, in terms of POSIX): where a walk begins, credentials, descriptors, and
//! mappings.

pub(crate) mod task_struct;
