//! The superblock: what there is to know before anything else can be read.
//!
//! # Invariants
//!
//! * A [`Superblock`] is possible: its numbers fit each other and lead nowhere outside of the
//!   volume. What is read from disk becomes one, or an error.
//! * Encoding and decoding are inverse to each other. What lies behind the fields that are known
//!   here is kept, for a *compat* feature may have put it there.
//! * The generation grows by one with each writing. Of several copies the one with the greatest
//!   generation counts ([`copies`](crate::volume::copies)).
//!
//! # Versions and features
//!
//! The version is that of the superblock itself, and of the block header: nothing can be read of a
//! later one. Everything else that changes is a feature, a bit in one of three sets (as in ext2):
//! who does not know a *compat* bit may do everything, one of *ro_compat* may read, one of
//! *incompat* may not even do that.

use std::fmt;
use std::mem::offset_of;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::header::{BODY_BYTES, Block, HEADER_BYTES, Identity, Magic};
use super::uuid::Uuid;
use super::{BLOCK_BYTES, Damage};
use crate::format::geometry::{COPIES, GROUP_BLOCKS_KEPT, Geometry};

/// What superblocks begin with.
pub const MAGIC: Magic = Magic(*b"vfsS");
/// The version of the superblock that this program writes, and the only one it reads.
pub const VERSION: u32 = 1;
/// The bytes of a label.
pub const LABEL_BYTES: usize = 64;
/// The fewest blocks of a log: 1 MiB.
pub const LOG_BLOCKS_MIN: u64 = 1 << 8;
/// The most blocks of a log: 2 GiB.
pub const LOG_BLOCKS_MAX: u64 = 1 << 19;

/// 4 KiB as a power of two.
const BLOCK_LOG2: u8 = BLOCK_BYTES.trailing_zeros() as u8;

/// A moment, on disk.
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
pub(crate) struct Raw {
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
    rest: [u8; REST_BYTES],
    stopped_by: U32,
    zero_behind_stopped: U32,
    stopped: RawTime,
    stopped_why: [u8; STOPPED_BYTES],
    own_id: Uuid,
    // All that changes is in the first 512 bytes, so that a device which writes these at once tears
    // nothing.
    log_epoch: U64,
    log_last: U64,
    log_checkpoint: U64,
    log_closed: U64,
    behind: [u8; BEHIND_BYTES],
}

/// The bytes up to the label, and those between that and what follows.
const FIELDS_BYTES: usize = 216;
const REST_BYTES: usize = 96;
/// The bytes of the words that say why a mount has stopped.
const STOPPED_BYTES: usize = 80;
const ID_BYTES: usize = 16;
const LOG_BYTES: usize = 32;
/// The bytes behind all fields.
const BEHIND_BYTES: usize =
    BODY_BYTES - FIELDS_BYTES - REST_BYTES - (24 + STOPPED_BYTES) - ID_BYTES - LOG_BYTES;

