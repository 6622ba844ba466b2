//! The file system of components: `wasi:filesystem` of preview 2.

use vfscale::posix::{OFlags, SetTime, Stat};
use vfscale::{Errno, FileType, Timestamp};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::sync::filesystem::types::{
    self, Advice, Datetime, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry,
    ErrorCode, Filesize, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::errors::{Outcome, code};
use crate::filesystem::Filesystem;
use crate::node::Node;

mod listing;
mod streams;

use listing::Listing;
use streams::{Reader, Writer};

/// The most bytes that one call reads, since the host has to hold them.
const READ_MAX: usize = 64 << 10;

/// The state of a component for its calls: the preopened directories, and the table of handles.
#[derive(Debug)]
pub struct View<'a> {
    /// The preopened directories.
    pub files: &'a mut Filesystem,
    /// The handles, which are those of the rest of WASI too.
    pub table: &'a mut ResourceTable,
}

/// The data of a store whose components have files of vfscale. [`Guest`] is one.
pub trait FilesystemView: WasiView {
    /// Returns what the calls use.
    fn files(&mut self) -> View<'_>;
}

/// The data of a store, for hosts that have none of their own.
///
/// ```
/// # fn main() -> wasmtime::Result<()> {
/// use vfscale_wasi::{Filesystem, p2};
/// use wasmtime_wasi::WasiCtxBuilder;
///
/// let engine = wasmtime::Engine::default();
/// let mut linker = wasmtime::component::Linker::<p2::Guest>::new(&engine);
/// p2::add_to_linker_sync(&mut linker)?;
/// let guest = p2::Guest::new(WasiCtxBuilder::new().build(), Filesystem::new());
/// let store = wasmtime::Store::new(&engine, guest);
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
pub struct Guest {
    wasi: WasiCtx,
    table: ResourceTable,
    files: Filesystem,
}

impl Guest {
    /// Returns the state of a guest. Directories that `wasi` has preopened are not seen.
    pub fn new(wasi: WasiCtx, files: Filesystem) -> Guest {
        Guest { wasi, table: ResourceTable::new(), files }
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("files", &self.files).finish_non_exhaustive()
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl FilesystemView for Guest {
    fn files(&mut self) -> View<'_> {
        View { files: &mut self.files, table: &mut self.table }
    }
}

/// Adds all of preview 2, for stores that are not async.
///
/// # Errors
/// If the linker has one of the interfaces already.
pub fn add_to_linker_sync<T: FilesystemView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_sync(linker)?;
    add_files(linker)
}

/// Adds all of preview 2, for stores that are async. Calls on files never give way to other tasks:
/// in memory they do not wait, on a volume they wait for the device on this thread.
///
/// # Errors
/// If the linker has one of the interfaces already.
pub fn add_to_linker_async<T: FilesystemView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    add_files(linker)
}

struct Files;

impl HasData for Files {
    type Data<'a> = View<'a>;
}

/// Puts our files in the place of those of the host.
fn add_files<T: FilesystemView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let added = preopens::add_to_linker::<T, Files>(linker, T::files)
        .and_then(|()| types::add_to_linker::<T, Files>(linker, T::files));
    linker.allow_shadowing(false);
    added
}

// The types of the handles are those of `wasmtime_wasi`, which has them in its interfaces, but no
// value of them exists: a handle is the number of ours in the table.
fn ours<T: 'static, H: 'static>(handle: &Resource<H>) -> Resource<T> {
    Resource::new_borrow(handle.rep())
}

fn fail(errno: Errno) -> FsError {
    code(errno).into()
}

trait OrFail<T> {
    fn or_fail(self) -> FsResult<T>;
}

impl<T> OrFail<T> for Outcome<T> {
    fn or_fail(self) -> FsResult<T> {
        self.map_err(fail)
    }
}

impl View<'_> {
    fn node(&self, handle: &Resource<types::Descriptor>) -> FsResult<&Node> {
        Ok(self.table.get(&ours::<Node, _>(handle))?)
    }

    fn file(&self, handle: &Resource<types::Descriptor>) -> FsResult<&Node> {
        let node = self.node(handle)?;
        if node.is_dir() { Err(fail(Errno::BADF)) } else { Ok(node) }
    }

    fn push(&mut self, node: Node) -> wasmtime::Result<Resource<types::Descriptor>> {
        Ok(Resource::new_own(self.table.push(node)?.rep()))
    }

    fn hash(&self, stat: &Stat) -> MetadataHashValue {
        let [lower, upper] = self.files.identity(stat);
        MetadataHashValue { lower, upper }
    }

    fn push_writer(&mut self, writer: Writer) -> FsResult<Resource<DynOutputStream>> {
        let writer: DynOutputStream = Box::new(writer);
        Ok(self.table.push(writer)?)
    }
}

impl preopens::Host for View<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<types::Descriptor>, String)>> {
        let preopens = self.files.preopens().to_vec();
        preopens.into_iter().map(|(node, name)| Ok((self.push(node)?, name))).collect()
    }
}

