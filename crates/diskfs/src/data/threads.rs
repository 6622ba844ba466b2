//! The end of the threads that read ahead and write back.

use vfscale_sync::atomic::thread::{self, JoinHandle};

/// Waits until these threads have ended. The calling thread, which may be one of them, is left out.
pub(super) fn join_others(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    let me = thread::current().id();
    for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
        // A panic of the thread was reported already.
        let _ = thread.join();
    }
}
