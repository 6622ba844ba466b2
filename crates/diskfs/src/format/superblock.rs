//! The superblock: the properties of the volume that are needed to read anything else.
//!
//! # Invariants
//!
//! * A [`Superblock`] is always valid: its numbers are consistent and point nowhere outside of the
//!   volume. Bytes read from disk become one, or an error.
//! * Encoding and decoding are inverse to each other. Bytes after the known fields are preserved,
//!   for a *compat* feature may have written them.
//! * Each write increments the generation. Of several copies the one with the greatest generation
//!   is current ([`copies`](crate::volume::copies)).
//!
//! # Versions and features
//!
//! The version is that of the superblock itself, and of the block header: nothing of a later
//! version can be read. Everything else that changes is a feature, a bit in one of three sets (as
//! in ext2). A program that does not know a *compat* bit may do everything; one that does not know
//! an *ro_compat* bit may only read; one that does not know an *incompat* bit may not even read.

mod label;
mod sums;

use std::mem::offset_of;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

pub use label::{LABEL_BYTES, Label, NoLabel};
pub use sums::GroupSums;
use sums::RawSums;

use super::header::{BODY_BYTES, Block, HEADER_BYTES, Identity};
use super::magic::Magic;
use super::uuid::Uuid;
use super::{BLOCK_BYTES, Damage};
use crate::format::geometry::{COPIES, GROUP_BLOCKS_KEPT, Geometry};

/// Magic of superblocks.
pub const MAGIC: Magic = Magic(*b"vfsS");
/// The version of the superblock that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;
/// Minimum size of a log, in blocks: 1 MiB.
pub const LOG_BLOCKS_MIN: u64 = 1 << 8;
/// Maximum size of a log, in blocks: 2 GiB.
pub const LOG_BLOCKS_MAX: u64 = 1 << 19;

/// 4 KiB as a power of two.
const BLOCK_LOG2: u8 = BLOCK_BYTES.trailing_zeros() as u8;

/// A point in time, on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTime {
    seconds: I64,
    nanoseconds: U32,
    zero: U32,
}

/// The body of the block, on disk.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    version: U32,
    block_log2: u8,
    group_log2: u8,
    zero: [u8; 2],
    generation: U64,
    blocks: U64,
    groups: U32,
    zero_behind_groups: U32,
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    log_start: U64,
    log_blocks: U64,
    log_device: Uuid,
    made: RawTime,
    written: RawTime,
    mounted: RawTime,
    checked: RawTime,
    label: [u8; LABEL_BYTES],
    log_id: Uuid,
    log_used: U64,
    sums: RawSums,
    rest: [u8; REST_BYTES],
    pool: U64,
    stopped_by: U32,
    zero_behind_stopped: U32,
    stopped: RawTime,
    stopped_why: [u8; STOPPED_BYTES],
    own_id: Uuid,
    // All changing fields are in the first 512 bytes: a device that writes these atomically tears
    // none of them.
    log_epoch: U64,
    log_last: U64,
    log_checkpoint: U64,
    log_closed: U64,
    behind: [u8; BEHIND_BYTES],
}

/// Bytes up to the log's part, and those between it and the fields after it.
const FIELDS_BYTES: usize = 240;
const SUMS_BYTES: usize = size_of::<RawSums>();
const REST_BYTES: usize = 24;
const POOL_BYTES: usize = 8;
/// Bytes of the text that explains why a mount has stopped.
const STOPPED_BYTES: usize = 80;
const ID_BYTES: usize = 16;
const LOG_BYTES: usize = 32;
/// Bytes after all fields.
const BEHIND_BYTES: usize = BODY_BYTES
    - FIELDS_BYTES
    - SUMS_BYTES
    - REST_BYTES
    - POOL_BYTES
    - (24 + STOPPED_BYTES)
    - ID_BYTES
    - LOG_BYTES;

