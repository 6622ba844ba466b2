//! Layers: an independent reader and tar(1) read them, and a branch takes them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vfscale::posix::{At, InodeFlags, OFlags, RenameFlags, SetTime};
use vfscale::{ApplyOptions, DiffOptions, FileType, Mode, Pool, Task, Timestamp};
use vfscale_sync::random::{Random, seed};

use crate::common::{image, within};
use crate::tree_common::{Known, Tree, read_contents, unequal};

fn layer(pool: &Pool, a: &str, b: &str, options: &DiffOptions) -> (u64, Vec<u8>) {
    let mut layer = Vec::new();
    let count = pool.layer(a, b, options, &mut |part| {
        layer.extend_from_slice(part);
        true
    });
    (count.unwrap(), layer)
}

/// A number in octal digits.
fn octal(bytes: &[u8]) -> u64 {
    let text = str::from_utf8(bytes).unwrap().trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).unwrap()
}

fn text_of(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == 0).next().unwrap().to_vec()
}

/// Splits an extended header.
fn records(mut bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys = BTreeMap::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ').unwrap();
        let length: usize = str::from_utf8(&bytes[..space]).unwrap().parse().unwrap();
        let record = &bytes[space + 1..length - 1];
        let (key, value) = record.split_at(record.iter().position(|byte| *byte == b'=').unwrap());
        keys.insert(key.to_vec(), value[1..].to_vec());
        bytes = &bytes[length..];
    }
    keys
}

/// A small reader of archives, which knows what a layer has and no more: the name, the letter of
/// the type, the target, and the file.
fn read(mut bytes: &[u8]) -> Vec<(PathBuf, u8, PathBuf, Known)> {
    let (mut found, mut keys) = (Vec::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    loop {
        let (header, rest) = bytes.split_at(512);
        if header.iter().all(|byte| *byte == 0) {
            assert_eq!(rest, [0; 512], "the archive ends with two blocks of zeros");
            return found;
        }
        let get = |key: &str| keys.get(key.as_bytes()).cloned();
        let size = get("size").map_or_else(
            || octal(&header[124..136]) as usize,
            |text| str::from_utf8(&text).unwrap().parse().unwrap(),
        );
        let (data, rest) = rest.split_at(size);
        bytes = &rest[size.next_multiple_of(512) - size..];
        if header[156] == b'x' {
            keys = records(data);
            continue;
        }
        let name = get("GNU.sparse.name").or(get("path"));
        let name = name.unwrap_or_else(|| text_of(&header[..100]));
        let target = get("linkpath").unwrap_or_else(|| text_of(&header[157..257]));
        let number = |key, at: std::ops::Range<usize>| match get(key) {
            Some(text) => str::from_utf8(&text).unwrap().parse().unwrap(),
            None => octal(&header[at]),
        };
        let mtime = get("mtime").map_or(octal(&header[136..148]) as f64 * 1e9, |_| 0.0) as i64;
        let mtime = get("mtime").map_or(mtime, |text| {
            let text = String::from_utf8(text).unwrap();
            let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
            let nanos: i64 = format!("{part:0<9}").parse().unwrap();
            let seconds: i64 = whole.parse().unwrap();
            let sign = if whole.starts_with('-') { -1 } else { 1 };
            seconds * 1_000_000_000 + sign * nanos
        });
        let xattrs = keys.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(b"SCHILY.xattr.")?;
            Some((OsString::from_vec(name.to_vec()), Some(value.clone())))
        });
        let kinds = [0o10, 0, 0o12, 0o2, 0o6, 0o4, 0o1];
        let kind: u32 = kinds[usize::from(header[156] - b'0')];
        let device = (octal(&header[329..337]) << 8) | octal(&header[337..345]);
        let known = Known {
            object: Default::default(),
            first: PathBuf::new(),
            content: if kind == 0o12 {
                target.clone()
            } else {
                content(data, get("GNU.sparse.realsize"))
            },
            attributes: (
                kind << 12 | octal(&header[100..108]) as u32,
                number("uid", 108..116) as u32,
                number("gid", 116..124) as u32,
                device,
            ),
            mtime: Timestamp(mtime),
            xattrs: xattrs.collect(),
        };
        let [name, target] = [name, target].map(|it| Path::new("/").join(OsString::from_vec(it)));
        found.push((name, header[156], target, known));
        keys.clear();
    }
}

/// Returns the contents of a file, which may have holes.
fn content(data: &[u8], size: Option<Vec<u8>>) -> Vec<u8> {
    let Some(size) = size else { return data.to_vec() };
    let (mut content, mut next) = (vec![0; str::from_utf8(&size).unwrap().parse().unwrap()], 0);
    let mut number = || -> usize {
        let length = data[next..].iter().position(|byte| *byte == b'\n').unwrap();
        next += length + 1;
        str::from_utf8(&data[next - length - 1..next - 1]).unwrap().parse().unwrap()
    };
    let ranges: Vec<_> = (0..number()).map(|_| (number(), number())).collect();
    let mut at = next.next_multiple_of(512);
    for (start, length) in ranges {
        content[start..start + length].copy_from_slice(&data[at..at + length]);
        at += length;
    }
    assert_eq!(at, data.len());
    content
}

