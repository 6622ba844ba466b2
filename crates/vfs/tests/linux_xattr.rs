//! Compares `xattr` with the running kernel: equal calls by equal callers on equal kinds of files
//! return equal errors and leave equal attributes. Requires privileges, to act as other users and
//! for `trusted.*`; without them the test prints that it is skipped, and ends. A test
//! process of its own, because it changes the working directory.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Once;

use proptest::prelude::*;
use rustix::fs::{Gid, Uid, XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use vfscale_vfs::acl::{Ownership, UncheckedAcl, permission};
use vfscale_vfs::types::Capabilities;
use vfscale_vfs::xattr::{
    AclNames, XattrName, XattrNamespace, XattrOp, XattrSet, XattrSubject, xattr_permission,
};

const NAMES: [&str; 16] = [
    "user.a",
    "user.b",
    "trusted.a",
    "security.a",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "system.a",
    "bogus.a",
    "user.",
    "trusted.",
    "security.",
    "system.",
    "user",
    "",
    ".",
];

/// An empty value, an empty list, plain bytes, a list without names, a malformed list, capabilities
/// of version 2, and malformed capabilities.
const VALUES: [&[u8]; 7] = [
    b"",
    b"\x02\0\0\0",
    b"value",
    b"\x02\0\0\0\x01\0\x07\0\0\0\0\0\x04\0\x07\0\0\0\0\0\x20\0\x07\0\0\0\0\0",
    b"\x02\0\0\0\x01\0\x07\0\0\0\0\0",
    b"\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\0\0\0\x02",
];

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Set(&'static [u8], u32),
    Remove,
}

fn call() -> impl Strategy<Value = Call> {
    let set = (prop::sample::select(&VALUES[..]), 0u32..5);
    prop_oneof![
        1 => Just(Call::Get),
        2 => set.prop_map(|(value, flags)| Call::Set(value, flags)),
        1 => Just(Call::Remove),
    ]
}

/// Prints the reason for skipping only once.
static SKIPPED: Once = Once::new();

/// Makes a file of one of several kinds, owned by user 1 or by root.
fn make(dir: &Path, kind: usize, owned: bool) -> Option<PathBuf> {
    let path = dir.join("it");
    match kind {
        0 => fs::write(&path, b"").unwrap(),
        1 | 2 => fs::create_dir(&path).unwrap(),
        _ => symlink("nowhere", &path).unwrap(),
    }
    let mode = [0o640, 0o757, 0o1777];
    if let Some(&mode) = mode.get(kind) {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    let owner = if owned { 1 } else { 0 };
    let probe = || -> std::io::Result<()> {
        lchown(&path, Some(owner), Some(owner))?;
        lsetxattr(&path, "trusted.probe", b"", XattrFlags::empty())?;
        Ok(lremovexattr(&path, "trusted.probe")?)
    };
    match probe() {
        Ok(()) => Some(path),
        Err(error) => {
            SKIPPED.call_once(|| {
                println!("######## SKIPPED: attributes as the kernel stores them: {error}");
            });
            None
        }
    }
}

/// A working directory, whose files have relative names: other users may not search the directories
/// above it.
struct WorkingIn(PathBuf);

impl WorkingIn {
    fn new(dir: &Path) -> WorkingIn {
        let before = std::env::current_dir().unwrap();
        std::env::set_current_dir(dir).unwrap();
        WorkingIn(before)
    }
}

impl Drop for WorkingIn {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir(&self.0);
    }
}

fn kernel(path: &Path, uid: u32, name: &str, call: Call) -> Result<Vec<u8>, Errno> {
    let act = || match call {
        Call::Get => {
            let mut value = vec![0; 1024];
            let len = lgetxattr(path, name, &mut value[..])?;
            value.truncate(len);
            Ok(value)
        }
        Call::Set(value, flags) => {
            lsetxattr(path, name, value, XattrFlags::from_bits_retain(flags)).map(|()| vec![])
        }
        Call::Remove => lremovexattr(path, name).map(|()| vec![]),
    };
    // In the kernel, credentials belong to a thread.
    std::thread::scope(|scope| {
        let as_user = || {
            if uid != 0 {
                set_thread_groups(&[]).unwrap();
                set_thread_gid(Gid::from_raw(uid)).unwrap();
                set_thread_uid(Uid::from_raw(uid)).unwrap();
            }
            act()
        };
        scope.spawn(as_user).join().unwrap()
    })
}

/// Makes the call on `set`. Models only the errors of access control lists.
fn model(
    set: &mut XattrSet,
    file: Ownership,
    uid: u32,
    name: &str,
    call: Call,
) -> Result<Option<Vec<u8>>, Errno> {
    let (op, flags) = match call {
        Call::Get => (XattrOp::Get, XattrFlags::empty()),
        Call::Set(value, flags) => (XattrOp::Set(value), XattrFlags::from_bits_retain(flags)),
        Call::Remove => (XattrOp::Remove, XattrFlags::empty()),
    };
    if flags.bits() & !3 != 0 {
        return Err(Errno::INVAL);
    }
    let name = XattrName::new(name.as_bytes())?;
    let is_acl = matches!(name.namespace(), XattrNamespace::AclAccess | XattrNamespace::AclDefault);
    let acl = match call {
        Call::Set(value, _) if is_acl => UncheckedAcl::from_xattr(value)?,
        _ => None,
    };
    let caps = if uid == 0 { Capabilities::all() } else { Capabilities::empty() };
    let subject = XattrSubject { mode: file.mode, owner: uid == 0 || uid == file.uid, caps };
    let access = xattr_permission(name, op, &subject)?;
    if uid != 0 {
        permission(file, None, uid, uid, |_| false, access.bits())?;
    }
    if is_acl {
        return acl.map_or(Ok(()), |acl| acl.validate().map(drop)).map(|()| None);
    }
    match call {
        Call::Get => set.get(name).map(|value| Some(value.to_vec())),
        Call::Set(value, _) => set.set(name, value, flags).map(|()| Some(vec![])),
        Call::Remove => set.remove(name).map(|_| Some(vec![])),
    }
}

/// Returns mode and owner of the file, as if it had no access control list: the tests only set
/// lists without names, which the mode expresses completely.
fn ownership(path: &Path) -> Ownership {
    let meta = fs::symlink_metadata(path).unwrap();
    Ownership { mode: meta.mode(), uid: meta.uid(), gid: meta.gid() }
}

fn names(path: &Path) -> Vec<Vec<u8>> {
    let mut list = vec![0; 4096];
    let len = llistxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names =
        names.filter(|name| !name.starts_with(b"system.")).map(<[u8]>::to_vec).collect::<Vec<_>>();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn same_errors_and_same_attributes(
        kind in 0usize..4,
        owned: bool,
        steps in prop::collection::vec((0u32..2, prop::sample::select(&NAMES[..]), call()), 1..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let _there = WorkingIn::new(dir.path());
        let Some(path) = make(Path::new("."), kind, owned) else { return Ok(()) };
        let mut set = XattrSet::new();
        for (uid, name, call) in steps {
            // Skips the one rule that is stricter here, and one that the kernel applies to reads.
            if name == "security.capability" && !matches!(call, Call::Set([_, ..], _)) {
                continue;
            }
            let expected = model(&mut set, ownership(&path), uid, name, call);
            let got = kernel(&path, uid, name, call);
            let context = format!("{uid} {name} {call:?}");
            match expected {
                // The model does not track whether a list exists.
                Ok(None) if matches!(call, Call::Get) => {
                    prop_assert!(matches!(got, Ok(_) | Err(Errno::NODATA)), "{} {:?}", context, got);
                }
                Ok(None) => prop_assert!(got.is_ok(), "{} {:?}", context, got),
                Ok(Some(value)) => prop_assert_eq!(got, Ok(value), "{}", context),
                Err(errno) => prop_assert_eq!(got, Err(errno), "{}", context),
            }
            let list = set.list(AclNames::default(), Capabilities::all()).unwrap();
            let own = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
            prop_assert_eq!(names(&path), own.map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