/// The fields as `docs/FORMAT.md` lists them: offset in the block, bytes, name.
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (HEADER_BYTES + offset_of!(RawSuperblock, version), 4, "version"),
    (HEADER_BYTES + offset_of!(RawSuperblock, block_log2), 1, "block size"),
    (HEADER_BYTES + offset_of!(RawSuperblock, group_log2), 1, "group size"),
    (HEADER_BYTES + offset_of!(RawSuperblock, zero), 2, ""),
    (HEADER_BYTES + offset_of!(RawSuperblock, generation), 8, "generation"),
    (HEADER_BYTES + offset_of!(RawSuperblock, blocks), 8, "blocks"),
    (HEADER_BYTES + offset_of!(RawSuperblock, groups), 4, "groups"),
    (HEADER_BYTES + offset_of!(RawSuperblock, zero_behind_groups), 4, ""),
    (HEADER_BYTES + offset_of!(RawSuperblock, compat), 8, "compat"),
    (HEADER_BYTES + offset_of!(RawSuperblock, ro_compat), 8, "ro_compat"),
    (HEADER_BYTES + offset_of!(RawSuperblock, incompat), 8, "incompat"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_start), 8, "log start"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_blocks), 8, "log blocks"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_device), 16, "log device"),
    (HEADER_BYTES + offset_of!(RawSuperblock, made), 16, "made"),
    (HEADER_BYTES + offset_of!(RawSuperblock, written), 16, "written"),
    (HEADER_BYTES + offset_of!(RawSuperblock, mounted), 16, "mounted"),
    (HEADER_BYTES + offset_of!(RawSuperblock, checked), 16, "checked"),
    (HEADER_BYTES + offset_of!(RawSuperblock, label), 64, "label"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_id), 16, "log id"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_used), 8, "log used"),
    (HEADER_BYTES + offset_of!(RawSuperblock, sums.generation), 8, "sums"),
    (HEADER_BYTES + offset_of!(RawSuperblock, sums.available), 8, "available blocks"),
    (HEADER_BYTES + offset_of!(RawSuperblock, sums.inodes), 8, "inodes"),
    (HEADER_BYTES + offset_of!(RawSuperblock, sums.free_inodes), 8, "free inodes"),
    (HEADER_BYTES + offset_of!(RawSuperblock, sums.trees), 8, "tree blocks"),
    (HEADER_BYTES + offset_of!(RawSuperblock, rest), REST_BYTES, ""),
    (HEADER_BYTES + offset_of!(RawSuperblock, pool), 8, "pool"),
    (HEADER_BYTES + offset_of!(RawSuperblock, stopped_by), 4, "stopped by"),
    (HEADER_BYTES + offset_of!(RawSuperblock, zero_behind_stopped), 4, ""),
    (HEADER_BYTES + offset_of!(RawSuperblock, stopped), 16, "stopped"),
    (HEADER_BYTES + offset_of!(RawSuperblock, stopped_why), STOPPED_BYTES, "stopped why"),
    (HEADER_BYTES + offset_of!(RawSuperblock, own_id), 16, "own id"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_epoch), 8, "log epoch"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_last), 8, "log LSN"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_checkpoint), 8, "log checkpoint"),
    (HEADER_BYTES + offset_of!(RawSuperblock, log_closed), 8, "log closed"),
    (HEADER_BYTES + offset_of!(RawSuperblock, behind), BEHIND_BYTES, ""),
];

const _: () = {
    assert!(size_of::<RawSuperblock>() == BODY_BYTES && size_of::<RawTime>() == 16);
    // There are no gaps, and the last field ends with the block.
    let (mut at, mut field) = (HEADER_BYTES, 0);
    while field < FIELDS.len() {
        assert!(FIELDS[field].0 == at);
        at += FIELDS[field].1;
        field += 1;
    }
    assert!(at == BLOCK_BYTES && FIELDS[FIELDS.len() - 1].0 == 512);
};

