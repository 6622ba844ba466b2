//! Options of file systems by their names, as `-o` of mount(8), C and Python give them.
//!
//! # Purpose
//!
//! One table has the options that concern a file system, in memory or on a volume: their names,
//! what values they have, and what each does with the builders. The command line, the C library and
//! the Python package have no tables of their own: a new option is a row of [`TABLE`].
//!
//! ```
//! # fn main() -> vfscale::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("disk.vfs");
//! let options: vfscale::options::Options = "create=64M,sync_interval=0.5,discard".parse()?;
//! let volume = options.volume(vfscale::volume(&path))?.open()?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use vfscale_block::Ceph;
use vfscale_diskfs::OnError;
use vfscale_vfs::{Errno, Error};

use crate::memory::MemoryBuilder;
use crate::volume::VolumeBuilder;

mod size;
mod values;

pub use size::Size;
use values::{bytes, id, interval, mode, number, on_error, path, seconds, size, text, yes};
pub use values::{parse_bytes, parse_id, parse_seconds};

/// The reason why options are refused. The text names the option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has this name, or it has no value and needs one.
    #[error("option `{0}` is unknown")]
    Unknown(String),
    /// An option can't have this value.
    #[error("{option}: {why}")]
    Invalid {
        /// The option with its value.
        option: String,
        /// The reason.
        why: String,
    },
    /// An option of volumes, with these names, was given for a file system in memory.
    #[error("option `{}` is for a volume, not for a file system in memory", .0.join("` or `"))]
    OfVolumes(&'static [&'static str]),
    /// An option of file systems in memory, with these names, was given for a volume.
    #[error("option `{}` is for a file system in memory, not for a volume", .0.join("` or `"))]
    OfMemory(&'static [&'static str]),
}

impl From<OptionError> for Error {
    /// Retains the whole error as the [cause](Error::cause), with `EINVAL`.
    fn from(error: OptionError) -> Error {
        Error::caused("options", Errno::INVAL, error)
    }
}

/// An option: its names, and the file systems that have it.
pub struct Row {
    /// Its names; the first one is shown.
    pub names: &'static [&'static str],
    /// The name of its value; empty for one that is on or off: `NAME` and `NAME=true`, `noNAME` and
    /// `NAME=false`.
    pub value: &'static str,
    /// The description, in a paragraph.
    pub help: &'static str,
    set: fn(&mut Options, &OsStr) -> Result<(), String>,
    is_set: fn(&Options) -> bool,
    memory: &'static [fn(MemoryBuilder, &Options) -> MemoryBuilder],
    volume: &'static [fn(VolumeBuilder, &Options) -> VolumeBuilder],
}

impl Row {
    /// Returns whether file systems in memory have the option.
    pub fn is_of_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Returns whether volumes have the option.
    pub fn is_of_volumes(&self) -> bool {
        !self.volume.is_empty()
    }
}

/// Makes of each row a field of [`Options`] and an element of [`TABLE`].
macro_rules! table {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $type:ty = [$($name:literal),+] $value:literal, $parse:expr
            $(, memory: $memory:expr)? $(, volume: $volume:expr)?;
    )*) => {
        /// Options of a file system. `None` is the default of each.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Options {
            $($(#[doc = $help])+ pub $field: Option<$type>,)*
        }

        /// The options.
        pub static TABLE: &[Row] = &[$(Row {
            names: &[$($name),+],
            value: $value,
            help: concat!($($help),+),
            set: |options, text| {
                options.$field = Some($parse(text)?);
                Ok(())
            },
            is_set: |options| options.$field.is_some(),
            memory: &[$(|builder, options| match options.$field.clone() {
                Some(value) => $memory(builder, value, options),
                None => builder,
            })?],
            volume: &[$(|builder, options| match options.$field.clone() {
                Some(value) => $volume(builder, value, options),
                None => builder,
            })?],
        }),*];
    };
}

type M = MemoryBuilder;
type V = VolumeBuilder;

