//! The structures on disk, shown in words and as JSON.
//!
//! # Purpose
//!
//! This shows the contents of a volume, and its damage, to a reader: any single structure
//! ([`What`]), either as it is on disk, or as it is after a replay of the log. The replay then
//! works on a copy in memory. A damaged structure is shown with its damage, as far as it is
//! readable.
//!
//! # Invariants
//!
//! * Nothing is written.
//! * For any bytes, a call ends with a [`Value`] or an error. The size of a value is proportional
//!   to the structure that it shows: a directory of a million names has a million entries.
//!
//! # Locks, references
//!
//! None. No other program or thread writes to the device; the caller ensures that.

mod blocks;
mod inodes;
mod log;

use std::sync::Arc;

use vfscale_block::Device;

pub use super::value::Value;

use super::moment::moment;
use super::stopped::stopped;
use crate::format::Damage;
use crate::tools::check::{CheckError, CheckedLog, Media};
use crate::volume::copies::{self, CopyState, FoundSuperblock};
use crate::{LogPlace, Superblock};

/// The object to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The superblock and its copies.
    Superblock,
    /// The group with this number: its header, its free space, its inodes.
    Group(u32),
    /// The inode with this number.
    Inode(u64),
    /// The entries of the directory with this inode number.
    Directory(u64),
    /// The extents of the file with this inode number.
    Extents(u64),
    /// The attributes of the inode with this number.
    Attributes(u64),
    /// The contents of the block at this address.
    Block(u64),
    /// The tree whose root is at this address; the block must be a block of a tree.
    Tree(u64),
    /// The log, record by record, and the checkpoints that a recovery would replay.
    Log,
}

/// The reason why an object is not shown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// There is no volume, or the log can't be replayed.
    #[error(transparent)]
    Volume(#[from] CheckError),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] vfscale_journal::Error),
    /// The requested object is unreadable.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The requested object does not exist.
    #[error("{0}")]
    NoSuch(String),
}

/// An open volume whose structures are shown.
#[derive(Debug)]
pub struct Dump {
    logged: CheckedLog,
    found: FoundSuperblock,
    is_clean: vfscale_journal::Result<bool>,
}

impl Dump {
    /// Opens the volume on `device`, with its log on `log` if it is not in the volume. With
    /// `replay`, later calls show the volume after a replay of its log. Blocks for I/O: reads the
    /// log.
    ///
    /// # Errors
    /// [`DumpError::Volume`], [`DumpError::Log`].
    pub fn open(
        device: Arc<dyn Device>,
        log: Option<&Arc<dyn Device>>,
        replay: bool,
    ) -> Result<Self, DumpError> {
        let found = copies::read(&*device).map_err(CheckError::Open)?;
        let mut logged = CheckedLog::new(device, log, &found.superblock)?;
        let is_clean = logged.is_clean();
        if replay && !matches!(is_clean, Ok(true)) {
            logged = logged.copied();
            drop(logged.replay(&found.superblock, false)?);
        }
        Ok(Self { logged, found, is_clean })
    }

    /// Shows the requested object.
    ///
    /// # Errors
    /// [`DumpError`].
    pub fn show(&self, what: What) -> Result<Value, DumpError> {
        match what {
            What::Superblock => Ok(self.superblock()),
            What::Group(group) => self.group(group),
            What::Inode(ino) => self.inode(ino),
            What::Directory(ino) => self.directory(ino),
            What::Extents(ino) => self.extents(ino),
            What::Attributes(ino) => self.attributes(ino),
            What::Block(block) => self.block(block),
            What::Tree(root) => self.tree(root),
            What::Log => Ok(log::log(&self.logged.inspection()?)?),
        }
    }

    fn media(&self) -> Media<'_> {
        Media::new(&*self.logged.device, &self.found.superblock)
    }

    fn superblock(&self) -> Value {
        let copies = self.found.copies.iter().map(|copy| {
            let state = match &copy.state {
                CopyState::Current => "current".into(),
                CopyState::Old { generation } => format!("old, of generation {generation}"),
                CopyState::Damaged(error) => error.to_string(),
                CopyState::Unreadable(error) => error.to_string(),
            };
            Value::fields().with("block", copy.address).with("state", state)
        });
        superblock(&self.found.superblock).with("copies", copies.collect::<Value>())
    }

    /// Shows the figures of the volume: the figures of `statfs` and more. Reads the headers of all
    /// groups, and counts the unreadable ones.
    pub fn figures(&self) -> Value {
        let media = self.media();
        let geometry = media.geometry();
        let (mut free, mut inodes, mut free_inodes, mut orphans) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut unreadable = 0_u32;
        for group in 0..geometry.groups() {
            match self.header(group) {
                Ok(header) => {
                    free = free.saturating_add(header.free);
                    inodes = inodes.saturating_add(header.inodes);
                    free_inodes = free_inodes.saturating_add(header.free_inodes);
                    orphans = orphans.saturating_add(header.orphans);
                }
                Err(_) => unreadable += 1,
            }
        }
        let state = match &self.is_clean {
            Ok(true) => "clean".into(),
            Ok(false) => "not closed: the log is to be replayed".into(),
            Err(error) => error.to_string(),
        };
        let value = superblock(&self.found.superblock)
            .with("state", state)
            .with("copies whole", self.found.is_whole())
            .with("free blocks", free)
            .with("used inodes", inodes.saturating_sub(free_inodes))
            .with("free inodes", free_inodes)
            .with("orphans", orphans);
        if unreadable == 0 { value } else { value.with("unreadable groups", unreadable) }
    }
}

fn superblock(superblock: &Superblock) -> Value {
    let geometry = superblock.geometry();
    let features = superblock.features;
    let log = match superblock.log() {
        LogPlace::Inside { start, blocks } => {
            let value = Value::fields().with("start", start).with("blocks", blocks);
            match superblock.log_id() {
                Some(id) => value.with("id", id.to_string()).with("used", superblock.log_blocks()),
                None => value,
            }
        }
        LogPlace::Outside { device, blocks } => {
            Value::fields().with("device", device.to_string()).with("blocks", blocks)
        }
    };
    let features = Value::fields()
        .with("compat", format!("{:#x}", features.compat))
        .with("ro_compat", format!("{:#x}", features.ro_compat))
        .with("incompat", format!("{:#x}", features.incompat));
    Value::fields()
        .with("id", superblock.id().to_string())
        .with("id of its blocks", superblock.volume().to_string())
        .with("label", superblock.label.as_str())
        .with("version", crate::format::superblock::VERSION)
        .with("bytes", geometry.bytes())
        .with("blocks", geometry.blocks())
        .with("block bytes", crate::format::BLOCK_BYTES as u64)
        .with("groups", geometry.groups())
        .with("group blocks", geometry.group_blocks())
        .with("generation", superblock.generation())
        .with("features", features)
        .with("repair interrupted", superblock.features.needs_repair())
        .with("stopped", superblock.stopped.as_ref().map(stopped))
        .with("log", log)
        .with("made", moment(superblock.made))
        .with("written", moment(superblock.written))
        .with("mounted", moment(superblock.mounted))
        .with("checked", moment(superblock.checked))
}
