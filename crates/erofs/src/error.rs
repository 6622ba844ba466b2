//! Errors.

use std::io;

/// The reason why metadata could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read or written.
    #[error("the metadata can't be read or written: {0}")]
    Io(#[from] io::Error),
    /// Metadata and device together have more blocks than addresses have numbers.
    #[error("metadata and image together have more than 16 TiB, which EROFS has no addresses for")]
    TooLarge,
    /// The contents of a file lie outside of the device, overlap, or lie in the wrong order.
    #[error("its contents lie outside of the image, or overlap")]
    Place,
    /// The table of a file's chunks would have more than
    /// [`INDEX_BYTES_MAX`](crate::INDEX_BYTES_MAX).
    #[error("a sparse file so large needs a table of {0} bytes")]
    TooSparse(u64),
    /// The mode of an inode does not fit its contents.
    #[error("its contents are none of a file with the mode {0:o}")]
    Mode(u16),
    /// The number of a device has more than 12 bits for the major or 20 bits for the minor part.
    #[error("EROFS has no room for the device number {0}:{1}")]
    Device(u32, u32),
    /// An attribute whose name has a beginning that EROFS does not know, or whose value has more
    /// than 65,535 bytes.
    #[error("EROFS has no room for the attribute {0}")]
    Attribute(String),
    /// The attributes of an inode have more than 256 KiB.
    #[error("EROFS has no room for so many attributes")]
    Attributes,
    /// A name that can't be in a directory, or is there twice.
    #[error("a name that can't be in a directory, or is there twice")]
    Name,
    /// The bytes that were read are no metadata that this crate writes.
    #[error("damaged at byte {at}: {what}")]
    Damage {
        /// Where it is in the file.
        at: u64,
        /// The fault.
        what: &'static str,
    },
}
