//! Calls that only preview 2 has, by the host's traits: streams, listings, hashes, times.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use vfscale_wasi::p2::View;
use vfscale_wasi::{Access, Filesystem};
use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode as Code;
use wasmtime_wasi::p2::bindings::sync::filesystem::types::{
    self, Datetime, Descriptor, DescriptorFlags, DescriptorType, ErrorCode, Host as _,
    HostDescriptor as _, HostDirectoryEntryStream as _, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{FsResult, StreamError};

use crate::puppet::root_of;
use crate::trees::Tree;

/// The files of a guest, and its first directory.
struct Host {
    files: Filesystem,
    table: ResourceTable,
    root: u32,
}

impl Host {
    fn new(files: Filesystem) -> Host {
        let mut host = Host { files, table: ResourceTable::new(), root: 0 };
        host.root = host.view().get_directories().unwrap()[0].0.rep();
        host
    }

    fn view(&mut self) -> View<'_> {
        View { files: &mut self.files, table: &mut self.table }
    }

    fn root(&self) -> Resource<Descriptor> {
        Resource::new_borrow(self.root)
    }

    fn open(&mut self, path: &str, flags: DescriptorFlags) -> Resource<Descriptor> {
        let (root, create) = (self.root(), OpenFlags::CREATE);
        let nofollow = PathFlags::empty();
        self.view().open_at(root, nofollow, path.to_string(), create, flags).unwrap()
    }
}

fn again(handle: &Resource<Descriptor>) -> Resource<Descriptor> {
    Resource::new_borrow(handle.rep())
}

#[track_caller]
fn assert_code<T>(result: FsResult<T>, expected: Code) {
    let Err(error) = result else { panic!("no error") };
    assert_eq!(error.downcast().unwrap(), expected);
}

fn both() -> DescriptorFlags {
    DescriptorFlags::READ | DescriptorFlags::WRITE
}

#[test]
fn streams_read_and_write_at_their_positions() {
    for tree in Tree::all() {
        let mut host = Host::new(root_of(&tree));
        let file = host.open("file", both());
        let writer = host.view().write_via_stream(again(&file), 3).unwrap();
        let stream = host.table.get_mut(&writer).unwrap();
        assert!(stream.check_write().unwrap() > 0);
        stream.write(Bytes::from("abc")).unwrap();
        stream.write(Bytes::from("def")).unwrap();
        stream.flush().unwrap();
        assert_eq!(tree.task().read("/file").unwrap(), b"\0\0\0abcdef");

        let reader = host.view().read_via_stream(again(&file), 4).unwrap();
        let stream = host.table.get_mut(&reader).unwrap();
        assert_eq!(stream.read(3).unwrap(), "bcd");
        assert_eq!(stream.read(0).unwrap(), "");
        assert_eq!(stream.skip(1).unwrap(), 1);
        assert_eq!(stream.read(100).unwrap(), "f");
        assert!(matches!(stream.read(100), Err(StreamError::Closed)));
    }
}

#[test]
fn streams_append_after_each_other() {
    for tree in Tree::all() {
        let mut host = Host::new(root_of(&tree));
        let file = host.open("log", DescriptorFlags::WRITE);
        let writers: Vec<_> =
            (0..2).map(|_| host.view().append_via_stream(again(&file)).unwrap()).collect();
        for text in ["1", "2", "3", "4"] {
            let writer = &writers[text.parse::<usize>().unwrap() % 2];
            host.table.get_mut(writer).unwrap().write(Bytes::from(text)).unwrap();
        }
        assert_eq!(tree.task().read("/log").unwrap(), b"1234");
    }
}

#[test]
fn a_stream_tells_why_it_failed() {
    let tree = vfscale::memory().size(128 << 10).build().unwrap();
    let mut files = Filesystem::new();
    files.preopen(Arc::new(tree.task()), "/", "/", Access::ReadWrite).unwrap();
    let mut host = Host::new(files);
    let file = host.open("file", both());
    let writer = host.view().write_via_stream(file, 0).unwrap();
    let stream = host.table.get_mut(&writer).unwrap();
    let chunk = Bytes::from(vec![1; 64 << 10]);
    let Err(StreamError::LastOperationFailed(error)) =
        (0..4).try_for_each(|_| stream.write(chunk.clone()))
    else {
        panic!("no error")
    };
    assert!(matches!(stream.check_write(), Err(StreamError::Closed)));
    let error = host.table.push(error).unwrap();
    let code = host.view().filesystem_error_code(error).unwrap();
    assert_eq!(code, Some(ErrorCode::InsufficientSpace));
}

