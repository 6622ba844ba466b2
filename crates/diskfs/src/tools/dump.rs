//! Showing what is on disk, in words and as JSON.
//!
//! # Purpose
//!
//! For whoever wants to know what is in a volume, or what is wrong with one: any structure by
//! itself ([`What`]), as it lies on disk, or as it is after a replay of the log, which is made in a
//! copy in memory then. A structure that is damaged is shown with what is wrong, as far as it can
//! be read.
//!
//! # Invariants
//!
//! * Nothing is written.
//! * Whatever the bytes are, it ends with a [`Value`] or an error. A value is as large as what is
//!   shown: a directory of a million names has as many.
//!
//! # Locks, references
//!
//! None. The caller has the device for itself, or knows that nobody writes it.

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
    /// A group: its header, its free space, its inodes.
    Group(u32),
    /// An inode, by its number.
    Inode(u64),
    /// The entries of a directory, by its inode.
    Directory(u64),
    /// The extents of a file, by its inode.
    Extents(u64),
    /// The attributes of an inode.
    Attributes(u64),
    /// The contents of a block.
    Block(u64),
    /// A tree, by its root: the block has to be one of a tree.
    Tree(u64),
    /// The log, record by record, and what a recovery would replay.
    Log,
}

/// Why there is nothing to show.
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
    /// There is no such thing.
    #[error("{0}")]
    NoSuch(String),
}

/// A volume that is looked at.
#[derive(Debug)]
pub struct Dump {
    logged: CheckedLog,
    found: FoundSuperblock,
    is_clean: vfscale_journal::Result<bool>,
}

impl Dump {
    /// Opens the volume on `device`, with its log on `log` if it is not in the volume. With
    /// `replay`, shows it as it is after a replay of its log. Blocks for the I/O: it reads the log.
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
            drop(logged.replay(&found.superblock)?);
        }
        Ok(Self { logged, found, is_clean })
    }

    /// Returns the requested object.
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

    /// Returns the figures of the volume: those of `statfs` and more. Reads the headers of all
    /// groups, and counts unreadable ones.
    #[must_use]
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
        if unreadable == 0 { value } else { value.with("groups that can't be read", unreadable) }
    }
}

fn superblock(superblock: &Superblock) -> Value {
    let geometry = superblock.geometry();
    let features = superblock.features;
    let log = match superblock.log() {
        LogPlace::Inside { start, blocks } => {
            Value::fields().with("start", start).with("blocks", blocks)
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
