//! The lock classes of the journal, in the order in which they may be taken. `docs/LOCKING.md` says
//! what each protects. All of them rank above those of the file systems that use the journal.

use vfscale_sync::lock_class;

lock_class! {
    /// Threads that wait for a thaw, and freezing threads that wait for the last transaction.
    pub FreezeGate = ("freeze_gate", 30000);
    /// Transactions that wait for log space, in the order of arrival.
    pub GrantQueue = ("grant_queue", 30010);
    /// Commits (readers) and the switch of contexts (writer): a brlock.
    pub CilContext = ("xc_ctx_lock", 30020);
    /// The items on the CIL of one CPU slot.
    pub CilSlot = ("xc_cil", 30040);
    /// The contents that a context logs of one item.
    pub CilItem = ("xc_cil_item", 30042);
    /// The callbacks of all CPUs; only without `Scaling::busy_extents`.
    pub CilBusy = ("xc_cil_lock", 30045);
    /// The writer of the log, and up to where the log is durable.
    pub LogState = ("l_icloglock", 30050);
    /// Items by the LSN of their last durable checkpoint, and requests to write them back.
    pub AilLock = ("ail_lock", 30060);
    /// The tickets of the latest checkpoints.
    pub TicketTrace = ("log_trace", 30070);
    /// The error that shut the journal down.
    pub ShutdownLock = ("log_shutdown", 30080);
}
