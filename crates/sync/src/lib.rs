//! Scalable locks and structures: lockref, seqrwlock, brlock, per-CPU slots, RCU tables.
