//! Every interleaving of small programs on an error sequence. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release -p vfscale-sync --test loom errseq::`.

use crate::common::{check, spawn};
use loom::sync::Arc;
use loom::thread;
use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// An error is recorded while two calls on one open file, and one on another, check for errors.
/// Each file reports it once, at the latest by its next call.
///
/// Race: An error of write-back against the calls that report it.
///
/// The thread that writes back meets an error; two tasks call `fsync` on one open file, a third on
/// another; a fourth opens the file. The error is one word of the inode, with a count and a mark
/// that it was reported; each open file has a copy of the word as of its last report
/// (`crates/sync/src/seq/errseq.rs`). A call that finds them different marks the word and updates
/// the copy, and reports only if it was the one that updated it. So each open file reports an error
/// once, and an error that occurs in between differs from the updated copy. An unused inode stays
/// in memory until its error was reported.
#[test]
fn an_error_is_told_once_to_each_open_file() {
    check(3, || {
        let errors = Arc::new(ErrorSeq::new());
        let shared = Arc::new(ErrorCursor::new(&errors));
        let tell = |cursor: &Arc<ErrorCursor>| {
            let (errors, cursor) = (errors.clone(), cursor.clone());
            thread::spawn(move || u32::from(cursor.advance(&errors) == Some(EIO)))
        };
        let (one, two) = (tell(&shared), tell(&shared));
        let other = ErrorCursor::new(&errors);
        errors.record(EIO);
        let told = one.join().unwrap() + two.join().unwrap();
        let later = u32::from(shared.advance(&errors) == Some(EIO));
        assert_eq!(told + later, 1);
        assert_eq!((other.advance(&errors), other.advance(&errors)), (Some(EIO), None));
        assert_eq!(shared.advance(&errors), None);
    });
}

/// Two threads record errors while one is being reported: every file reports the last one.
///
/// Race: An error of write-back against the calls that report it.
#[test]
fn no_error_is_lost_beside_another() {
    check(3, || {
        let errors = Arc::new(ErrorSeq::new());
        let cursor = Arc::new(ErrorCursor::new(&errors));
        let record = |code| spawn(errors.clone(), move |errors| errors.record(code));
        let (one, two) = (record(EIO), record(ENOSPC));
        let mut told = [cursor.advance(&errors)].to_vec();
        one.join().unwrap();
        two.join().unwrap();
        assert!(errors.is_told() <= told[0].is_some());
        // A new cursor sees an error that no cursor has seen.
        let late = ErrorCursor::new(&errors);
        let late_is_told = !errors.is_told();
        told.extend([cursor.advance(&errors), cursor.advance(&errors)]);
        assert_eq!(told[2], None);
        assert!(told.iter().any(Option::is_some));
        assert_eq!(late.advance(&errors).is_some(), late_is_told);
    });
}