impl types::Host for View<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        Ok(error.downcast()?.into())
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        let error = self.table.get(&error)?;
        Ok(error.downcast_ref::<Errno>().map(|&errno| code(errno).into()))
    }
}

impl types::HostDescriptor for View<'_> {
    fn advise(
        &mut self,
        handle: Resource<types::Descriptor>,
        _offset: Filesize,
        _len: Filesize,
        _advice: Advice,
    ) -> FsResult<()> {
        // A volume reads ahead by what it sees.
        self.file(&handle).map(|_| ())
    }

    fn sync_data(&mut self, handle: Resource<types::Descriptor>) -> FsResult<()> {
        self.node(&handle)?.sync(true).or_fail()
    }

    fn sync(&mut self, handle: Resource<types::Descriptor>) -> FsResult<()> {
        self.node(&handle)?.sync(false).or_fail()
    }

    fn get_flags(&mut self, handle: Resource<types::Descriptor>) -> FsResult<DescriptorFlags> {
        Ok(flags_of(self.node(&handle)?))
    }

    fn get_type(&mut self, handle: Resource<types::Descriptor>) -> FsResult<DescriptorType> {
        Ok(type_of(self.node(&handle)?.file_type()))
    }

    fn set_size(&mut self, handle: Resource<types::Descriptor>, size: Filesize) -> FsResult<()> {
        self.file(&handle)?.set_size(size).or_fail()
    }

    fn set_times(
        &mut self,
        handle: Resource<types::Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        let times = [time_from(accessed)?, time_from(modified)?];
        self.node(&handle)?.set_times(times).or_fail()
    }

    fn read(
        &mut self,
        handle: Resource<types::Descriptor>,
        len: Filesize,
        offset: Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        let file = self.file(&handle)?;
        let mut buf = vec![0; usize::try_from(len).map_or(READ_MAX, |len| len.min(READ_MAX))];
        let n = file.pread(&mut buf, offset).or_fail()?;
        let is_end = n == 0 && !buf.is_empty();
        buf.truncate(n);
        Ok((buf, is_end))
    }

    fn write(
        &mut self,
        handle: Resource<types::Descriptor>,
        buf: Vec<u8>,
        offset: Filesize,
    ) -> FsResult<Filesize> {
        Ok(self.file(&handle)?.pwrite(&buf, offset).or_fail()? as Filesize)
    }

    fn read_directory(
        &mut self,
        handle: Resource<types::Descriptor>,
    ) -> FsResult<Resource<types::DirectoryEntryStream>> {
        let dir = self.node(&handle)?;
        let listing = Listing::new(dir.clone()).or_fail()?;
        Ok(Resource::new_own(self.table.push(listing)?.rep()))
    }

    fn create_directory_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.node(&handle)?.make_dir(&path).or_fail()
    }

    fn stat(&mut self, handle: Resource<types::Descriptor>) -> FsResult<DescriptorStat> {
        Ok(stat_of(&self.node(&handle)?.stat().or_fail()?))
    }

    fn stat_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        let stat = self.node(&handle)?.stat_at(&path, follows(path_flags)).or_fail()?;
        Ok(stat_of(&stat))
    }

    fn set_times_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path_flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        let times = [time_from(accessed)?, time_from(modified)?];
        self.node(&handle)?.set_times_at(&path, follows(path_flags), times).or_fail()
    }

    fn link_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        old_path_flags: PathFlags,
        old_path: String,
        new_handle: Resource<types::Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        if follows(old_path_flags) {
            return Err(fail(Errno::INVAL));
        }
        let (old, new) = (self.node(&handle)?, self.node(&new_handle)?);
        old.link_to(&old_path, new, &new_path).or_fail()
    }

    fn open_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<types::Descriptor>> {
        let flags = open_flags_from(open_flags, flags);
        let node = self.node(&handle)?.open_at(&path, follows(path_flags), flags).or_fail()?;
        self.push(node).map_err(FsError::trap)
    }

    fn drop(&mut self, handle: Resource<types::Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Node>::new_own(handle.rep()))?;
        Ok(())
    }

    fn readlink_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<String> {
        self.node(&handle)?.read_link(&path).or_fail()
    }

    fn remove_directory_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.node(&handle)?.remove_dir(&path).or_fail()
    }

    fn rename_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        old_path: String,
        new_handle: Resource<types::Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        let (old, new) = (self.node(&handle)?, self.node(&new_handle)?);
        old.rename_to(&old_path, new, &new_path).or_fail()
    }

    fn symlink_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        target: String,
        path: String,
    ) -> FsResult<()> {
        self.node(&handle)?.make_symlink(&target, &path).or_fail()
    }

    fn unlink_file_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.node(&handle)?.remove_file(&path).or_fail()
    }

    fn read_via_stream(
        &mut self,
        handle: Resource<types::Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        let node = self.node(&handle)?;
        if node.is_dir() {
            return Err(fail(Errno::ISDIR));
        }
        if !node.may_read() {
            return Err(fail(Errno::BADF));
        }
        let reader: DynInputStream = Box::new(Reader::new(node.clone(), offset));
        Ok(self.table.push(reader)?)
    }

    fn write_via_stream(
        &mut self,
        handle: Resource<types::Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        let file = self.file(&handle)?;
        if !file.may_write() {
            return Err(fail(Errno::BADF));
        }
        let writer = Writer::new(file.clone(), offset);
        self.push_writer(writer)
    }

    fn append_via_stream(
        &mut self,
        handle: Resource<types::Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        let file = self.file(&handle)?.reopen_to_append().or_fail()?;
        self.push_writer(Writer::new(file, 0))
    }

    fn is_same_object(
        &mut self,
        a: Resource<types::Descriptor>,
        b: Resource<types::Descriptor>,
    ) -> wasmtime::Result<bool> {
        let (a, b) = (self.table.get(&ours::<Node, _>(&a))?, self.table.get(&ours::<Node, _>(&b))?);
        Ok(a.is_same(b)?)
    }

    fn metadata_hash(
        &mut self,
        handle: Resource<types::Descriptor>,
    ) -> FsResult<MetadataHashValue> {
        let stat = self.node(&handle)?.stat().or_fail()?;
        Ok(self.hash(&stat))
    }

    fn metadata_hash_at(
        &mut self,
        handle: Resource<types::Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        let stat = self.node(&handle)?.stat_at(&path, follows(path_flags)).or_fail()?;
        Ok(self.hash(&stat))
    }
}