/// A point in time: seconds since 1970, which may be negative, and nanoseconds. `Default` is
/// *never*, which equals the first nanosecond of 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// *Never*: the event has not happened.
    pub const NEVER: Self = Self { seconds: 0, nanoseconds: 0 };

    /// Returns the time `nanoseconds` after a second; `None` if they are a second or more.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        if nanoseconds < 1_000_000_000 { Some(Self { seconds, nanoseconds }) } else { None }
    }

    /// Returns the current time of the system's clock.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds after the whole seconds.
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Returns the time in nanoseconds since 1970, as inodes store it, or the nearest time that 64
    /// bits hold; they last until 2262.
    pub(crate) const fn in_nanoseconds(self) -> i64 {
        self.seconds.saturating_mul(1_000_000_000).saturating_add(self.nanoseconds as i64)
    }

    fn raw(self) -> RawTime {
        let (seconds, nanoseconds) = (self.seconds.into(), self.nanoseconds.into());
        RawTime { seconds, nanoseconds, zero: U32::ZERO }
    }

    fn decode(raw: &RawTime) -> Result<Self, Damage> {
        let nanoseconds = raw.nanoseconds.get();
        Self::new(raw.seconds.get(), nanoseconds).ok_or(Damage::Time { nanoseconds })
    }
}

impl From<SystemTime> for Timestamp {
    /// Converts a time; one that does not fit 64 bits of seconds becomes the nearest that does.
    fn from(time: SystemTime) -> Self {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self { seconds: seconds(after), nanoseconds: after.subsec_nanos() },
            Err(error) => {
                let before = error.duration();
                let (seconds, nanoseconds) = (-seconds(before), before.subsec_nanos());
                match nanoseconds {
                    0 => Self { seconds, nanoseconds },
                    _ => Self { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
                }
            }
        }
    }
}

/// Features of a volume that other programs may not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Features whose ignorance permits everything.
    pub compat: u64,
    /// Features whose ignorance permits reading only.
    pub ro_compat: u64,
    /// Features whose ignorance permits nothing.
    pub incompat: u64,
}

impl Features {
    /// Bit 1 of *compat*: the volume has an id of its own, other than that of its blocks.
    pub const OWN_ID: u64 = 2;
    /// Bit 2 of *compat*, a state: a repair has discarded a log that it could not replay, and was
    /// not completed, so blocks of inodes that only that log had may be missing.
    pub const LOG_LOST: u64 = 4;
    /// Bit 0 of *incompat*, a state: a repair was begun and not completed, so blocks in use may
    /// count as free.
    pub const NEEDS_REPAIR: u64 = 1;
    /// Bit 1 of *incompat*: the device has become a pool of branches, one of which is the volume.
    pub const POOL: u64 = 2;
    /// Bit 2 of *incompat*: the log has an id of its own, and may use only the first part of its
    /// region. A program that does not know this would take a former log for the present one.
    pub const LOG_ID: u64 = 4;
    /// Bit 0 of *ro_compat*: an inode may be immutable or only appended to. A program that does not
    /// know these flags would change such files.
    pub const IMMUTABLE: u64 = 1;
    /// The features that this program knows.
    pub const KNOWN: Self = Self {
        compat: Self::OWN_ID | Self::LOG_LOST,
        ro_compat: Self::IMMUTABLE,
        incompat: Self::NEEDS_REPAIR | Self::POOL | Self::LOG_ID,
    };

    /// Returns whether an inode may be immutable or only appended to.
    pub const fn has_immutable(self) -> bool {
        self.ro_compat & Self::IMMUTABLE != 0
    }

    /// Returns whether a repair was begun and not completed.
    pub const fn needs_repair(self) -> bool {
        self.incompat & Self::NEEDS_REPAIR != 0
    }

    /// Returns whether a repair has discarded a log, and was not completed.
    pub const fn has_lost_log(self) -> bool {
        self.compat & Self::LOG_LOST != 0
    }

    /// Returns these features with a log that a repair has discarded, or without.
    #[must_use]
    pub const fn with_lost_log(self, is_lost: bool) -> Self {
        let others = self.compat & !Self::LOG_LOST;
        let compat = if is_lost { others | Self::LOG_LOST } else { others };
        Self { compat, ..self }
    }

    /// Returns these features with a repair under way, or without.
    #[must_use]
    pub const fn with_repair(self, is_under_way: bool) -> Self {
        let others = self.incompat & !Self::NEEDS_REPAIR;
        let incompat = if is_under_way { others | Self::NEEDS_REPAIR } else { others };
        Self { incompat, ..self }
    }

    /// Returns the features that this program does not know.
    #[must_use]
    pub const fn unknown(self) -> Self {
        Self {
            compat: self.compat & !Self::KNOWN.compat,
            ro_compat: self.ro_compat & !Self::KNOWN.ro_compat,
            incompat: self.incompat & !Self::KNOWN.incompat,
        }
    }
}

