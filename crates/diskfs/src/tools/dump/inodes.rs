//! Inodes, and their directories, extents and attributes.

use vfscale_vfs::Escaped;

use super::{Dump, DumpError, Value};
use crate::btree::{Error, Record, Tree};
use crate::dir::{Directory, NameHash};
use crate::format::Damage;
use crate::format::extent::Extent;
use crate::format::inode::{FLAG_NAMES, InodeRecord, ROOT_INO, block_of, records, slot_of};
use crate::inode::attr;
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::tools::check::NoChange;
use crate::tools::moment::nanoseconds;

impl Dump {
    fn read_record(&self, ino: u64) -> Result<InodeRecord, DumpError> {
        let (media, block) = (self.media(), block_of(ino));
        if !media.is_one(block) {
            return Err(DumpError::NoSuch(format!("there can be no inode {ino}")));
        }
        let block = media.inodes(block)?.0;
        Ok(records(&block)[slot_of(ino)].clone())
    }

    fn core(&self, ino: u64) -> Result<InodeCore, DumpError> {
        let media = self.media();
        let record = self.read_record(ino)?;
        if record.is_free() {
            return Err(DumpError::NoSuch(format!("inode {ino} is free")));
        }
        Ok(InodeCore::decode(ino, &record, |start, blocks| media.has_ends(start, blocks))?)
    }

    /// Finds the number of the inode at a path from the root of the volume. Follows no symbolic
    /// links.
    ///
    /// # Errors
    /// [`DumpError::NoSuch`] if there is no such inode; [`DumpError::Damage`].
    pub fn find(&self, path: &[u8]) -> Result<u64, DumpError> {
        let media = self.media();
        let mut ino = ROOT_INO;
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            let core = self.core(ino)?;
            let shown = Escaped::bytes(name);
            if !core.is_directory() {
                let why = format!("{}: inode {ino} above it is no directory", shown);
                return Err(DumpError::NoSuch(why));
            }
            if name == b".." {
                ino = core.parent;
                continue;
            }
            let directory = Directory::new(ino, NameHash::of(media.volume()));
            ino = match directory.lookup(&media, &core, name) {
                Ok(Some(found)) => found.ino,
                Ok(None) => {
                    let why = format!("{}: there is no such name in directory {ino}", shown);
                    return Err(DumpError::NoSuch(why));
                }
                Err(Error::Damage(damage)) => return Err(damage.into()),
                Err(Error::Nodes(why)) => return Err(DumpError::NoSuch(why.to_string())),
            };
        }
        Ok(ino)
    }

    pub(super) fn inode(&self, ino: u64) -> Result<Value, DumpError> {
        let (media, found) = (self.media(), self.read_record(ino)?);
        let value = record(ino, &found, &|start, blocks| media.has_ends(start, blocks));
        let Ok(core) =
            InodeCore::decode(ino, &found, |start, blocks| media.has_ends(start, blocks))
        else {
            return Ok(value);
        };
        if !core.is_link() {
            return Ok(value);
        }
        let target = match &core.data {
            DataFork::Inline(target) => Ok(target.to_vec()),
            DataFork::Tree { root } => {
                let bytes = u32::try_from(core.size).unwrap_or(u32::MAX);
                blob::load(&media, Tree::<LinkTree>::at(*root, ino), bytes)
            }
            _ => return Ok(value),
        };
        Ok(match target {
            Ok(target) => value.with("target", Value::bytes(&target)),
            Err(error) => value.with("damage", error.to_string()),
        })
    }

    pub(super) fn directory(&self, ino: u64) -> Result<Value, DumpError> {
        let (media, core) = (self.media(), self.core(ino)?);
        if !core.is_directory() {
            return Err(DumpError::NoSuch(format!("inode {ino} is no directory")));
        }
        let (mut entries, mut damages) = (Vec::new(), Vec::new());
        let directory = Directory::new(ino, NameHash::of(media.volume()));
        let checked = directory.check(
            &media,
            &core,
            &mut |damage| damages.push(Value::from(damage.to_string())),
            &mut |_| {},
            &mut |entry| {
                entries.push(
                    Value::fields()
                        .with("position", entry.position)
                        .with("inode", entry.ino)
                        .with("type", entry.kind as u8)
                        .with("name", Value::bytes(entry.name)),
                );
            },
        );
        let tree = checked.unwrap_or_default();
        let value = Value::fields()
            .with("directory", ino)
            .with("parent", core.parent)
            .with("size", core.size)
            .with("levels", tree.map(|tree| tree.levels));
        let value = if damages.is_empty() { value } else { value.with("damage", damages) };
        Ok(value.with("entries", entries))
    }

    pub(super) fn extents(&self, ino: u64) -> Result<Value, DumpError> {
        let core = self.core(ino)?;
        if !core.is_regular() {
            return Err(DumpError::NoSuch(format!("inode {ino} is no regular file")));
        }
        let value = Value::fields().with("inode", ino).with("size", core.size);
        Ok(match &core.data {
            DataFork::None => value.with("extents", Value::List(Vec::new())),
            DataFork::Inline(bytes) => value.with("bytes in the inode", bytes.len() as u64),
            DataFork::Extents(list) => {
                value.with("extents", list.iter().map(extent).collect::<Value>())
            }
            DataFork::Tree { root } => {
                let show = |record: &Record<ExtentTree>| {
                    extent(&Extent::of(record.key.get(), &record.value))
                };
                value.with("tree", self.walk::<ExtentTree>(*root, ino, show))
            }
        })
    }

    pub(super) fn attributes(&self, ino: u64) -> Result<Value, DumpError> {
        let core = self.core(ino)?;
        let list = attr::load(&self.media(), ino, &core.attr).map_err(damage_of)?;
        let list = list.iter().map(|(name, value)| {
            Value::fields()
                .with("name", Value::bytes(name))
                .with("bytes", value.len() as u64)
                .with("value", Value::bytes(value))
        });
        let value = Value::fields().with("inode", ino).with("attributes", list.collect::<Value>());
        Ok(value)
    }
}

