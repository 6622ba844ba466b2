//! The header, the list of symbols, and the interface, compared with the sources.

#![allow(clippy::unwrap_used)]

mod abi;
mod declarations;
mod header;
mod methods;