/// The location of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In the volume: `blocks` blocks from `start` on, all in one group, after the group's reserved
    /// blocks.
    Inside {
        /// Its first block.
        start: u64,
        /// Its size, in blocks.
        blocks: u64,
    },
    /// On a device of its own, from block 0 on.
    Outside {
        /// The id of the log; not nil.
        device: Uuid,
        /// Its size, in blocks.
        blocks: u64,
    },
}

impl LogPlace {
    /// Returns a log in the middle of the volume, of the size that it [should
    /// have](Self::wanted_blocks), or `blocks` if given, as far as a group and the bounds of logs
    /// permit.
    pub fn inside(geometry: Geometry, blocks: Option<u64>) -> Self {
        let blocks = blocks.unwrap_or(Self::wanted_blocks(geometry));
        // There are at least four groups, so the middle one is not the last: it has full size.
        let start = u64::from(geometry.groups() / 2) * geometry.group_blocks() + GROUP_BLOCKS_KEPT;
        let most = LOG_BLOCKS_MAX.min(geometry.group_blocks() - GROUP_BLOCKS_KEPT);
        Self::Inside { start, blocks: blocks.clamp(LOG_BLOCKS_MIN, most) }
    }

    /// Returns the default size of a log, in blocks: 1/64 of the volume, at least 4 MiB, at most 1
    /// GiB.
    pub fn wanted_blocks(geometry: Geometry) -> u64 {
        (geometry.blocks() / 64).clamp(1 << 10, 1 << 18)
    }

    /// Returns the size of the log, in blocks.
    pub const fn blocks(self) -> u64 {
        match self {
            Self::Inside { blocks, .. } | Self::Outside { blocks, .. } => blocks,
        }
    }

    /// Returns whether a volume of this geometry can have the log.
    pub fn fits(self, geometry: Geometry) -> bool {
        let is_inside = |start: u64, blocks: u64| {
            let group = geometry.group_of(start).and_then(|group| geometry.blocks_of(group));
            group.is_some_and(|group| {
                start - group.start >= GROUP_BLOCKS_KEPT && blocks <= group.end - start
            })
        };
        (LOG_BLOCKS_MIN..=LOG_BLOCKS_MAX).contains(&self.blocks())
            && match self {
                Self::Inside { start, blocks } => is_inside(start, blocks),
                Self::Outside { device, .. } => device != Uuid::NIL,
            }
    }
}

/// The position of the log when it was opened or closed last. `Default`: unknown, as in volumes of
/// older versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSeen {
    /// The epoch of the log.
    pub epoch: u64,
    /// The position of a durable record of that epoch.
    pub last: u64,
    /// The number of its last checkpoint.
    pub checkpoint: u64,
    /// Whether the log was closed with that record, and not opened since.
    pub is_closed: bool,
}

/// The reason why a mount stopped; the volume was not checked since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    by: u32,
    when: Timestamp,
    why: String,
}

/// Returns the words of a text for which there is room, with dots in place of the others.
fn shortened(text: &str) -> String {
    const DOTS: &str = "...";
    if text.len() <= STOPPED_BYTES {
        return text.to_owned();
    }
    let most = STOPPED_BYTES - DOTS.len();
    let most = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let words = text[..most].rsplit_once(' ').map_or(&text[..most], |(words, _)| words);
    format!("{words}{DOTS}")
}

impl Stopped {
    /// Returns a stop at `when`, caused by the finding number `by` of a check. Only the beginning
    /// of `why` is stored. `None` if the number is 0.
    pub fn new(by: u32, when: Timestamp, why: &str) -> Option<Self> {
        let why = why.split('\0').next().unwrap_or_default();
        let why = shortened(why);
        (by != 0).then_some(Self { by, when, why })
    }

    /// Returns the number of the damage that the mount met; 1001 if it could not write to its log
    /// or volume.
    pub fn by(&self) -> u32 {
        self.by
    }

    /// Returns the time of the stop.
    pub fn when(&self) -> Timestamp {
        self.when
    }