fn damage_of(error: Error<NoChange>) -> DumpError {
    match error {
        Error::Damage(damage) => damage.into(),
        Error::Nodes(error) => DumpError::NoSuch(error.to_string()),
    }
}

/// Shows the record of an inode by its fields.
pub(super) fn record(
    ino: u64,
    record: &InodeRecord,
    is_possible: &dyn Fn(u64, u64) -> bool,
) -> Value {
    let value = Value::fields().with("inode", ino);
    if record.is_free() {
        return value.with("free", true).with("generation", record.generation());
    }
    match InodeCore::decode(ino, record, is_possible) {
        Ok(core) => fields(value, &core),
        Err(damage) => {
            let value = value.with("damage", Damage::to_string(&damage));
            value.with("bytes", Value::hex(&record.0))
        }
    }
}

/// Returns the names of the flags that have one.
fn flag_names(flags: u16) -> Value {
    let is_set = |(bit, _): &(usize, &str)| flags & (1 << bit) != 0;
    let names = FLAG_NAMES.into_iter().enumerate().filter(is_set);
    names.map(|(_, name)| Value::from(name)).collect()
}

fn fields(value: Value, core: &InodeCore) -> Value {
    let value = value
        .with("mode", format!("{:06o}", core.mode))
        .with("flags", format!("{:#x}", core.flags))
        .with("flag_names", flag_names(core.flags))
        .with("links", core.nlink)
        .with("uid", core.uid)
        .with("gid", core.gid)
        .with("size", core.size)
        .with("blocks", core.blocks)
        .with("generation", core.generation)
        .with("device", core.rdev)
        .with("atime", nanoseconds(core.atime))
        .with("mtime", nanoseconds(core.mtime))
        .with("ctime", nanoseconds(core.ctime))
        .with("btime", nanoseconds(core.btime))
        .with("parent", core.parent);
    let data = match &core.data {
        DataFork::None => Value::fields().with("format", "none"),
        DataFork::Inline(bytes) => {
            Value::fields().with("format", "inline").with("bytes", Value::hex(bytes))
        }
        DataFork::Extents(list) => Value::fields()
            .with("format", "extents")
            .with("extents", list.iter().map(extent).collect::<Value>()),
        DataFork::Tree { root } => Value::fields().with("format", "tree").with("root", *root),
    };
    let attributes = match &core.attr {
        AttrFork::None => Value::fields().with("format", "none"),
        AttrFork::Inline(bytes) => {
            Value::fields().with("format", "inline").with("bytes", Value::hex(bytes))
        }
        AttrFork::Tree { root, bytes } => {
            Value::fields().with("format", "tree").with("root", *root).with("length", *bytes)
        }
    };
    value.with("data", data).with("attributes", attributes)
}

/// Shows an extent by its fields.
pub(super) fn extent(extent: &Extent) -> Value {
    Value::fields()
        .with("file block", extent.file_block)
        .with("start", extent.start)
        .with("blocks", extent.blocks)
        .with("unwritten", extent.is_unwritten)
}
