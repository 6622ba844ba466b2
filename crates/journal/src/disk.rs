//! The log on disk: its records, writing them, and recovery.

pub(crate) mod checkpoint;
pub(crate) mod iclog;
pub(crate) mod inspect;
pub(crate) mod known;
pub(crate) mod record;
pub(crate) mod recovery;
