//! A POSIX file system in user space whose every layer scales with cores.
