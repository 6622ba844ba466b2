//! Compares `acl` with the running kernel, call by call. On file systems without access control
//! lists the tests print that they are skipped, and end.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{Access, AtFlags, CWD, Gid, Uid, XattrFlags, accessat, getxattr, setxattr};
use rustix::io::Errno;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use vfscale_vfs::acl::{Acl, Ownership, inherit, permission};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn read(path: &Path, name: &str) -> Option<Acl> {
    let mut value = vec![0; 65_536];
    match getxattr(path, name, &mut value[..]) {
        Ok(len) => Acl::from_xattr(&value[..len]).unwrap(),
        Err(Errno::NODATA) => None,
        Err(errno) => panic!("{errno}"),
    }
}

fn workdir() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    match getxattr(dir.path(), ACCESS, &mut [0; 64]) {
        Ok(_) | Err(Errno::NODATA) => Some(dir),
        Err(_) => {
            eprintln!("skipped: no access control lists in {}", dir.path().display());
            None
        }
    }
}

/// Generates values that are mostly well formed, some with a fault.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let perm = prop_oneof![40 => 0u16..8, 1 => any::<u16>()];
    let id = prop_oneof![20 => 0u32..5, 1 => Just(u32::MAX)];
    let users = prop::collection::vec((Just(2u16), perm.clone(), id.clone()), 0..3);
    let groups = prop::collection::vec((Just(8u16), perm.clone(), id), 0..3);
    let perms = [perm.clone(), perm.clone(), perm.clone(), perm.clone()];
    let extra = prop_oneof![
        8 => Just(None),
        1 => (any::<prop::sample::Index>(), 0u16..40, perm).prop_map(Some)
    ];
    let drop = prop_oneof![8 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    let cut = prop_oneof![15 => Just(0usize), 1 => 1usize..8];
    let version = prop_oneof![20 => Just(2u32), 1 => any::<u32>()];
    (users, groups, perms, any::<bool>(), extra, drop, cut, version).prop_map(
        |(users, groups, [owner, group, mask, other], masked, extra, drop, cut, version)| {
            let mut entries = vec![(1, owner, u32::MAX)];
            entries.extend(&users);
            entries.push((4, group, u32::MAX));
            entries.extend(&groups);
            // Mostly with a mask if one is required.
            if masked || !users.is_empty() && mask != 3 {
                entries.push((16, mask, u32::MAX));
            }
            entries.push((32, other, u32::MAX));
            if let Some((at, tag, perm)) = extra {
                entries.insert(at.index(entries.len()), (tag, perm, 1));
            }
            if let Some(at) = drop {
                entries.remove(at.index(entries.len()));
            }
            let mut value = version.to_le_bytes().to_vec();
            for (tag, perm, id) in entries {
                value.extend(tag.to_le_bytes());
                value.extend(perm.to_le_bytes());
                value.extend(id.to_le_bytes());
            }
            value.truncate(value.len() - cut);
            value
        },
    )
}

/// Returns the expected result of `setxattr` on a file of `mode`: its new mode and its list.
fn expected(value: &[u8], mode: u32) -> Result<(u32, Option<Acl>), Errno> {
    Ok(match Acl::from_xattr(value)? {
        None => (mode, None),
        Some(acl) => {
            let equiv = acl.equiv_mode(mode);
            (equiv.mode, equiv.needs_acl.then_some(acl))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn setting_a_list_and_chmod(value in values(), before in 0u32..0o1000, after in 0u32..0o1000) {
        let Some(dir) = workdir() else { return Ok(()) };
        let path = dir.path().join("file");
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let kernel = setxattr(&path, ACCESS, &value, XattrFlags::empty());
        let model = expected(&value, 0o100_000 | before);
        prop_assert_eq!(kernel, model.as_ref().map(drop).map_err(|errno| *errno));
        let Ok((mode, acl)) = model else { return Ok(()) };
        prop_assert_eq!(fs::metadata(&path).unwrap().mode(), mode);
        prop_assert_eq!(read(&path, ACCESS), acl.clone());

        fs::set_permissions(&path, fs::Permissions::from_mode(after)).unwrap();
        prop_assert_eq!(read(&path, ACCESS), acl.map(|acl| acl.chmod(after)));
    }

    #[test]
    fn inheriting_a_list(value in values(), mode in 0u32..0o1000, is_dir: bool) {
        let Some(dir) = workdir() else { return Ok(()) };
        let kernel = setxattr(dir.path(), DEFAULT, &value, XattrFlags::empty());
        let model = Acl::from_xattr(&value);
        prop_assert_eq!(kernel, model.as_ref().map(drop).map_err(|errno| *errno));
        // Without a default list the umask of this process would apply.
        let Ok(Some(default)) = model else { return Ok(()) };
        prop_assert_eq!(read(dir.path(), DEFAULT), Some(default.clone()));

        let path = dir.path().join("new");
        let kind = if is_dir { 0o040_000 } else { 0o100_000 };
        if is_dir {
            fs::DirBuilder::new().mode(mode).create(&path).unwrap();
        } else {
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).unwrap();
        }
        let new = inherit(Some(&default), kind | mode, 0o777);
        prop_assert_eq!(fs::metadata(&path).unwrap().mode(), new.mode);
        prop_assert_eq!(read(&path, ACCESS), new.access);
        if is_dir {
            prop_assert_eq!(read(&path, DEFAULT), new.default);
        }
    }

    #[test]
    fn checking_permissions(
        value in values(),
        mode in 0u32..0o1000,
        uid in 1u32..5,
        gid in 0u32..5,
        groups in prop::collection::vec(0u32..5, 0..3),
    ) {
        let Some(dir) = workdir() else { return Ok(()) };
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"").unwrap();
        if chown(&path, Some(1), Some(2)).is_err() {
            eprintln!("skipped: acting as other users requires privileges");
            return Ok(());
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let _ = setxattr(&path, ACCESS, &value, XattrFlags::empty());
        let file = Ownership { mode: fs::metadata(&path).unwrap().mode(), uid: 1, gid: 2 };
        let acl = read(&path, ACCESS);
        let kernel = allowed(&path, uid, gid, &groups);
        for want in 0..8 {
            let in_group = |group| groups.contains(&group);
            let model = permission(file, acl.as_ref(), uid, gid, in_group, want);
            prop_assert_eq!(model, kernel[usize::from(want)], "{:o} {}", file.mode, want);
        }
    }
}

/// Returns the accesses that the kernel allows a thread of these credentials, for each combination
/// of permissions.
fn allowed(path: &Path, uid: u32, gid: u32, groups: &[u32]) -> Vec<Result<(), Errno>> {
    // In the kernel, credentials belong to a thread.
    std::thread::scope(|scope| {
        let check = || {
            let groups = groups.iter().map(|&group| Gid::from_raw(group)).collect::<Vec<_>>();
            set_thread_groups(&groups).unwrap();
            set_thread_gid(Gid::from_raw(gid)).unwrap();
            set_thread_uid(Uid::from_raw(uid)).unwrap();
            let access =
                |want| accessat(CWD, path, Access::from_bits_retain(want), AtFlags::empty());
            (0..8).map(access).collect()
        };
        scope.spawn(check).join().unwrap()
    })
}