#[test]
fn streams_of_what_can_not_be_read_or_written_are_refused() {
    let mut host = Host::new(root_of(&Tree::memory()));
    let (reads, writes) =
        (host.open("a", DescriptorFlags::READ), host.open("b", DescriptorFlags::WRITE));
    let root = host.root();
    assert_code(host.view().read_via_stream(again(&root), 0), Code::IsDirectory);
    assert_code(host.view().write_via_stream(root, 0), Code::BadDescriptor);
    assert_code(host.view().read_via_stream(again(&writes), 0), Code::BadDescriptor);
    assert_code(host.view().write_via_stream(again(&reads), 0), Code::BadDescriptor);
    assert_code(host.view().append_via_stream(again(&reads)), Code::BadDescriptor);
    assert_code(host.view().read(writes, 1, 0), Code::BadDescriptor);
    assert_code(host.view().write(reads, vec![1], 0), Code::BadDescriptor);
}

#[test]
fn a_listing_has_every_name_once_and_goes_on_after_one_that_is_no_text() {
    for tree in Tree::all() {
        let task = tree.task();
        let mut expected: Vec<_> = (0..150).map(|n| format!("name {n}")).collect();
        for name in &expected {
            task.write(name, "").unwrap();
        }
        task.write(std::ffi::OsStr::from_bytes(b"no text \xff"), "").unwrap();
        let mut host = Host::new(root_of(&tree));
        let root = host.root();
        let listing = host.view().read_directory(root).unwrap();
        let (mut names, mut errors) = (Vec::new(), 0);
        loop {
            match host.view().read_directory_entry(Resource::new_borrow(listing.rep())) {
                Ok(Some(entry)) => {
                    assert_eq!(entry.type_, DescriptorType::RegularFile);
                    names.push(entry.name);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.downcast().unwrap(), Code::IllegalByteSequence);
                    errors += 1;
                }
            }
        }
        names.sort();
        expected.sort();
        assert_eq!((names, errors), (expected, 1));
        types::HostDirectoryEntryStream::drop(&mut host.view(), listing).unwrap();
    }
}

#[test]
fn hashes_are_those_of_the_file() {
    let tree = Tree::memory();
    tree.task().write("/a", "").unwrap();
    tree.task().write("/b", "").unwrap();
    tree.task().hard_link("/a", "/c").unwrap();
    tree.task().symlink("a", "/link").unwrap();
    let mut host = Host::new(root_of(&tree));
    let mut hash = |path: &str, flags| {
        let root = host.root();
        let hash = host.view().metadata_hash_at(root, flags, path.to_string()).unwrap();
        (hash.lower, hash.upper)
    };
    let (follow, nofollow) = (PathFlags::SYMLINK_FOLLOW, PathFlags::empty());
    let a = hash("a", nofollow);
    assert_eq!([hash("c", nofollow), hash("link", follow)], [a, a]);
    assert!(hash("b", nofollow) != a && hash("link", nofollow) != a);
    assert_ne!(a.0, a.1);
    tree.task().write("/a", "changed").unwrap();
    assert_eq!(hash("a", nofollow), a);

    let [a, b, c] = ["a", "b", "c"].map(|path| host.open(path, DescriptorFlags::READ));
    assert!(host.view().is_same_object(again(&a), c).unwrap());
    assert!(!host.view().is_same_object(a, b).unwrap());
}

#[test]
fn handles_tell_flags_types_and_times() {
    let tree = Tree::memory();
    let mut host = Host::new(root_of(&tree));
    let root = host.root();
    assert_eq!(
        host.view().get_flags(root).unwrap(),
        DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY
    );
    let sync = both() | DescriptorFlags::DATA_INTEGRITY_SYNC;
    let file = host.open("file", sync);
    assert_eq!(host.view().get_flags(again(&file)).unwrap(), sync);
    assert_eq!(host.view().get_type(again(&file)).unwrap(), DescriptorType::RegularFile);
    let time = Datetime { seconds: 12, nanoseconds: 34 };
    let (accessed, modified) = (NewTimestamp::Timestamp(time), NewTimestamp::Now);
    host.view().set_times(again(&file), accessed, modified).unwrap();
    let stat = host.view().stat(again(&file)).unwrap();
    let accessed = stat.data_access_timestamp.unwrap();
    assert_eq!((accessed.seconds, accessed.nanoseconds), (12, 34));
    assert!(stat.data_modification_timestamp.unwrap().seconds > 1_000_000_000);
    let root = host.root();
    let late = Datetime { seconds: u64::MAX, nanoseconds: 0 };
    let late = NewTimestamp::Timestamp(late);
    assert_code(host.view().set_times(again(&file), late, NewTimestamp::Now), Code::Overflow);
    assert_code(host.view().advise(root, 0, 0, types::Advice::WillNeed), Code::BadDescriptor);
    let (bytes, is_end) = host.view().read(again(&file), 10, 0).unwrap();
    assert_eq!((bytes.len(), is_end), (0, true));
    assert_eq!(host.view().read(file, 0, 0).unwrap(), (Vec::new(), false));
}