    /// Returns the beginning of the description of the fault.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Decodes the reason. Invalid text is replaced, not reported: it must not make the volume
    /// unreadable.
    fn decode(raw: &RawSuperblock) -> Option<Self> {
        let when = Timestamp::decode(&raw.stopped).unwrap_or_default();
        let words = without_zeros(&raw.stopped_why);
        Self::new(raw.stopped_by.get(), when, &String::from_utf8_lossy(words))
    }
}

/// The superblock of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    volume: Uuid,
    pub(crate) generation: u64,
    geometry: Geometry,
    log: LogPlace,
    /// The volume's own id, if `features` tell that it has one.
    own_id: Uuid,
    /// The log's own id and the blocks that it uses, if `features` tell that it has them.
    log_id: Uuid,
    log_used: u64,
    /// The features of the volume.
    pub features: Features,
    /// The label.
    pub label: Label,
    /// The time when the volume was made.
    pub made: Timestamp,
    /// The time of the last write of the superblock.
    pub written: Timestamp,
    /// The time of the last mount.
    pub mounted: Timestamp,
    /// The time of the last check.
    pub checked: Timestamp,
    /// The position of the log.
    pub log_seen: LogSeen,
    /// The sums over the groups, if the log is closed and they were recorded since.
    pub sums: Option<GroupSums>,
    /// The stop of a mount, the first one since a check found the volume whole.
    pub stopped: Option<Stopped>,
    /// Where the pool begins, if `features` tell that the device has become one.
    pool: u64,
    /// Bytes that a later program wrote after the label, without the zeros at their end.
    rest: Box<[u8]>,
    /// Bytes that a later program wrote after the fields of the log, likewise.
    behind: Box<[u8]>,
}

/// Error of decoding a superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The superblock is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The superblock is intact, but its version is unknown.
    #[error("the volume has format version {version}; this program knows version {VERSION}")]
    Version {
        /// The version.
        version: u32,
    },
}

impl Superblock {
    /// Returns the superblock of a new volume, made now and not written yet, with the log as
    /// [`LogPlace::inside`] places it.
    pub fn new(volume: Uuid, geometry: Geometry) -> Self {
        let (features, log) = (Features::default(), LogPlace::inside(geometry, None));
        let (made, never) = (Timestamp::now(), Timestamp::NEVER);
        let (label, generation) = (Label::default(), 0);
        let (written, mounted, checked) = (never, never, never);
        let (log_seen, stopped) = (LogSeen::default(), None);
        let (rest, behind) = (Box::default(), Box::default());
        Self {
            volume,
            generation,
            geometry,
            log,
            own_id: Uuid::NIL,
            log_id: Uuid::NIL,
            log_used: 0,
            features,
            label,
            made,
            written,
            mounted,
            checked,
            log_seen,
            sums: None,
            stopped,
            pool: 0,
            rest,
            behind,
        }
    }

    /// Returns the block at which the pool begins that the device has become, if it has.
    pub fn pool(&self) -> Option<u64> {
        (self.features.incompat & Features::POOL != 0).then_some(self.pool)
    }

    /// Returns the superblock that replaces this one and leads to a pool, which begins at block
    /// `first`. It is the next generation, so a reader takes it for the valid one.
    #[must_use]
    pub fn into_pool(mut self, first: u64) -> Self {
        self.features.incompat |= Features::POOL;
        (self.pool, self.generation, self.written) = (first, self.generation + 1, Timestamp::now());
        self
    }

    /// Returns the id in all blocks of the volume and in its log: its own id when it was made.
    pub fn volume(&self) -> Uuid {
        self.volume
    }

    /// Returns the volume's own id, by which people identify it.
    pub fn id(&self) -> Uuid {
        let has_own = self.features.compat & Features::OWN_ID != 0 && self.own_id != Uuid::NIL;
        if has_own { self.own_id } else { self.volume }
    }

    /// Returns a copy with another id of its own. The blocks of the volume retain theirs.
    #[must_use]
    pub fn with_id(mut self, id: Uuid) -> Self {
        let has_own = id != self.volume && id != Uuid::NIL;
        self.own_id = if has_own { id } else { Uuid::NIL };
        self.features.compat &= !Features::OWN_ID;
        self.features.compat |= if has_own { Features::OWN_ID } else { 0 };
        self
    }

