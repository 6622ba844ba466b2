//! Random histories without moves, and the outcome that the table of rules has for them: a model of
//! paths, written from the table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vfscale_sync::random::Random;
use vfscale_vfs::{At, RenameFlags, Task, Timestamp};

use crate::ConflictKind;
use crate::merge::tests::tree_common::{Known, Tree, read_contents};

/// Lines of each text, which begin with their numbers.
const LINES: usize = 6;

fn pick(task: &Task, random: &mut Random, is_dir: bool) -> PathBuf {
    let tree = read_contents(task).into_iter();
    let paths: Vec<_> = tree.filter(|it| it.1.is_dir() == is_dir).map(|it| it.0).collect();
    let none = || PathBuf::from("/none");
    if paths.is_empty() { none() } else { paths[random.below(paths.len() as u64) as usize].clone() }
}

/// Returns new contents of a file: bytes that are no text, or a text with another line.
fn contents(task: &Task, file: &Path, random: &mut Random) -> Vec<u8> {
    if random.below(3) == 0 {
        return [random.below(6) as u8, 0].repeat(random.one(&[1_usize, 40, 3000]));
    }
    let (old, line) = (task.read_to_string(file).unwrap_or_default(), random.below(LINES as u64));
    let mut lines: Vec<_> = old.lines().map(str::to_owned).collect();
    if lines.len() != LINES {
        lines = (0..LINES).map(|number| number.to_string()).collect();
    }
    lines[line as usize] = format!("{line} {}", random.below(3));
    (lines.join("\n") + "\n").into_bytes()
}

/// Makes a random change; with `moves` also ones of names. Calls that fail change nothing.
pub(super) fn change(task: &Task, random: &mut Random, moves: bool) {
    let (dir, other) = (pick(task, random, true), pick(task, random, true));
    let (file, new) = (pick(task, random, false), dir.join(format!("f{}", random.below(5))));
    let (bytes, calls) = (contents(task, &file, random), task.posix());
    let _ = match random.below(if moves { 18 } else { 13 }) {
        0 | 1 => task.write(&new, bytes),
        2..=4 => task.write(&file, bytes),
        5 => task
            .write("/temporary", contents(task, &new, random))
            .and_then(|()| task.rename("/temporary", &new)),
        6 | 7 => task.create_dir(dir.join(format!("d{}", random.below(3)))),
        8 => task.remove_file(&file),
        9 if dir != Path::new("/") => task.remove_dir_all(&dir),
        10 => task.set_permissions(&file, random.one(&[0o600, 0o644, 0o640])),
        11 => task.set_xattr(&file, random.one(&["user.a", "user.b"]), [random.below(3) as u8]),
        12 => task.set_permissions(&dir, random.one(&[0o700, 0o755, 0o750])),
        13 => task.rename(&file, &new),
        14 => task.hard_link(&file, &new),
        15 | 16 => task.rename(&dir, other.join(format!("d{}", random.below(3)))),
        17 => calls.renameat2(At::Cwd, &file, At::Cwd, &new, RenameFlags::EXCHANGE),
        _ => Ok(()),
    };
}

/// Merges the values of one key; `Err` has INTO's.
pub(super) fn three<T: PartialEq + Clone>(base: Option<&T>, ours: &T, theirs: &T) -> Result<T, T> {
    match (base == Some(theirs), base == Some(ours), ours == theirs) {
        (true, ..) | (.., true) => Ok(ours.clone()),
        (_, true, _) => Ok(theirs.clone()),
        _ => Err(ours.clone()),
    }
}

/// Merges texts whose lines were changed in place: `None` where both have changed the same lines,
/// or lines next to each other, and of what is no text.
pub(super) fn by_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let all = [base, ours, theirs].map(|text| text.split_inclusive(|byte| *byte == b'\n'));
    let [base, ours, theirs] = all.map(Iterator::collect::<Vec<_>>);
    let is_text = |lines: &[&[u8]]| !lines.concat().contains(&0) && lines.len() == LINES;
    if ![&base, &ours, &theirs].into_iter().all(|lines| is_text(lines)) {
        return None;
    }
    let (mut merged, mut at) = (Vec::new(), 0);
    while at < LINES {
        let is_same = |at: &usize| base[*at] == ours[*at] && base[*at] == theirs[*at];
        let end = (at..LINES).find(is_same).unwrap_or(LINES).max(at + 1);
        let [base, ours, theirs] = [&base, &ours, &theirs].map(|lines| lines[at..end].to_vec());
        merged.extend(three(Some(&base), &ours, &theirs).ok()?.concat());
        at = end;
    }
    Some(merged)
}