/// Lays a layer over a tree, as the image specification says.
fn lay(tree: &Tree, layer: &[u8]) -> Tree {
    let mut files: BTreeMap<PathBuf, (PathBuf, Known)> = tree
        .iter()
        .map(|(path, known)| (path.clone(), (known.first.clone(), known.clone())))
        .collect();
    let entries = read(layer);
    // Nothing is hidden that the layer has itself.
    for (path, ..) in &entries {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let Some(gone) = name.strip_prefix(b".wh.") else { continue };
        let dir = path.parent().unwrap();
        let gone = dir.join(OsString::from_vec(gone.to_vec()));
        let is_opaque = name == b".wh..wh..opq";
        files.retain(|path, _| match is_opaque {
            true => path == dir || !path.starts_with(dir),
            false => !path.starts_with(&gone),
        });
    }
    for (number, (path, letter, target, mut known)) in entries.into_iter().enumerate() {
        if path.file_name().unwrap_or_default().as_bytes().starts_with(b".wh.") {
            continue;
        }
        let path: PathBuf = path.components().filter(|it| it.as_os_str() != ".").collect();
        if !known.is_dir() || !files.get(&path).is_some_and(|(_, there)| there.is_dir()) {
            files.retain(|there, _| !there.starts_with(&path));
        }
        let mut group = PathBuf::from(format!("layer {number}"));
        if letter == b'1' {
            (group, known) = files[&target].clone();
        }
        files.insert(path, (group, known));
    }
    let mut firsts: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for (path, (group, _)) in &files {
        firsts.entry(group.clone()).or_insert_with(|| path.clone());
    }
    let known =
        |(group, known): &(PathBuf, Known)| Known { first: firsts[group].clone(), ..known.clone() };
    files.iter().map(|(path, file)| (path.clone(), known(file))).collect()
}

/// Returns the flags of all files that have some.
fn flags(task: &Task) -> BTreeMap<PathBuf, InodeFlags> {
    let mut found = BTreeMap::new();
    for (path, known) in read_contents(task) {
        if matches!(known.attributes.0 >> 12, 0o10 | 0o4) {
            let file = task.open(&path).unwrap();
            let flags = task.posix().ioctl_getflags(&file).unwrap();
            found.extend(Some((path, flags)).filter(|it| !it.1.is_empty()));
        }
    }
    found
}

/// Makes a random change. Calls that fail change nothing.
fn change(task: &Task, random: &mut Random) {
    let tree = read_contents(task);
    let mut any = |is_dir| {
        let paths: Vec<_> = tree.iter().filter(|(_, known)| known.is_dir() == is_dir).collect();
        let at = random.below(paths.len().max(1) as u64) as usize;
        paths.get(at).map_or(PathBuf::from("/none"), |(path, _)| (*path).clone())
    };
    let (dir, other, file, target) = (any(true), any(true), any(false), any(false));
    // A fifo would be waited for.
    let is_special =
        |path: &Path| tree.get(path).is_some_and(|it| !matches!(it.attributes.0 >> 12, 0o4 | 0o10));
    let long = "l".repeat(200);
    let names = ["f", "g", "d", "e", "ä \"\n", &long];
    let new = dir.join(random.one(&names));
    let bytes = vec![random.below(256) as u8; random.one(&[0, 1, 511, 512, 513, 10_000, 100_000])];
    let (calls, mode) = (task.posix(), Mode::from(0o640));
    let number = random.below(24);
    let touched = if number == 3 { &file } else { &new };
    if matches!(number, 0..=3 | 21 | 23) && is_special(touched) {
        return;
    }
    let _ = match number {
        0..=2 => task.write(&new, bytes),
        3 => task.write(&file, bytes),
        4 => task.create_dir(&new),
        5 => task.create_dir_all(new.join("deep/e")),
        6 => task.remove_file(&file),
        7 => task.remove_dir_all(&dir),
        8 | 9 => task.rename(&file, &new),
        10 | 11 => task.rename(&dir, other.join(random.one(&names))),
        12 | 13 => task.hard_link(&file, &new),
        14 => task.symlink(random.one(&["f", &long, "../ä"]), &new),
        15 => calls.renameat2(At::Cwd, &dir, At::Cwd, &target, RenameFlags::EXCHANGE),
        16 => {
            let kinds = [FileType::Fifo, FileType::CharacterDevice, FileType::BlockDevice];
            let kind = random.one(&kinds);
            let device = if kind == FileType::Fifo { 0 } else { 0x803 };
            calls.mknodat(At::Cwd, &new, kind, mode, device)
        }
        17 => {
            task.set_permissions(random.one(&[&dir, &file]), random.one(&[0o4755, 0o1700, 0o555]))
        }
        18 => task.set_xattr(random.one(&[&dir, &file]), "user.a", &bytes[..bytes.len().min(513)]),
        19 => task.remove_xattr(&file, "user.a"),
        20 => {
            let (uid, gid) = (random.one(&[0, 7, 3_000_000_000]), 9);
            calls.fchownat(
                At::Cwd,
                &file,
                Some(uid),
                Some(gid),
                vfscale::posix::AtFlags::SYMLINK_NOFOLLOW,
            )
        }
        21 => task.open_with_holes(&new, random),
        22 => {
            let time = random.one(&[-1_500_000_001, 1_000_000_000, 1, 5_000_000_000_123_456_789]);
            let times = [SetTime::Omit, SetTime::At(Timestamp(time))];
            calls.utimensat(At::Cwd, &file, times, vfscale::posix::AtFlags::SYMLINK_NOFOLLOW)
        }
        _ => calls.openat(At::Cwd, &new, OFlags::RDONLY, 0).and_then(|file| {
            let flags = [InodeFlags::NODUMP, InodeFlags::NOATIME | InodeFlags::SYNC];
            calls.ioctl_setflags(&file, random.one(&flags))
        }),
    };
}

