//! Parts that the commands of vfscale share.
//!
//! `vfscale`, `vfscale-bench` and `vfscale-snapshotter` are several programs, so that a mount does
//! not carry what only measurements or containers need. This crate has what they share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`signals`] | signals, waited for by a thread instead of in handlers |
//! | [`logging`] | messages of the library on standard error |
//! | [`stderr`] | messages for the person at the terminal, or for the log in the background |
//! | [`notify`] | messages to the service manager |
//! | [`views`] | views that Linux has mounted, and upper layers above them |
//! | [`manual`] | manual pages and completions, from the definition of a command line |

pub mod logging;
pub mod manual;
pub mod notify;
pub mod signals;
pub mod stderr;
pub mod views;

pub use stderr::say;
