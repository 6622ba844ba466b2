//! The contents of the text files: the library's numbers in the formats of the kernel's files.

use std::fmt::Write;

use vfscale_vfs::lockstat::{self, Row};
use vfscale_vfs::namespace::Counts;
use vfscale_vfs::{PATCHES, Scaling, Vfs};

use crate::node::Text;

/// Widths of the name of a lock class in `lock_stat`, and of each column after it.
const NAME_WIDTH: usize = 40;
const COLUMN_WIDTH: usize = 14;

pub(crate) fn text(text: Text, vfs: &Vfs) -> String {
    match text {
        Text::Mounts => mounts(vfs),
        Text::DentryState => dentry_state(&vfs.counts()),
        Text::InodeState => inode_state(&vfs.counts()),
        Text::FileNr => file_nr(&vfs.counts(), vfs.limits().open_files_max()),
        Text::LockStat => lock_stat(lockstat::Table::now().rows()),
        Text::Scaling => scaling(vfs.scaling()),
    }
}

fn mounts(vfs: &Vfs) -> String {
    vfs.task().posix().mounts().iter().fold(String::new(), |mut text, mount| {
        // Writing to a string never fails.
        let _ = writeln!(text, "{}", mount.mounts());
        text
    })
}

/// Formats `/proc/sys/fs/dentry-state`: dentries, unused dentries, the obsolete age limit and
/// number of wanted pages, negative dentries, and a zero.
pub fn dentry_state(counts: &Counts) -> String {
    let Counts { dentries, unused_dentries, negative_dentries, .. } = counts;
    format!("{dentries}\t{unused_dentries}\t45\t0\t{negative_dentries}\t0\n")
}

/// Formats `/proc/sys/fs/inode-state`: inodes, unused inodes, and five unused numbers.
pub fn inode_state(counts: &Counts) -> String {
    format!("{}\t{}\t0\t0\t0\t0\t0\n", counts.inodes, counts.unused_inodes)
}

/// Formats `/proc/sys/fs/file-nr`: open files, free ones (always 0), and the maximum.
pub fn file_nr(counts: &Counts, max: u64) -> String {
    format!("{}\t0\t{max}\n", counts.open_files)
}

/// Formats a line for each patch: its name, a tab, and whether the tree behaves as the kernel
/// `after` the patch or `before` it. With one CPU some patches make no difference; their state is
/// `before`.
pub fn scaling(scaling: &Scaling) -> String {
    PATCHES.iter().fold(String::new(), |mut text, patch| {
        let without = scaling.and_before(patch.name());
        let state = if without.as_ref() == Ok(scaling) { "before" } else { "after" };
        let _ = writeln!(text, "{}\t{state}", patch.name());
        text
    })
}

/// Formats `/proc/lock_stat`, version 0.4, with a line for each class and times in microseconds.
pub fn lock_stat(rows: &[Row]) -> String {
    let line = "-".repeat(NAME_WIDTH + 1 + Row::COLUMNS.len() * (COLUMN_WIDTH + 1));
    let mut text = format!("lock_stat version 0.4\n{line}\n{:>NAME_WIDTH$}", "class name");
    for column in Row::COLUMNS {
        let _ = write!(text, " {column:>COLUMN_WIDTH$}");
    }
    let _ = writeln!(text, "\n{line}\n");
    for row in rows {
        let _ = write!(text, "{:>NAME_WIDTH$}:", row.name);
        for cell in row.cells() {
            let _ = write!(text, "{cell:>COLUMN_WIDTH$} ");
        }
        text.push('\n');
    }
    text
}
