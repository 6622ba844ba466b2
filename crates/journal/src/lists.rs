//! The lists of items: committed and not in the log (CIL), in the log and not written back (AIL).

pub(crate) mod ail;
pub(crate) mod cil;