/// The fields as `docs/FORMAT.md` lists them: offset in the block, bytes, name.
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (HEADER_BYTES + offset_of!(Raw, version), 4, "version"),
    (HEADER_BYTES + offset_of!(Raw, block_log2), 1, "block size"),
    (HEADER_BYTES + offset_of!(Raw, group_log2), 1, "group size"),
    (HEADER_BYTES + offset_of!(Raw, zero), 2, ""),
    (HEADER_BYTES + offset_of!(Raw, generation), 8, "generation"),
    (HEADER_BYTES + offset_of!(Raw, blocks), 8, "blocks"),
    (HEADER_BYTES + offset_of!(Raw, groups), 4, "groups"),
    (HEADER_BYTES + offset_of!(Raw, zero_behind_groups), 4, ""),
    (HEADER_BYTES + offset_of!(Raw, compat), 8, "compat"),
    (HEADER_BYTES + offset_of!(Raw, ro_compat), 8, "ro_compat"),
    (HEADER_BYTES + offset_of!(Raw, incompat), 8, "incompat"),
    (HEADER_BYTES + offset_of!(Raw, log_start), 8, "log start"),
    (HEADER_BYTES + offset_of!(Raw, log_blocks), 8, "log blocks"),
    (HEADER_BYTES + offset_of!(Raw, log_device), 16, "log device"),
    (HEADER_BYTES + offset_of!(Raw, made), 16, "made"),
    (HEADER_BYTES + offset_of!(Raw, written), 16, "written"),
    (HEADER_BYTES + offset_of!(Raw, mounted), 16, "mounted"),
    (HEADER_BYTES + offset_of!(Raw, checked), 16, "checked"),
    (HEADER_BYTES + offset_of!(Raw, label), 64, "label"),
    (HEADER_BYTES + offset_of!(Raw, rest), REST_BYTES, ""),
    (HEADER_BYTES + offset_of!(Raw, stopped_by), 4, "stopped by"),
    (HEADER_BYTES + offset_of!(Raw, zero_behind_stopped), 4, ""),
    (HEADER_BYTES + offset_of!(Raw, stopped), 16, "stopped"),
    (HEADER_BYTES + offset_of!(Raw, stopped_why), STOPPED_BYTES, "stopped why"),
    (HEADER_BYTES + offset_of!(Raw, own_id), 16, "own id"),
    (HEADER_BYTES + offset_of!(Raw, log_epoch), 8, "log epoch"),
    (HEADER_BYTES + offset_of!(Raw, log_last), 8, "log LSN"),
    (HEADER_BYTES + offset_of!(Raw, log_checkpoint), 8, "log checkpoint"),
    (HEADER_BYTES + offset_of!(Raw, log_closed), 8, "log closed"),
    (HEADER_BYTES + offset_of!(Raw, behind), BEHIND_BYTES, ""),
];

const _: () = {
    assert!(size_of::<Raw>() == BODY_BYTES && size_of::<RawTime>() == 16);
    // No gaps, and the last field ends with the block.
    let (mut at, mut field) = (HEADER_BYTES, 0);
    while field < FIELDS.len() {
        assert!(FIELDS[field].0 == at);
        at += FIELDS[field].1;
        field += 1;
    }
    assert!(at == BLOCK_BYTES && FIELDS[FIELDS.len() - 1].0 == 512);
};

/// A moment: seconds since 1970, which may be negative, and nanoseconds. `Default` is *never*,
/// which is also what the first nanosecond of 1970 reads as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// It has not happened.
    pub const NEVER: Self = Self { seconds: 0, nanoseconds: 0 };

    /// The moment `nanoseconds` after a second; `None` if they are a second or more.
    #[must_use]
    pub const fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        if nanoseconds < 1_000_000_000 { Some(Self { seconds, nanoseconds }) } else { None }
    }

    /// Now, by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Its whole seconds since 1970, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Its nanoseconds after them.
    #[must_use]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// All of it in nanoseconds, as inodes have it; the nearest that 64 bits hold, which last until
    /// 2262.
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
    /// The moment itself; one that 64 bits of seconds don't reach is as far as they do.
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

/// The name that its owner gave a volume: up to 64 bytes of text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Label(String);

/// A text that is no [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a label has {LABEL_BYTES} bytes at most, and none of them is zero")]
pub struct NoLabel;

impl FromStr for Label {
    type Err = NoLabel;

    fn from_str(text: &str) -> Result<Self, NoLabel> {
        let fits = text.len() <= LABEL_BYTES && !text.contains('\0');
        if fits { Ok(Self(text.into())) } else { Err(NoLabel) }
    }
}

impl Label {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn raw(&self) -> [u8; LABEL_BYTES] {
        let mut raw = [0; LABEL_BYTES];
        raw[..self.0.len()].copy_from_slice(self.0.as_bytes());
        raw
    }

