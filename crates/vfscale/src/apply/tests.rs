//! Tests of input that nobody should trust, and of patches line by line.

use std::io::Read;
use std::sync::Arc;

use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_sync::random::{Random, seed};

use super::hunks;
use super::patch::{Hunk, parse};
use crate::tar::writer::{END, Writer};
use crate::tar::{BLOCK, Entry, Kind};
use crate::{ApplyOptions, DiffOptions, Errno, Pool, Task};

/// Makes a pool with some files.
fn new_pool() -> Pool {
    let device = Arc::new(MemoryDevice::with_block_size(64 << 20, 4096).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let pool = crate::pool_on(device).convert(true).open().unwrap();
    within(&pool, "main", |task| {
        task.create_dir_all("/d/e").unwrap();
        task.write("/f", "one\ntwo\nthree\n").unwrap();
        task.write("/d/g", [7; 9000]).unwrap();
        task.symlink("d", "/to_d").unwrap();
        task.hard_link("/f", "/d/e/f").unwrap();
    });
    pool
}

fn within<T>(pool: &Pool, name: &str, act: impl FnOnce(&Task) -> T) -> T {
    let volume = pool.open(name).unwrap();
    let result = act(&volume.task());
    volume.close().unwrap();
    result
}

/// Returns an archive with these entries, each with its contents.
fn archive(entries: &[(Entry, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut each = |part: &[u8]| {
        bytes.extend_from_slice(part);
        true
    };
    let mut writer = Writer::new(&mut each);
    for (entry, data) in entries {
        writer.entry(entry);
        writer.data(data);
        writer.end();
    }
    bytes.extend_from_slice(&END);
    bytes
}

fn file(path: &str, size: u64) -> Entry {
    let (path, data) = (path.as_bytes().to_vec(), std::iter::once(0..size).filter(|_| size > 0));
    Entry { path, size, data: data.collect(), mode: 0o644, ..Entry::default() }
}

/// Applies input that has to be refused, and checks that nothing is changed. Returns the error.
fn refused(pool: &Pool, input: &[u8]) -> String {
    pool.fork("main", "before").unwrap();
    let applied = pool.apply("main", &mut &input[..], ApplyOptions::new());
    let Err(error) = applied else { panic!("{}", String::from_utf8_lossy(input)) };
    assert_eq!(pool.diff("before", "main").unwrap(), [], "{error}");
    pool.delete("before").unwrap();
    assert_eq!(pool.branches().len(), 1);
    error.to_string()
}

#[test]
fn layers_that_lead_elsewhere_are_refused() {
    let pool = new_pool();
    let long = ["a".repeat(256), "b/".repeat(2050)];
    let link = |path: &str, target: &str, kind| {
        let target = target.as_bytes().to_vec();
        (Entry { kind, target, ..file(path, 0) }, &b""[..])
    };
    let cases: [(_, &[u8], &str); 13] = [
        (file("/etc/x", 1), b"x", "its name is absolute"),
        (file("d/../../x", 1), b"x", "its name has .."),
        (file("to_d/x", 1), b"x", "symbolic link or another file"),
        (file("f/x", 1), b"x", "symbolic link or another file"),
        (file(&long[0], 1), b"x", "longer than 255 bytes"),
        (file(&long[1], 1), b"x", "longer than 4095 bytes"),
        (file("huge", 1 << 50), b"x", "cut off"),
        (file("d/.wh.", 0), b"", "the whiteout of no name"),
        (file("d/.wh...", 0), b"", "the whiteout of no name"),
        (link("d/l", "../f", Kind::Link).0, b"", "its name has .."),
        (link("d/l", "none", Kind::Link).0, b"", "the file is not there"),
        (link("d/l", "d/e", Kind::Link).0, b"", "another name of a directory"),
        (Entry { size: 1 << 63, data: Vec::new(), ..file("huge", 0) }, b"", "ftruncate"),
    ];
    for (entry, data, why) in &cases {
        // Nothing that comes before is applied either.
        let whole = archive(&[(file("new", 3), b"new"), (entry.clone(), data)]);
        let error = refused(&pool, &whole);
        assert!(error.contains(why), "{error}");
    }
    // A link of the layer itself leads nowhere.
    let both = [link("out", "/etc", Kind::Symlink), (file("out/x", 1), &b"x"[..])];
    assert!(refused(&pool, &archive(&both)).contains("symbolic link"));
    let good = archive(&[(file("new", 3), b"new"), (file("d/h", 2000), &[1; 2000])]);
    for end in (1..good.len() - 2 * BLOCK).step_by(97) {
        refused(&pool, &good[..end]);
    }
    for (magic, why) in [(&b"\x1f\x8b\x08\0"[..], "gzip -dc"), (b"(\xb5/\xfd", "zstd -dc")] {
        assert!(refused(&pool, magic).contains(why));
    }
    let applied = pool.apply("main", &mut &good[..], ApplyOptions::new()).unwrap();
    assert_eq!((applied.written, applied.removed, applied.is_layer), (2, 0, true));
    pool.close().unwrap();
}

#[test]
fn patches_that_do_not_apply_are_refused_by_name_and_line() {
    let pool = new_pool();
    let cases = [
        ("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-2\n+zwei\n three\n", "f, line 3: "),
        (
            "--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-one\n+1\n",
            "a/../f, line 1: can't be applied: its name has ..",
        ),
        ("--- /f\n+++ /f\n@@ -1 +1 @@\n-one\n+1\n", "absolute"),
        ("--- a/to_d/g\n+++ b/to_d/g\n@@ -1 +1 @@\n-one\n+1\n", "to_d/g, line 1: "),
        (
            "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-one\n+1\n",
            "none, line 1: can't be applied: there is no such file",
        ),
        ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+1\n", "there is a file of this name already"),
        (
            "--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n",
            "f, line 1: can't be applied: the patch removes it",
        ),
        ("--- a/d\n+++ b/d\n@@ -1 +1 @@\n-one\n+1\n", "neither a file nor a symbolic link"),
        ("--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n one\n", "cut off"),
        ("--- a/f\n+++ b/f\n@@ -99999999999999999999 +1 @@\n one\n", "the ranges are wrong"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n*two\n", "the lines are not as many"),
        ("@@ -1 +1 @@\n-one\n+1\n", "line 1: can't be applied: the names of the file are missing"),
        ("hello\n", "neither a tar archive nor a patch"),
        ("diff --git a/f b/f\nGIT binary patch\nliteral 0\n", "a binary patch is not applied"),
        ("Binary files a/f and b/f differ\n", "which are binary"),
        ("Only in b: x\n", "diff -ruN"),
        ("diff --git a/f b/d/g\nrename from f\nrename to d/g\n", "already"),
        (
            "diff --git a/f b/x\nrename from f\nrename to x\ndiff --git a/d/g b/x\nrename from d/g\nrename to x\n",
            "two files",
        ),
        (
            "diff --git a/f b/x\nrename from f\nrename to x\ndiff --git a/f b/y\nrename from f\nrename to y\n",
            "takes it away twice",
        ),
        ("diff --git a/x b/x\nnew file mode 100777\n", "the mode is none of"),
        ("diff --git a/x b/y\nindex 1..2\n", "the names in the header differ"),
        ("diff --git \"a/\\x\" b/f\n", "differ"),
    ];
    for (patch, why) in cases {
        // Nothing that comes before is applied either. Text between changes is no part of a patch.
        let first = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+1\n";
        let whole = format!("{first}{patch}");
        let error = refused(&pool, if patch == "hello\n" { patch } else { &whole }.as_bytes());
        let alone = refused(&pool, patch.as_bytes());
        assert!(alone.contains(why), "{patch}: {alone}");
        assert!(error.contains("nothing was changed"), "{error}");
    }
    let error = pool.apply("none", &mut &b""[..], ApplyOptions::new()).unwrap_err();
    assert_eq!(error.errno(), Errno::NOENT);
    let main = pool.open("main").unwrap();
    let error = pool.apply("main", &mut &b""[..], ApplyOptions::new()).unwrap_err();
    assert_eq!(error.errno(), Errno::BUSY);
    main.close().unwrap();
    pool.close().unwrap();
}

/// A file with several names is changed by the name that the patch has.
#[test]
fn other_names_of_a_file_keep_what_they_have() {
    let pool = new_pool();
    let patch = b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n";
    let applied = pool.apply("main", &mut &patch[..], ApplyOptions::new()).unwrap();
    assert_eq!((applied.written, applied.is_layer, applied.is_done), (1, false, true));
    within(&pool, "main", |task| {
        assert_eq!(task.read_to_string("/f").unwrap(), "1\ntwo\nthree\n");
        assert_eq!(task.read_to_string("/d/e/f").unwrap(), "one\ntwo\nthree\n");
    });
    let ino = |pool: &Pool| within(pool, "main", |task| task.metadata("/f").unwrap().ino);
    let before = ino(&pool);
    let moved = b"diff --git a/f b/d/moved\nrename from f\nrename to d/moved\n\
        diff --git a/d/g b/f\nrename from d/g\nrename to f\n# changed /x: binary\n";
    let applied = pool.apply("main", &mut &moved[..], ApplyOptions::new()).unwrap();
    assert_eq!((applied.written, applied.untold), (2, 1));
    let after = within(&pool, "main", |task| task.metadata("/d/moved").unwrap().ino);
    assert_eq!(before, after);
    assert_eq!(within(&pool, "main", |task| task.read("/f").unwrap()), [7; 9000]);
    pool.close().unwrap();
}

/// Hunks are searched for near the line that they name, as git does.
#[test]
fn hunks_match_near_the_line_that_they_name() {
    let text: String = (1..=20).map(|line| format!("{}\n", line % 7)).collect();
    let hunk = |start: usize, lines: &[(u8, &'static str)]| Hunk {
        line: 1,
        start,
        count: lines.iter().filter(|it| it.0 != b'+').count(),
        lines: lines.iter().map(|(sign, text)| (*sign, text.as_bytes())).collect(),
    };
    let found = |hunk: Hunk<'_>| {
        let new = hunks::apply(text.as_bytes(), &[hunk]).ok()?;
        str::from_utf8(&new).unwrap().lines().position(|line| line == "new")
    };
    let middle = [(b' ', "2\n"), (b'-', "3\n"), (b'+', "new\n"), (b' ', "4\n")];
    for (named, place) in [(2, 2), (9, 9), (4, 2), (6, 9), (8, 9), (13, 16), (1, 20), (20, 16)] {
        let expected = Some(place).filter(|_| named > 1);
        assert_eq!(found(hunk(named, &middle)), expected, "{named}");
    }
    // Without lines behind, at the end only; without any, only where it says.
    let last = [(b' ', "5\n"), (b'-', "6\n"), (b'+', "new\n")];
    assert_eq!(found(hunk(19, &last)), Some(19));
    assert_eq!(found(hunk(5, &last)), Some(19));
    let bare = [(b'-', "3\n"), (b'+', "new\n")];
    assert_eq!([3, 10, 4].map(|named| found(hunk(named, &bare))), [Some(2), Some(9), None]);
}

/// Changes some bytes, or cuts. Half of the archives get the sums of their headers right again.
fn spoil(bytes: &mut Vec<u8>, random: &mut Random, is_archive: bool) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(8) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes[at] = random.one(b"/.09\n+- \0\x80\xff"),
            3 => {
                let end = (at + random.below(600) as usize).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let end = (at + random.below(600) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let header = at / BLOCK * BLOCK;
                let place = (header + random.below(345) as usize).min(bytes.len() - 1);
                bytes[place] = random.one(b"01234567/.\0\x80\xff");
            }
        }
        if bytes.is_empty() {
            bytes.push(b'\n');
        }
    }
    if is_archive && random.below(2) == 0 {
        for block in bytes.chunks_exact_mut(BLOCK).filter(|it| it[257..262] == *b"ustar") {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

/// Damaged layers and patches are applied whole, or change nothing: never a panic or a hang.
#[test]
fn damaged_input_is_applied_whole_or_changes_nothing() {
    let rounds = std::env::var("VFSCALE_APPLIES").map_or(300, |text| text.parse().unwrap());
    let (seed, pool) = (seed(), new_pool());
    let mut random = Random::new(seed);
    pool.fork("main", "to").unwrap();
    within(&pool, "to", |task| {
        task.write("/f", "one\n2\nthree\n").unwrap();
        task.write("/new", "new\n".repeat(500)).unwrap();
        task.rename("/d", "/moved").unwrap();
        task.remove_file("/to_d").unwrap();
        task.create("/sparse").unwrap().truncate(100_000).unwrap();
        task.create_dir("/d").unwrap();
        task.set_xattr("/d", "user.a", b"value").unwrap();
    });
    let (mut layer, mut patch) = (Vec::new(), Vec::new());
    for (is_layer, out) in [(true, &mut layer), (false, &mut patch)] {
        let each = &mut |part: &[u8]| {
            out.extend_from_slice(part);
            true
        };
        let options = DiffOptions::new();
        match is_layer {
            true => pool.layer("main", "to", &options, each).unwrap(),
            false => pool.patch("main", "to", &options, each).unwrap(),
        };
    }
    let mut done = [0; 2];
    for round in 0..rounds {
        let is_archive = random.below(2) == 0;
        let mut input = if is_archive { layer.clone() } else { patch.clone() };
        spoil(&mut input, &mut random, is_archive);
        pool.fork("main", "now").unwrap();
        // As from a pipe, in small parts.
        let (first, second) = input.split_at(input.len() / 2);
        let applied = pool.apply("now", &mut first.chain(second), ApplyOptions::new());
        match &applied {
            Err(error) => {
                let found = pool.diff("main", "now").unwrap();
                assert_eq!(found, [], "{seed} {round} {error}");
                assert!(error.to_string().contains("nothing was changed"), "{error}");
            }
            Ok(_) => within(&pool, "now", |task| _ = task.metadata("/").unwrap()),
        }
        done[usize::from(applied.is_ok())] += 1;
        pool.delete("now").unwrap();
        assert_eq!(pool.branches().len(), 2);
    }
    pool.reap().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    assert!(done.iter().all(|count| count * 20 > rounds), "{done:?} of {rounds}");
    pool.close().unwrap();
}

/// Names in quotes, times that say that there is no file, and lines without an end.
#[test]
fn patches_are_read_as_their_writers_mean_them() {
    let text = b"From: somebody\n\
        diff --git \"a/\\303\\244\\t\\\"\" \"b/\\303\\244\\t\\\"\"\nold mode 100644\nnew mode 100755\n\
        diff -ruN old/x y/new/x\n--- old/x\t2026-01-01 00:00:00.0 +0000\n\
        +++ new/x\t1970-01-01 01:00:00.0 +0100\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n\
        --- a/one two\t\n+++ b/one two\t\n@@ -0,0 +1,2 @@\n+a\n+\n";
    let patch = parse(text, 1).map_err(|wrong| wrong.0.what).unwrap();
    let [quoted, gone, new] = &patch.changes[..] else { panic!("{patch:?}") };
    assert_eq!(quoted.new.as_ref().unwrap().to_str(), Some("ä\t\""));
    assert_eq!((quoted.mode, quoted.line), (Some(0o100_755), 2));
    assert_eq!((gone.new.as_ref(), gone.hunks[0].lines[0]), (None, (b'-', &b"x"[..])));
    assert_eq!(new.old.as_ref().unwrap().to_str(), Some("one two"));
    assert_eq!(new.hunks[0].lines, [(b'+', &b"a\n"[..]), (b'+', b"\n")]);
}