table! {
    /// Maximum memory of the files: bytes, with K, M, G or T, or a share of the memory such as 50%
    /// (default: half of the memory)
    size: Size = ["size"] "SIZE", size,
        memory: |b: M, size: Size, _| b.size(size.on_this_machine());

    /// Maximum number of files and directories (default: as many as fit)
    inodes: u64 = ["inodes", "nr_inodes"] "N", number,
        memory: |b: M, inodes, _| b.inodes(inodes);

    /// Maximum memory of all memory files together (default: the size)
    memory_files: Size = ["memory_files"] "SIZE", size,
        memory: |b: M, size: Size, _| b.memory_files(size.on_this_machine());

    /// Size of a missing image, which is then created
    create: u64 = ["create"] "SIZE", bytes,
        volume: |b: V, bytes, _| b.create(bytes);

    /// The size of the log of an image that is created (default: follows the size of the image)
    log_size: u64 = ["log_size"] "SIZE", bytes,
        volume: |b: V, bytes, _| b.log_size(bytes);

    /// The image or device with the log, for a volume with an external log
    log_device: PathBuf = ["log_device"] "DEVICE", path,
        volume: |b: V, path: PathBuf, _| b.log_path(path);

    /// Permissions of the root directory of a new file system, in octal (default: 755)
    mode: u32 = ["mode"] "MODE", mode,
        memory: |b: M, mode: u32, _| b.mode(mode),
        volume: |b: V, mode: u32, _| b.mode(mode);

    /// Owner of the root directory of a new file system (default of a command: you, otherwise 0)
    uid: u32 = ["uid"] "UID", id,
        memory: |b: M, uid, o: &Options| b.owner(uid, o.gid.unwrap_or(0)),
        volume: |b: V, uid, o: &Options| b.owner(uid, o.gid.unwrap_or(0));

    /// Group of the root directory of a new file system (default of a command: yours, otherwise 0)
    gid: u32 = ["gid"] "GID", id,
        memory: |b: M, gid, o: &Options| b.owner(o.uid.unwrap_or(0), gid),
        volume: |b: V, gid, o: &Options| b.owner(o.uid.unwrap_or(0), gid);

    /// Write nothing to the volume. If it was not closed, its log is replayed in memory
    read_only: bool = ["ro", "read_only"] "", yes,
        volume: |b: V, on, _| b.read_only(on);

    /// Write nothing, and ignore the log, for example if it can't be read
    no_recovery: bool = ["norecovery"] "", yes,
        volume: |b: V, on, _| b.no_recovery(on);

    /// The reaction of a volume to damage or to a failure of its log: shutdown or remount-ro
    on_error: OnError = ["errors"] "WHAT", on_error,
        volume: |b: V, on_error, _| b.on_error(on_error);

    /// Write the data of a file that replaces another before the replacement is durable (default:
    /// yes; otherwise it may be empty after a crash)
    auto_da_alloc: bool = ["auto_da_alloc"] "", yes,
        volume: |b: V, on, _| b.auto_da_alloc(on);

    /// Give the space of removed files back to the file system of an image or to a block device
    /// (default: that of a sparse image)
    discard: bool = ["discard"] "", yes,
        volume: |b: V, on, _| b.discard(on);

    /// Seconds until unsynced changes reach the disk, or `never` (default: 5)
    sync_interval: Option<Duration> = ["sync_interval", "commit"] "SECONDS", interval,
        volume: |b: V, interval, _| b.sync_interval(interval);

    /// Size of the volume's cache: bytes, with K, M, G, or a share of the memory such as
    /// 10% (default: 320M, but at most a quarter of the memory of the machine or control
    /// group). Three quarters hold data: writers wait when all of that is dirty. One
    /// quarter holds metadata. Dirty metadata that is not yet written in place may take
    /// half as much again; beyond that, changes wait. Names and inodes take another 128M.
    /// Branches that are mounted beside one of `-o branch` share its memory, unless they
    /// have a size of their own
    cache_size: Size = ["cache_size"] "SIZE", size,
        volume: |b: V, size: Size, _| b.cache_size(size.on_this_machine());

    /// The configuration file of Ceph, for images named `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`
    /// (default: CEPH_CONF, or /etc/ceph/ceph.conf)
    ceph_conf: PathBuf = ["ceph_conf"] "FILE", path,
        volume: |b: V, _, o: &Options| b.ceph(o.ceph());

    /// The user of Ceph, without `client.` (default: admin)
    ceph_id: String = ["id", "ceph_id"] "USER", text,
        volume: |b: V, _, o: &Options| b.ceph(o.ceph());

    /// Take an image of Ceph RBD from a holder that is alive: the cluster refuses it from then on
    take_over: bool = ["take_over"] "", yes,
        volume: |b: V, on, _| b.take_over(on);

    /// Seconds after which a request of the opening of an image of Ceph RBD fails (default: it
    /// waits for the cluster)
    patience: Duration = ["patience"] "SECONDS", seconds,
        volume: |b: V, patience, _| b.patience(Some(patience));
}