    fn decode(raw: &[u8; LABEL_BYTES]) -> Result<Self, Damage> {
        let length = raw.iter().position(|byte| *byte == 0).unwrap_or(LABEL_BYTES);
        let (text, behind) = raw.split_at(length);
        let text = str::from_utf8(text).map_err(|_| Damage::Label)?;
        let is_clean = behind.iter().all(|byte| *byte == 0);
        if is_clean { Ok(Self(text.into())) } else { Err(Damage::Label) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:?})", self.0)
    }
}

/// Features that a volume uses and that other programs may not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Who does not know these may do everything.
    pub compat: u64,
    /// Who does not know these may read.
    pub ro_compat: u64,
    /// Who does not know these may do nothing.
    pub incompat: u64,
}

impl Features {
    /// Bit 1 of *compat*: the volume has an id of its own, which is not that of its blocks.
    pub const OWN_ID: u64 = 2;
    /// Bit 0 of *incompat*, a state: a repair has begun and not ended, so that blocks in use may
    /// count as free.
    pub const NEEDS_REPAIR: u64 = 1;
    /// Those that this program knows.
    pub const KNOWN: Self =
        Self { compat: Self::OWN_ID, ro_compat: 0, incompat: Self::NEEDS_REPAIR };

    /// Whether a repair has begun and not ended.
    #[must_use]
    pub const fn needs_repair(self) -> bool {
        self.incompat & Self::NEEDS_REPAIR != 0
    }

    /// Returns these features with a repair under way, or without.
    #[must_use]
    pub const fn with_repair(self, is_under_way: bool) -> Self {
        let others = self.incompat & !Self::NEEDS_REPAIR;
        let incompat = if is_under_way { others | Self::NEEDS_REPAIR } else { others };
        Self { incompat, ..self }
    }

    /// Those that this program does not know.
    #[must_use]
    pub const fn unknown(self) -> Self {
        Self {
            compat: self.compat & !Self::KNOWN.compat,
            ro_compat: self.ro_compat & !Self::KNOWN.ro_compat,
            incompat: self.incompat & !Self::KNOWN.incompat,
        }
    }
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In the volume: `blocks` blocks from `start` on, all in one group, behind the group's kept
    /// blocks.
    Inside {
        /// Its first block.
        start: u64,
        /// Its size, in blocks.
        blocks: u64,
    },
    /// On a device of its own, from its start on.
    Outside {
        /// The id by which it is known; not nil.
        device: Uuid,
        /// Its size, in blocks.
        blocks: u64,
    },
}

impl LogPlace {
    /// A log in the middle of the volume, of the size that it [should have](Self::wanted_blocks),
    /// or `blocks` if given, as far as a group and the bounds of logs permit.
    #[must_use]
    pub fn inside(geometry: Geometry, blocks: Option<u64>) -> Self {
        let blocks = blocks.unwrap_or(Self::wanted_blocks(geometry));
        // The middle group is never the last one, for there are four at least; so it is a full one.
        let start = u64::from(geometry.groups() / 2) * geometry.group_blocks() + GROUP_BLOCKS_KEPT;
        let most = LOG_BLOCKS_MAX.min(geometry.group_blocks() - GROUP_BLOCKS_KEPT);
        Self::Inside { start, blocks: blocks.clamp(LOG_BLOCKS_MIN, most) }
    }

    /// How many blocks a log has unless it is said: a 64th of the volume, 4 MiB at least, 1 GiB at
    /// most.
    #[must_use]
    pub fn wanted_blocks(geometry: Geometry) -> u64 {
        (geometry.blocks() / 64).clamp(1 << 10, 1 << 18)
    }

    /// Its size, in blocks.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        match self {
            Self::Inside { blocks, .. } | Self::Outside { blocks, .. } => blocks,
        }
    }

    /// Whether a volume so divided can have it.
    #[must_use]
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