impl types::HostDirectoryEntryStream for View<'_> {
    fn read_directory_entry(
        &mut self,
        stream: Resource<types::DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let entry = self.table.get_mut(&ours::<Listing, _>(&stream))?.next().or_fail()?;
        Ok(entry.map(|(name, file_type)| DirectoryEntry { type_: type_of(file_type), name }))
    }

    fn drop(&mut self, stream: Resource<types::DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}

fn follows(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

fn open_flags_from(open: OpenFlags, flags: DescriptorFlags) -> OFlags {
    let reads = flags.contains(DescriptorFlags::READ);
    let mut opened = match (reads, flags.contains(DescriptorFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let sync = DescriptorFlags::FILE_INTEGRITY_SYNC | DescriptorFlags::REQUESTED_WRITE_SYNC;
    opened.set(OFlags::CREATE, open.contains(OpenFlags::CREATE));
    opened.set(OFlags::DIRECTORY, open.contains(OpenFlags::DIRECTORY));
    opened.set(OFlags::EXCL, open.contains(OpenFlags::EXCLUSIVE));
    opened.set(OFlags::TRUNC, open.contains(OpenFlags::TRUNCATE));
    opened.set(OFlags::DSYNC, flags.contains(DescriptorFlags::DATA_INTEGRITY_SYNC));
    if flags.intersects(sync) {
        opened |= OFlags::SYNC;
    }
    opened
}

fn flags_of(node: &Node) -> DescriptorFlags {
    let mut flags = DescriptorFlags::empty();
    if node.may_read() {
        flags |= DescriptorFlags::READ;
    }
    if node.is_dir() {
        if node.may_change() {
            flags |= DescriptorFlags::MUTATE_DIRECTORY;
        }
        return flags;
    }
    if node.may_write() {
        flags |= DescriptorFlags::WRITE;
    }
    let opened = node.file().flags();
    if opened.contains(OFlags::SYNC) {
        flags |= DescriptorFlags::FILE_INTEGRITY_SYNC;
    } else if opened.contains(OFlags::DSYNC) {
        flags |= DescriptorFlags::DATA_INTEGRITY_SYNC;
    }
    flags
}

fn type_of(file_type: FileType) -> DescriptorType {
    match file_type {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

fn stat_of(stat: &Stat) -> DescriptorStat {
    DescriptorStat {
        type_: type_of(stat.file_type()),
        link_count: stat.nlink.into(),
        size: stat.size,
        data_access_timestamp: datetime(stat.atime),
        data_modification_timestamp: datetime(stat.mtime),
        status_change_timestamp: datetime(stat.ctime),
    }
}

/// Returns a time, if it is not before 1970.
fn datetime(time: Timestamp) -> Option<Datetime> {
    let seconds = u64::try_from(time.secs()).ok()?;
    Some(Datetime { seconds, nanoseconds: time.nanos() })
}

fn time_from(time: NewTimestamp) -> FsResult<SetTime> {
    Ok(match time {
        NewTimestamp::NoChange => SetTime::Omit,
        NewTimestamp::Now => SetTime::Now,
        NewTimestamp::Timestamp(Datetime { seconds, nanoseconds }) => {
            let seconds = i64::try_from(seconds).map_err(|_| fail(Errno::OVERFLOW))?;
            SetTime::At(Timestamp::new(seconds, nanoseconds))
        }
    })
}
