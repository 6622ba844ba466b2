//! The lock classes of the journal, in the order in which they may be taken. `docs/LOCKING.md` says what each
//! protects. All of them rank above those of the file systems that use the journal.

use vfscale_sync::lock_class;

lock_class! {
    /// Who waits for a thaw, and who waits for the last transaction.
    pub FreezeGate = ("freeze_gate", 30000);
}
lock_class! {
    /// Who waits for log space, in the order of coming.
    pub GrantQueue = ("grant_queue", 30010);
}
lock_class! {
    /// Commits against the change of the context: a brlock.
    pub CilContext = ("xc_ctx_lock", 30020);
}
lock_class! {
    /// The items on the CIL of one CPU slot.
    pub CilSlot = ("xc_cil", 30040);
}
lock_class! {
    /// What a context logs of one item.
    pub CilItem = ("xc_cil_item", 30042);
}
lock_class! {
    /// What the transactions of all CPUs have freed; only before seed 003, patch 5.
    pub CilBusy = ("xc_cil_lock", 30045);
}
lock_class! {
    /// What is written, by whom, and up to where it is durable.
    pub LogState = ("l_icloglock", 30050);
}
lock_class! {
    /// Items by the place of their last durable checkpoint, and what the worker is asked for.
    pub AilLock = ("ail_lock", 30060);
}
lock_class! {
    /// The tickets of the latest checkpoints.
    pub TicketTrace = ("log_trace", 30070);
}
lock_class! {
    /// The error that shut the journal down.
    pub ShutdownLock = ("log_shutdown", 30080);
}
lock_class! {
    /// The threads of a journal, until it is closed.
    pub Workers = ("log_workers", 30090);
}
