//! A copy of a command that other users can run, wherever the build directory is.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Returns whether all users may search a directory and its parents.
fn is_open_to_all(dir: &Path) -> bool {
    let may_search = |dir: &Path| {
        std::fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0)
    };
    dir.canonicalize().is_ok_and(|dir| dir.ancestors().all(may_search))
}

/// Copies the program for other users, into a directory in which they can create files. Returns
/// `None`, and prints a conspicuous line, if all users can reach no temporary directory.
pub fn program_for_all(program: &Path) -> Option<(TempDir, PathBuf)> {
    let temporary = std::env::temp_dir();
    let places = [temporary.as_path(), Path::new("/tmp"), Path::new("/var/tmp")];
    let Some(place) = places.into_iter().find(|place| is_open_to_all(place)) else {
        eprintln!("\n######## SKIPPED: no temporary directory that every user can reach\n");
        return None;
    };
    let dir = tempfile::tempdir_in(place).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let copy = dir.path().join(program.file_name().unwrap());
    // Not copied by this process: a child that another thread forks would inherit the file open for
    // writing, and running it would fail with ETXTBSY.
    let copied = Command::new("cp").arg(program).arg(&copy).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    Some((dir, copy))
}
