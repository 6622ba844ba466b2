//! Changes of files that are made durable and remembered, whatever happens to the server.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The acknowledged state of a file.
pub enum Known {
    /// The file begins with these bytes.
    Begins(Vec<u8>),
    /// The file begins with these bytes, or is removed.
    MayBeGone(Vec<u8>),
    /// The file is removed.
    Gone,
}

/// Acknowledged states, by the path below the mount.
pub type Acknowledged = Mutex<BTreeMap<PathBuf, Known>>;

/// Returns bytes that identify one file and its version.
fn contents(thread: u64, file: u64, len: usize) -> Vec<u8> {
    let unit = format!("thread {thread} file {file} ");
    unit.bytes().cycle().take(len).collect()
}

/// Creates, appends to, renames and removes files until the server is killed.
pub fn load(dir: &Path, thread: u64, acknowledged: &Acknowledged) -> std::io::Result<()> {
    let home = dir.join(format!("thread{thread}"));
    let name = |path: &Path| path.strip_prefix(dir).map(Path::to_owned).unwrap_or_default();
    let promise = |path: &Path, known: Known| {
        acknowledged.lock().unwrap().insert(name(path), known);
    };
    let sync = |path: &Path| File::open(path).and_then(|dir| dir.sync_all());
    fs::create_dir_all(&home)?;
    sync(dir)?;
    let first = fs::read_dir(&home)?.count() as u64 * 1_000_000;
    for file in first.. {
        let path = home.join(format!("new{file}"));
        let bytes = contents(thread, file, 1 + (file * 7919 % 60_000) as usize);
        let mut out = File::create(&path)?;
        out.write_all(&bytes[..bytes.len() / 2])?;
        out.sync_all()?;
        promise(&path, Known::Begins(bytes[..bytes.len() / 2].to_vec()));
        let out = OpenOptions::new().write(true).open(&path)?;
        out.write_all_at(&bytes[bytes.len() / 2..], bytes.len() as u64 / 2)?;
        out.sync_data()?;
        promise(&path, Known::Begins(bytes.clone()));
        match file % 4 {
            0 => {
                let new = home.join(format!("renamed{file}"));
                // From here on the file may have either name.
                acknowledged.lock().unwrap().remove(&name(&path));
                fs::rename(&path, &new)?;
                sync(&home)?;
                promise(&new, Known::Begins(bytes));
            }
            1 => {
                promise(&path, Known::MayBeGone(bytes));
                fs::remove_file(&path)?;
                sync(&home)?;
                promise(&path, Known::Gone);
            }
            // The truncated blocks are freed, and soon reused by another file.
            2 => {
                promise(&path, Known::Begins(bytes[..bytes.len() / 3].to_vec()));
                OpenOptions::new().write(true).open(&path)?.set_len(bytes.len() as u64 / 3)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a mount has the acknowledged state.
pub fn check(dir: &Path, acknowledged: &BTreeMap<PathBuf, Known>) {
    for (name, known) in acknowledged {
        let path = dir.join(name);
        match known {
            Known::MayBeGone(_) if !path.exists() => {}
            Known::Gone => assert!(!path.exists(), "{}: is back", name.display()),
            Known::Begins(bytes) | Known::MayBeGone(bytes) => {
                let mut found = Vec::new();
                let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut found));
                read.unwrap_or_else(|e| panic!("{}: {e}", name.display()));
                assert!(found.starts_with(bytes), "{}: not what was synced", name.display());
            }
        }
    }
    let left = fs::read_dir(dir.join("orphans")).map_or(0, Iterator::count);
    // The file that was not yet unlinked.
    assert!(left <= 1, "{left} removed files exist");
}
