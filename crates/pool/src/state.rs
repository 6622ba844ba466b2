//! The state of a pool, which a commit makes durable as a whole.

pub(crate) mod branch_table;
pub(crate) mod commit;
pub(crate) mod dead_list;
pub(crate) mod head;
pub(crate) mod limit;
pub(crate) mod map;
pub(crate) mod read_spares;
pub(crate) mod spare_logs;