/// How far the log had come when it was opened or closed last. `Default`: not known, as in volumes
/// of before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSeen {
    /// The epoch that it had reached.
    pub epoch: u64,
    /// The place of a record that was durable in it.
    pub last: u64,
    /// The number of its last checkpoint.
    pub checkpoint: u64,
    /// It was closed with that record, and not opened since.
    pub is_closed: bool,
}

/// What has stopped a mount of a volume that was not checked since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    by: u32,
    when: Timestamp,
    why: String,
}

impl Stopped {
    /// A mount stopped at `when`, by what has the number `by` among the findings of a check. Of
    /// `why` only the beginning is kept. `None` if the number is 0.
    #[must_use]
    pub fn new(by: u32, when: Timestamp, why: &str) -> Option<Self> {
        let why = why.split('\0').next().unwrap_or_default();
        let length = (0..=STOPPED_BYTES.min(why.len())).rev().find(|at| why.is_char_boundary(*at));
        let why = why[..length.unwrap_or(0)].to_owned();
        (by != 0).then_some(Self { by, when, why })
    }

    /// The number of the damage that the mount met; 1001 if it could not write its log, or not
    /// home.
    #[must_use]
    pub fn by(&self) -> u32 {
        self.by
    }

    /// When that was.
    #[must_use]
    pub fn when(&self) -> Timestamp {
        self.when
    }

    /// The beginning of what was wrong, in words.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Decodes it. Words that are none are left out, rather than that nothing of the volume can be
    /// read.
    fn decode(raw: &Raw) -> Option<Self> {
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
    /// Its id, if `features` says that it has one of its own.
    own_id: Uuid,
    /// What the volume uses.
    pub features: Features,
    /// Its name.
    pub label: Label,
    /// When the volume was made.
    pub made: Timestamp,
    /// When the superblock was written last.
    pub written: Timestamp,
    /// When the volume was mounted last.
    pub mounted: Timestamp,
    /// When the volume was checked last.
    pub checked: Timestamp,
    /// How far the log had come.
    pub log_seen: LogSeen,
    /// What has stopped a mount, the first one since the volume was checked and found whole.
    pub stopped: Option<Stopped>,
    /// What a later program has put behind all that, without the zeros at its end.
    rest: Box<[u8]>,
    /// The same behind the fields of the log.
    behind: Box<[u8]>,
}

/// A superblock that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is not whole.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// It is whole, and of a version that is not known here.
    #[error("the volume has format version {version}; this program knows version {VERSION}")]
    Version {
        /// The version.
        version: u32,
    },
}