impl Options {
    /// Sets an option by its name. Later ones win.
    ///
    /// # Errors
    /// [`OptionError::Unknown`] or [`OptionError::Invalid`].
    pub fn set(&mut self, name: &str, value: Option<&OsStr>) -> Result<(), OptionError> {
        let invalid = |why| {
            let value = value.unwrap_or_default().display();
            OptionError::Invalid { option: format!("{name}={value}"), why }
        };
        let row = |name: &str| TABLE.iter().find(|row| row.names.contains(&name));
        let (row, value) = match (row(name), name.strip_prefix("no").and_then(row), value) {
            (Some(row), _, Some(value)) => (row, value),
            (Some(row), _, None) if row.value.is_empty() => (row, OsStr::new("true")),
            (None, Some(row), None) if row.value.is_empty() => (row, OsStr::new("false")),
            _ => return Err(OptionError::Unknown(name.to_owned())),
        };
        (row.set)(self, value).map_err(invalid)
    }

    /// Sets the options of a text, as they stand in `fstab(5)`: separated by commas, before which a
    /// backslash escapes one.
    ///
    /// # Errors
    /// [`OptionError::Unknown`] or [`OptionError::Invalid`].
    pub fn read(&mut self, text: &str) -> Result<(), OptionError> {
        split(text).iter().try_for_each(|option| match option.split_once('=') {
            Some((name, value)) => self.set(name, Some(OsStr::new(value))),
            None => self.set(option, None),
        })
    }

    /// Returns the cluster and the user of images of Ceph RBD.
    pub fn ceph(&self) -> Ceph {
        Ceph { conf: self.ceph_conf.clone(), id: self.ceph_id.clone() }
    }

    /// Applies the options to a file system in memory.
    ///
    /// # Errors
    /// [`OptionError::OfVolumes`] if it does not have one of them.
    pub fn memory(&self, builder: MemoryBuilder) -> Result<MemoryBuilder, OptionError> {
        let mut set = TABLE.iter().filter(|row| (row.is_set)(self));
        set.try_fold(builder, |builder, row| match row.memory {
            [apply, ..] => Ok(apply(builder, self)),
            [] => Err(OptionError::OfVolumes(row.names)),
        })
    }

    /// Applies the options to a volume.
    ///
    /// # Errors
    /// [`OptionError::OfMemory`] if it does not have one of them.
    pub fn volume(&self, builder: VolumeBuilder) -> Result<VolumeBuilder, OptionError> {
        let mut set = TABLE.iter().filter(|row| (row.is_set)(self));
        set.try_fold(builder, |builder, row| match row.volume {
            [apply, ..] => Ok(apply(builder, self)),
            [] => Err(OptionError::OfMemory(row.names)),
        })
    }
}

impl FromStr for Options {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        options.read(text).map(|()| options)
    }
}

/// Splits a text at commas; a backslash escapes a comma.
pub fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let part = match c {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next(),
            c => Some(c),
        };
        if let (Some(c), Some(last)) = (part, parts.last_mut()) {
            last.push(c);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests;
