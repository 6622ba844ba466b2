//! The C library of vfscale: `libvfscale.so`, `libvfscale.a` and `vfscale.h`.
//!
//! # Purpose
//!
//! Programs in C, and in every language that can call C, get trees in memory and volumes, tasks and
//! their descriptors, with the signatures of POSIX. A call takes its task first, and returns what
//! the call of Linux returns, or a negative error number. `docs/C.md` is the manual; the header is
//! generated from these sources (`crates/capi/tests`).
//!
//! # Invariants
//!
//! * No panic crosses the border: every exported function runs in `border::border`, which turns a
//!   panic into `-ENOTRECOVERABLE`.
//! * A handle that a C program holds (`struct vfscale_task *`) is a number, never an address. It is
//!   looked up in a table for each call (`handles`), so a handle that was freed, or never was one,
//!   is `-EBADF` with a text. Numbers are not reused in the lifetime of a process.
//! * A lookup writes nothing that another CPU writes: each CPU has its own copy of the table, and
//!   its own count of the calls that use an object.
//! * Freeing a handle while other threads make calls on it is safe: the last of these calls frees
//!   the object.
//! * Every pointer of a caller is checked for null (`-EFAULT`). The caller promises the rest: that
//!   it points to as many bytes as the header says, and that nobody else changes them during the
//!   call. `args` has all conversions.
//!
//! # Locks
//!
//! `ranks` has them. They are taken with no other lock held.

// The types are those of C programs, which write `struct vfscale_task`.
#![allow(non_camel_case_types)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle is a pointer with 64 bits");

mod apply;
mod args;
mod attr;
mod border;
mod cache_budget;
mod credentials;
mod dir;
mod fd;
mod fs;
mod handles;
mod history;
mod idle_memory;
mod io;
mod lock;
mod merge;
mod mount;
mod names;
mod pipe;
mod pool;
mod ranks;
mod structs;
mod task;
mod task_handle;
mod token;
mod transfer;
mod view;
mod watcher;
mod whole;
mod xattr;
