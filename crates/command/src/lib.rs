//! Parts that the commands of vfscale share.
//!
//! `vfscale` and `vfscale-bench` are two programs, so that a mount does not carry what only
//! measurements need. This crate has what both have at their command lines.
//!
//! | module | contents |
//! | --- | --- |
//! | [`signals`] | signals, waited for by a thread instead of in handlers |
//! | [`logging`] | messages of the library on standard error |
//! | [`stderr`] | messages for the person at the terminal, or for the log in the background |
//! | [`notify`] | messages to the service manager |
//! | [`manual`] | manual pages and completions, from the definition of a command line |

pub mod logging;
pub mod manual;
pub mod notify;
pub mod signals;
pub mod stderr;

pub use stderr::say;