/// Leaves the time of a directory out, which is no change of it.
pub(super) fn timeless(known: Known) -> Known {
    let mtime = if known.is_dir() { Timestamp(0) } else { known.mtime };
    Known { mtime, ..known }
}

/// The outcome by the table for trees in which nothing was moved or linked. Directories have names
/// with `d`, and files others, so a name never changes its type.
pub(super) struct Model {
    pub(super) tree: Tree,
    pub(super) conflicts: BTreeSet<(PathBuf, ConflictKind, Option<PathBuf>)>,
}

impl Model {
    pub(super) fn new(base: &Tree, ours: &Tree, theirs: &Tree) -> Self {
        let mut model = Self { tree: Tree::new(), conflicts: BTreeSet::new() };
        let paths: BTreeSet<&PathBuf> =
            base.keys().chain(ours.keys()).chain(theirs.keys()).collect();
        for path in &paths {
            let of = |tree: &Tree| tree.get(*path).cloned().map(timeless);
            model.path(path, (of(base), of(ours), of(theirs)));
        }
        // Directories stay for what is in them.
        let kept: Vec<PathBuf> = model.tree.keys().cloned().collect();
        for dir in kept.iter().flat_map(|path| path.ancestors().skip(1)) {
            if !model.tree.contains_key(dir) {
                let known = ours.get(dir).or(theirs.get(dir)).unwrap();
                model.tree.insert(dir.into(), timeless(known.clone()));
            }
        }
        model
    }

    fn conflict(&mut self, path: &Path, kind: ConflictKind, beside: Option<PathBuf>) {
        self.conflicts.insert((path.into(), kind, beside));
    }

    fn path(&mut self, path: &Path, sides: (Option<Known>, Option<Known>, Option<Known>)) {
        let kept = match sides {
            (base, ours, theirs) if theirs == base || ours == theirs => ours,
            (base, ours, theirs) if ours == base => theirs,
            (Some(_), None, Some(changed)) | (Some(_), Some(changed), None) => {
                self.conflict(path, ConflictKind::Removed, None);
                Some(changed)
            }
            (base, Some(ours), Some(theirs)) => Some(self.both(path, base, ours, theirs)),
            (None, ours, theirs) => ours.or(theirs),
            (Some(_), None, None) => None,
        };
        self.tree.extend(kept.map(|known| (path.to_owned(), known)));
    }

    fn both(&mut self, path: &Path, base: Option<Known>, ours: Known, theirs: Known) -> Known {
        let before = base.as_ref();
        let content = three(before.map(|it| &it.content), &ours.content, &theirs.content);
        let (mut is_merged, mut is_beside) = (false, false);
        let content = content.unwrap_or_else(|kept| {
            let text = before.and_then(|it| by_lines(&it.content, &ours.content, &theirs.content));
            (is_merged, is_beside) = (text.is_some(), text.is_none());
            text.unwrap_or(kept)
        });
        if is_beside {
            let mut name = path.as_os_str().to_owned();
            name.push(".from");
            let beside = PathBuf::from(name);
            self.tree.insert(beside.clone(), Known { first: beside.clone(), ..theirs.clone() });
            let kind = if base.is_some() { ConflictKind::Content } else { ConflictKind::Name };
            self.conflict(path, kind, Some(beside));
            if base.is_none() {
                return ours;
            }
        }
        let mtime = match three(before.map(|it| &it.mtime), &ours.mtime, &theirs.mtime) {
            _ if is_beside => ours.mtime,
            Ok(mtime) if !is_merged => mtime,
            _ => ours.mtime.max(theirs.mtime),
        };
        let (one, other) = (ours.attributes, theirs.attributes);
        let before = base.as_ref().map(|it| it.attributes);
        let mut is_conflict = false;
        let mode = three(before.map(|it| it.0).as_ref(), &one.0, &other.0).unwrap_or_else(|mode| {
            is_conflict = true;
            mode
        });
        if is_conflict {
            self.conflict(path, ConflictKind::Attributes, None);
        }
        let get = |known: &Known, name: &std::ffi::OsString| {
            known.xattrs.iter().find(|it| it.0 == *name).map(|it| it.1.clone())
        };
        let names: BTreeSet<_> = ours.xattrs.iter().chain(&theirs.xattrs).map(|it| &it.0).collect();
        let mut xattrs = Vec::new();
        for name in names {
            let before = base.as_ref().and_then(|base| get(base, name));
            let value = three(Some(&before), &get(&ours, name), &get(&theirs, name));
            if value.is_err() {
                self.conflict(path, ConflictKind::Xattrs, None);
            }
            let (Ok(value) | Err(value)) = value;
            xattrs.extend(value.map(|value| (name.clone(), value)));
        }
        Known { content, attributes: (mode, one.1, one.2, one.3), mtime, xattrs, ..ours }
    }
}