impl Superblock {
    /// The superblock of a new volume, not written yet, made now, with the log where
    /// [`LogPlace::inside`] puts it.
    #[must_use]
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
            features,
            label,
            made,
            written,
            mounted,
            checked,
            log_seen,
            stopped,
            rest,
            behind,
        }
    }

    /// The id that all blocks of the volume have, and its log: the volume's own when it was made.
    #[must_use]
    pub fn volume(&self) -> Uuid {
        self.volume
    }

    /// The volume's own id, by which people know it.
    #[must_use]
    pub fn id(&self) -> Uuid {
        let has_own = self.features.compat & Features::OWN_ID != 0 && self.own_id != Uuid::NIL;
        if has_own { self.own_id } else { self.volume }
    }

    /// The same with another id of its own. Its blocks keep theirs.
    #[must_use]
    pub fn with_id(mut self, id: Uuid) -> Self {
        let has_own = id != self.volume && id != Uuid::NIL;
        self.own_id = if has_own { id } else { Uuid::NIL };
        self.features.compat &= !Features::OWN_ID;
        self.features.compat |= if has_own { Features::OWN_ID } else { 0 };
        self
    }

    /// How often the superblock has been written.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How the volume is divided.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where the log is.
    #[must_use]
    pub fn log(&self) -> LogPlace {
        self.log
    }

    /// The same with the log elsewhere; `None` if the volume can't have it there.
    #[must_use]
    pub fn with_log(self, log: LogPlace) -> Option<Self> {
        log.fits(self.geometry).then_some(Self { log, ..self })
    }

    /// The same, grown; `None` if the size is less than before, or its groups are others.
    #[must_use]
    pub fn with_geometry(self, geometry: Geometry) -> Option<Self> {
        let grows = geometry.group_log2() == self.geometry.group_log2()
            && geometry.blocks() >= self.geometry.blocks();
        grows.then_some(Self { geometry, ..self })
    }

    /// Copy number `copy` for block `address`, as it is written.
    #[must_use]
    pub fn encode(&self, copy: u32, address: u64) -> Box<Block> {
        let mut block = Block::zeroed();
        let raw: &mut Raw = transmute_mut!(block.body_mut());
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
        raw.made = self.made.raw();
        raw.written = self.written.raw();
        raw.mounted = self.mounted.raw();
        raw.checked = self.checked.raw();
        raw.label = self.label.raw();
        raw.log_epoch = self.log_seen.epoch.into();
        raw.log_last = self.log_seen.last.into();
        raw.log_checkpoint = self.log_seen.checkpoint.into();
        // A program from before, which writes the superblock without a look at this, takes it back
        // so.
        raw.log_closed = if self.log_seen.is_closed { self.generation } else { 0 }.into();
        if let Some(Stopped { by, when, why }) = &self.stopped {
            (raw.stopped_by, raw.stopped) = ((*by).into(), when.raw());
            raw.stopped_why[..why.len()].copy_from_slice(why.as_bytes());
        }
        raw.own_id = self.own_id;
        raw.rest[..self.rest.len()].copy_from_slice(&self.rest);
        raw.behind[..self.behind.len()].copy_from_slice(&self.behind);
        let (owner, volume) = (copy.into(), self.volume);
        block.seal(&Identity { magic: MAGIC, address, owner, volume }, 0);
        block
    }

    /// The superblock in a block that was read at `address`.
    ///
    /// # Errors
    /// The block is no whole superblock, not one that lies there, or of another version.
    pub fn decode(block: &Block, address: u64) -> Result<Self, DecodeError> {
        let (volume, copy) = (block.header().volume, block.header().owner.get());
        block.verify(&Identity { magic: MAGIC, address, owner: copy, volume })?;
        let raw: &Raw = transmute_ref!(block.body());
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
            stopped: Stopped::decode(raw),
            rest: without_zeros(&raw.rest).into(),
            behind: without_zeros(&raw.behind).into(),
        })
    }
}

/// The bytes up to the last one that is not zero.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

fn decode_geometry(raw: &Raw) -> Result<Geometry, Damage> {
    if raw.block_log2 != BLOCK_LOG2 {
        return Err(Damage::BlockSize { log2: raw.block_log2 });
    }
    let (blocks, groups, log2) = (raw.blocks.get(), raw.groups.get(), raw.group_log2);
    let geometry = Geometry::new(blocks, log2).ok();
    // A size that would be rounded is none that a volume has.
    let exact = geometry.filter(|found| found.blocks() == blocks && found.groups() == groups);
    exact.ok_or(Damage::Geometry { blocks, groups, log2 })
}

fn decode_log(raw: &Raw, geometry: Geometry) -> Result<LogPlace, Damage> {
    let (start, blocks, device) = (raw.log_start.get(), raw.log_blocks.get(), raw.log_device);
    let log = match device {
        Uuid::NIL => LogPlace::Inside { start, blocks },
        device => LogPlace::Outside { device, blocks },
    };
    let is_first = matches!(log, LogPlace::Inside { .. }) || start == 0;
    if is_first && log.fits(geometry) { Ok(log) } else { Err(Damage::Log { start, blocks }) }
}

#[cfg(test)]
mod tests;