    /// Notes that the volume is mounted and about to be changed, with the log in this state; `None`
    /// if that is not known exactly.
    pub(crate) fn note_mount(&mut self, log_seen: Option<LogSeen>) {
        self.mounted = Timestamp::now();
        let before = LogSeen { is_closed: false, ..self.log_seen };
        self.log_seen = log_seen.unwrap_or(before);
        self.sums = None;
    }

    /// Returns the generation: the number of writes of the superblock.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the division of the volume.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the location of the log.
    pub fn log(&self) -> LogPlace {
        self.log
    }

    /// Returns the id in the records of the log, if that is not [the volume's](Self::volume).
    pub fn log_id(&self) -> Option<Uuid> {
        (self.features.incompat & Features::LOG_ID != 0).then_some(self.log_id)
    }

    /// Returns how many blocks of its [place](Self::log) the log uses, from the first one on.
    pub fn log_blocks(&self) -> u64 {
        let own = self.log_id().map_or(0, |_| self.log_used);
        if own == 0 { self.log.blocks() } else { own }
    }

    /// Returns a copy whose log has an id of its own, and uses so many blocks of its place; `None`
    /// if they are too few or too many for it.
    #[must_use]
    pub fn with_log_id(mut self, id: Uuid, blocks: u64) -> Option<Self> {
        (self.log_id, self.log_used) = (id, blocks);
        self.features.incompat |= Features::LOG_ID;
        (LOG_BLOCKS_MIN..=self.log.blocks()).contains(&blocks).then_some(self)
    }

    /// Returns a copy with the log elsewhere, or `None` if the volume can't have it there.
    #[must_use]
    pub fn with_log(self, log: LogPlace) -> Option<Self> {
        // A log uses all of a new place.
        let log_used = if log == self.log { self.log_used } else { 0 };
        log.fits(self.geometry).then_some(Self { log, log_used, ..self })
    }

    /// Returns a copy with a larger `geometry`, or `None` if it would shrink or change the group
    /// size.
    #[must_use]
    pub fn with_geometry(self, geometry: Geometry) -> Option<Self> {
        let grows = geometry.group_log2() == self.geometry.group_log2()
            && geometry.blocks() >= self.geometry.blocks();
        // The sums don't include the new blocks.
        let sums = self.sums.filter(|_| geometry == self.geometry);
        grows.then_some(Self { geometry, sums, ..self })
    }

    /// Encodes copy number `copy` for block `address`, as it is written.
    pub fn encode(&self, copy: u32, address: u64) -> Box<Block> {
        let mut block = Block::zeroed();
        let raw: &mut RawSuperblock = transmute_mut!(block.body_mut());
        raw.version = VERSION.into();
        raw.block_log2 = BLOCK_LOG2;
        raw.group_log2 = self.geometry.group_log2();
        raw.generation = self.generation.into();
        raw.blocks = self.geometry.blocks().into();
        raw.groups = self.geometry.groups().into();
        raw.compat = self.features.compat.into();
        raw.ro_compat = self.features.ro_compat.into();
        raw.incompat = self.features.incompat.into();
        (raw.log_start, raw.log_device) = match self.log {
            LogPlace::Inside { start, .. } => (start.into(), Uuid::NIL),
            LogPlace::Outside { device, .. } => (U64::ZERO, device),
        };
        raw.log_blocks = self.log.blocks().into();
        (raw.log_id, raw.log_used) = (self.log_id, self.log_used.into());
        raw.made = self.made.raw();
        raw.written = self.written.raw();
        raw.mounted = self.mounted.raw();
        raw.checked = self.checked.raw();
        raw.label = self.label.raw();
        raw.log_epoch = self.log_seen.epoch.into();
        raw.log_last = self.log_seen.last.into();
        raw.log_checkpoint = self.log_seen.checkpoint.into();
        // An older program, which writes the superblock without knowing this field, changes the
        // generation and so invalidates the field.
        raw.log_closed = if self.log_seen.is_closed { self.generation } else { 0 }.into();
        if let Some(Stopped { by, when, why }) = &self.stopped {
            (raw.stopped_by, raw.stopped) = ((*by).into(), when.raw());
            raw.stopped_why[..why.len()].copy_from_slice(why.as_bytes());
        }
        raw.own_id = self.own_id;
        raw.pool = self.pool.into();
        raw.sums = RawSums::of(self.sums.filter(|_| self.log_seen.is_closed), self.generation);
        raw.rest[..self.rest.len()].copy_from_slice(&self.rest);
        raw.behind[..self.behind.len()].copy_from_slice(&self.behind);
        let (owner, volume) = (copy.into(), self.volume);
        block.seal(&Identity { magic: MAGIC, address, owner, volume }, 0);
        block
    }

