use vfscale::posix::OFlags;
use vfscale::{DirBuilder, Error, MemFs, Mode, Task, Vfs};

use super::*;

fn memory() -> Arc<MemFs> {
    MemFs::builder().size(1 << 30).inodes(1000).build()
}

/// Returns the space that is missing after `make` and the removal of everything. The result of
/// `make` lives until the space was read.
fn kept<T>(make: impl FnOnce(&Task) -> Result<T, Error>) -> Option<String> {
    let task = Vfs::new(memory()).unwrap().task();
    let fresh = task.posix().statfs(At::Cwd, "/").unwrap();
    let made = make(&task).unwrap();
    let kept = leaked_space(&task, &fresh, memory).unwrap();
    drop(made);
    kept
}

#[test]
fn removed_files_free_their_space() {
    let nothing = kept(|task| {
        task.create_dir_with("/a/b/c", &DirBuilder::new().recursive(true).mode(Mode::RWXU))?;
        task.write("/a/b/file", vec![1; 100_000])?;
        task.symlink("b", "/a/link")?;
        task.hard_link("/a/b/file", "/a/other")?;
        for guarded in ["/a/b/file", "/a/b", "/"] {
            let file = task.posix().open(guarded, OFlags::RDONLY, Mode::empty())?;
            let flags = if guarded == "/" { InodeFlags::APPEND } else { InodeFlags::IMMUTABLE };
            task.posix().ioctl_setflags(&file, flags)?;
        }
        task.posix().mkdirat(At::Cwd, "/a/mount", Mode::RWXU)?;
        task.posix().mount(memory(), "/a/mount", MountFlags::empty())?;
        task.write("/a/mount/file", "there")
    });
    assert_eq!(nothing, None);
}

#[test]
fn leaks_are_found_of_files_held_open() {
    let one_file = kept(|task| {
        task.write("/file", vec![1; 40_960])?;
        task.posix().open("/file", OFlags::RDONLY, Mode::empty())
    });
    let text = one_file.expect("an open file retains its space");
    let blocks: u64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!(blocks >= 10 && text.ends_with("blocks and 1 inodes are not free again"), "{text}");
}

#[test]
fn unreachable_files_are_reported() {
    let task = Vfs::new(memory()).unwrap().task();
    let fresh = task.posix().statfs(At::Cwd, "/").unwrap();
    task.posix().mount(memory(), "/", MountFlags::empty()).unwrap();
    assert!(leaked_space(&task, &fresh, memory).is_err());
}
