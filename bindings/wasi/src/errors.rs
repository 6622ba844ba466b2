//! Linux's errors as those of preview 1 and 2.

use vfscale::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

/// The result of a call of the file system.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Returns the error of preview 2. Those that it does not have are `io`; too many open files and no
/// memory for one more are one error there.
pub(crate) fn code(errno: Errno) -> ErrorCode {
    match errno {
        Errno::ACCESS => ErrorCode::Access,
        Errno::AGAIN => ErrorCode::WouldBlock,
        Errno::ALREADY => ErrorCode::Already,
        Errno::BADF => ErrorCode::BadDescriptor,
        Errno::BUSY => ErrorCode::Busy,
        Errno::DEADLK => ErrorCode::Deadlock,
        Errno::DQUOT => ErrorCode::Quota,
        Errno::EXIST => ErrorCode::Exist,
        Errno::FBIG => ErrorCode::FileTooLarge,
        Errno::ILSEQ => ErrorCode::IllegalByteSequence,
        Errno::INPROGRESS => ErrorCode::InProgress,
        Errno::INTR => ErrorCode::Interrupted,
        Errno::INVAL => ErrorCode::Invalid,
        Errno::ISDIR => ErrorCode::IsDirectory,
        Errno::LOOP => ErrorCode::Loop,
        Errno::MLINK => ErrorCode::TooManyLinks,
        Errno::MSGSIZE => ErrorCode::MessageSize,
        Errno::NAMETOOLONG => ErrorCode::NameTooLong,
        Errno::NODEV => ErrorCode::NoDevice,
        Errno::NOENT => ErrorCode::NoEntry,
        Errno::NOLCK => ErrorCode::NoLock,
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => ErrorCode::InsufficientMemory,
        Errno::NOSPC => ErrorCode::InsufficientSpace,
        Errno::NOTDIR => ErrorCode::NotDirectory,
        Errno::NOTEMPTY => ErrorCode::NotEmpty,
        Errno::NOTRECOVERABLE => ErrorCode::NotRecoverable,
        Errno::NOTSUP | Errno::NOSYS => ErrorCode::Unsupported,
        Errno::NOTTY => ErrorCode::NoTty,
        Errno::NXIO => ErrorCode::NoSuchDevice,
        Errno::OVERFLOW => ErrorCode::Overflow,
        Errno::PERM => ErrorCode::NotPermitted,
        Errno::PIPE => ErrorCode::Pipe,
        Errno::ROFS => ErrorCode::ReadOnly,
        Errno::SPIPE => ErrorCode::InvalidSeek,
        Errno::TXTBSY => ErrorCode::TextFileBusy,
        Errno::XDEV => ErrorCode::CrossDevice,
        _ => ErrorCode::Io,
    }
}

/// Returns the number of preview 1; `io` for errors that it does not have.
pub(crate) fn number(errno: Errno) -> i32 {
    match errno {
        Errno::TOOBIG => 1,
        Errno::ACCESS => 2,
        Errno::AGAIN => 6,
        Errno::ALREADY => 7,
        Errno::BADF => 8,
        Errno::BUSY => 10,
        Errno::DEADLK => 16,
        Errno::DQUOT => 19,
        Errno::EXIST => 20,
        Errno::FAULT => 21,
        Errno::FBIG => 22,
        Errno::ILSEQ => 25,
        Errno::INPROGRESS => 26,
        Errno::INTR => 27,
        Errno::INVAL => 28,
        Errno::ISDIR => 31,
        Errno::LOOP => 32,
        Errno::MFILE => 33,
        Errno::MLINK => 34,
        Errno::MSGSIZE => 35,
        Errno::NAMETOOLONG => 37,
        Errno::NFILE => 41,
        Errno::NODEV => 43,
        Errno::NOENT => 44,
        Errno::NOLCK => 46,
        Errno::NOMEM => 48,
        Errno::NOSPC => 51,
        Errno::NOSYS => 52,
        Errno::NOTDIR => 54,
        Errno::NOTEMPTY => 55,
        Errno::NOTRECOVERABLE => 56,
        Errno::NOTSUP => 58,
        Errno::NOTTY => 59,
        Errno::NXIO => 60,
        Errno::OVERFLOW => 61,
        Errno::PERM => 63,
        Errno::PIPE => 64,
        Errno::RANGE => 68,
        Errno::ROFS => 69,
        Errno::SPIPE => 70,
        Errno::STALE => 72,
        Errno::TXTBSY => 74,
        Errno::XDEV => 75,
        _ => 29,
    }
}