    /// Decodes the superblock in a block that was read at `address`.
    ///
    /// # Errors
    /// Returns an error if the block is no intact superblock, not one of this address, or of
    /// another version.
    pub fn decode(block: &Block, address: u64) -> Result<Self, DecodeError> {
        let (volume, copy) = (block.header().volume, block.header().owner.get());
        block.verify(&Identity { magic: MAGIC, address, owner: copy, volume })?;
        let raw: &RawSuperblock = transmute_ref!(block.body());
        let version = raw.version.get();
        if version != VERSION {
            return Err(DecodeError::Version { version });
        }
        let geometry = decode_geometry(raw)?;
        let place = geometry.copies().zip(0..u64::from(COPIES)).find(|(at, _)| *at == address);
        if place.map(|(_, copy)| copy) != Some(copy) {
            return Err(Damage::Copy { address, copy }.into());
        }
        Ok(Self {
            volume,
            generation: raw.generation.get(),
            geometry,
            log: decode_log(raw, geometry)?,
            own_id: raw.own_id,
            log_id: raw.log_id,
            log_used: raw.log_used.get(),
            features: Features {
                compat: raw.compat.get(),
                ro_compat: raw.ro_compat.get(),
                incompat: raw.incompat.get(),
            },
            label: Label::decode(&raw.label)?,
            made: Timestamp::decode(&raw.made)?,
            written: Timestamp::decode(&raw.written)?,
            mounted: Timestamp::decode(&raw.mounted)?,
            checked: Timestamp::decode(&raw.checked)?,
            log_seen: LogSeen {
                epoch: raw.log_epoch.get(),
                last: raw.log_last.get(),
                checkpoint: raw.log_checkpoint.get(),
                is_closed: raw.log_closed != 0 && raw.log_closed == raw.generation,
            },
            sums: raw.sums.decode(raw.generation.get(), raw.log_closed.get(), geometry),
            stopped: Stopped::decode(raw),
            pool: raw.pool.get(),
            rest: without_zeros(&raw.rest).into(),
            behind: without_zeros(&raw.behind).into(),
        })
    }
}

/// Returns the bytes up to the last one that is not zero.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

fn decode_geometry(raw: &RawSuperblock) -> Result<Geometry, Damage> {
    if raw.block_log2 != BLOCK_LOG2 {
        return Err(Damage::BlockSize { log2: raw.block_log2 });
    }
    let (blocks, groups, log2) = (raw.blocks.get(), raw.groups.get(), raw.group_log2);
    let geometry = Geometry::new(blocks, log2).ok();
    // No volume has a size that would be rounded.
    let exact = geometry.filter(|found| found.blocks() == blocks && found.groups() == groups);
    exact.ok_or(Damage::Geometry { blocks, groups, log2 })
}

fn decode_log(raw: &RawSuperblock, geometry: Geometry) -> Result<LogPlace, Damage> {
    let (start, blocks, device) = (raw.log_start.get(), raw.log_blocks.get(), raw.log_device);
    let log = match device {
        Uuid::NIL => LogPlace::Inside { start, blocks },
        device => LogPlace::Outside { device, blocks },
    };
    let is_first = matches!(log, LogPlace::Inside { .. }) || start == 0;
    let has_id = raw.incompat.get() & Features::LOG_ID != 0;
    let used = raw.log_used.get();
    let is_used = !has_id || used == 0 || (LOG_BLOCKS_MIN..=blocks).contains(&used);
    let is_right = is_first && is_used && log.fits(geometry);
    if is_right { Ok(log) } else { Err(Damage::Log { start, blocks }) }
}

#[cfg(test)]
mod tests;