trait Holes {
    fn open_with_holes(&self, path: &Path, random: &mut Random) -> vfscale::Result<()>;
}

impl Holes for Task {
    /// Makes a file with holes.
    fn open_with_holes(&self, path: &Path, random: &mut Random) -> vfscale::Result<()> {
        let file = self.create(path)?;
        for _ in 0..random.below(3) {
            file.pwrite(&[7; 5000], random.below(300_000))?;
        }
        file.truncate(random.one(&[0, 1, 4096, 250_000, 700_001]))
    }
}

fn same(one: &Tree, other: &Tree, context: &str) {
    let found = unequal(one, other);
    assert!(found.is_empty(), "{context}: {found:#?}");
}

/// Returns what tar(1) prints for a layer; `None` if it is not installed.
fn listed(layer: &[u8]) -> Option<String> {
    let mut command = Command::new("tar");
    command.args(["-tf", "-", "--quoting-style=literal"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: tar is not installed");
        return None;
    };
    let (mut input, layer) = (child.stdin.take().unwrap(), layer.to_vec());
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, &layer));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_known = |line: &&str| line.contains("'SCHILY.fflags'");
    assert_eq!(warnings.lines().find(|line| !is_known(line)), None);
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_layer_makes_one_branch_of_the_other() {
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let rounds = std::env::var("VFSCALE_LAYERS").map_or(25, |text| text.parse().unwrap());
    let mut random = Random::new(seed);
    let pool = vfscale::pool(image(dir.path(), |_| ())).convert(true).open().unwrap();
    for round in 0..rounds {
        pool.fork("main", "a").unwrap();
        within(&pool, "a", |task| (0..30).for_each(|_| change(task, &mut random)));
        pool.fork("a", "b").unwrap();
        let count = random.below(20);
        within(&pool, "b", |task| (0..count).for_each(|_| change(task, &mut random)));
        let [a, b] = ["a", "b"].map(|name| within(&pool, name, read_contents));
        for ((one, other), (before, after)) in [(("a", "b"), (&a, &b)), (("b", "a"), (&b, &a))] {
            let context = format!("seed {seed}, round {round}, {one} to {other}");
            let (count, layer) = layer(&pool, one, other, &DiffOptions::new());
            assert_eq!(layer, self::layer(&pool, one, other, &DiffOptions::new()).1);
            assert_eq!(layer.len() % 512, 0);
            same(&lay(before, &layer), after, &context);
            if let Some(listed) = listed(&layer) {
                assert!(listed.lines().count() as u64 >= count, "{context}: {listed}");
            }
            pool.fork(one, "applied").unwrap();
            let options = ApplyOptions::new();
            let tried = pool.apply("applied", &mut &layer[..], options.dry_run(true)).unwrap();
            same(&within(&pool, "applied", read_contents), before, &context);
            let done = pool.apply("applied", &mut &layer[..], options).unwrap();
            assert_eq!(vfscale::Applied { is_done: done.is_done, ..tried }, done);
            assert_eq!((done.is_layer, done.is_done), (true, count > 0));
            same(&within(&pool, "applied", read_contents), after, &context);
            let flags = ["applied", other].map(|name| within(&pool, name, flags));
            assert_eq!(flags[0], flags[1], "{context}");
            // Applying it once more changes nothing.
            pool.apply("applied", &mut &layer[..], options).unwrap();
            same(&within(&pool, "applied", read_contents), after, &context);
            pool.delete("applied").unwrap();
        }
        ["a", "b"].iter().for_each(|name| pool.delete(name).unwrap());
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}
