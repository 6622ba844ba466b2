//! Merges of random histories, against a model of paths that is written from the table of rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vfscale::posix::{At, RenameFlags};
use vfscale::{ConflictKind, MergeOptions, Strategy, Task};
use vfscale_sync::random::{Random, seed};

use super::{Known, all, kinds, same};
use crate::common::{image, within};

type Tree = BTreeMap<PathBuf, Known>;

fn pick(task: &Task, random: &mut Random, is_dir: bool) -> PathBuf {
    let tree = all(task);
    let is_kind = |known: &Known| (known.attributes.0 & 0o170_000 == 0o040_000) == is_dir;
    let paths: Vec<_> = tree.iter().filter(|it| is_kind(it.1)).map(|it| it.0.clone()).collect();
    let none = || PathBuf::from("/none");
    if paths.is_empty() { none() } else { paths[random.below(paths.len() as u64) as usize].clone() }
}

/// Makes a random change; with `moves` also ones of names. Calls that fail change nothing.
fn change(task: &Task, random: &mut Random, moves: bool) {
    let (dir, other) = (pick(task, random, true), pick(task, random, true));
    let (file, new) = (pick(task, random, false), dir.join(format!("f{}", random.below(5))));
    let bytes = [random.below(6) as u8, 0].repeat(random.one(&[1_usize, 40, 3000]));
    let calls = task.posix();
    let _ = match random.below(if moves { 16 } else { 11 }) {
        0..=2 => task.write(&new, bytes),
        3 => task.write(&file, bytes),
        4 => task.write("/temporary", bytes).and_then(|()| task.rename("/temporary", &new)),
        5 => task.create_dir(dir.join(format!("d{}", random.below(3)))),
        6 => task.remove_file(&file),
        7 if dir != Path::new("/") => task.remove_dir_all(&dir),
        8 => task.set_permissions(&file, random.one(&[0o600, 0o644, 0o640])),
        9 => task.set_xattr(&file, random.one(&["user.a", "user.b"]), [random.below(3) as u8]),
        10 => task.set_permissions(&dir, random.one(&[0o700, 0o755, 0o750])),
        11 => task.rename(&file, &new),
        12 => task.hard_link(&file, &new),
        13 | 14 => task.rename(&dir, other.join(format!("d{}", random.below(3)))),
        15 => calls.renameat2(At::Cwd, &file, At::Cwd, &new, RenameFlags::EXCHANGE),
        _ => Ok(()),
    };
}

/// Merges the values of one key; `Err` has INTO's.
fn three<T: PartialEq + Clone>(base: Option<&T>, ours: &T, theirs: &T) -> Result<T, T> {
    match (base == Some(theirs), base == Some(ours), ours == theirs) {
        (true, ..) | (.., true) => Ok(ours.clone()),
        (_, true, _) => Ok(theirs.clone()),
        _ => Err(ours.clone()),
    }
}

/// The outcome by the table for trees in which nothing was moved or linked. Directories have names
/// with `d`, and files others, so a name never changes its type.
struct Model {
    tree: Tree,
    conflicts: BTreeSet<(PathBuf, ConflictKind, Option<PathBuf>)>,
}

impl Model {
    fn new(base: &Tree, ours: &Tree, theirs: &Tree) -> Self {
        let mut model = Self { tree: Tree::new(), conflicts: BTreeSet::new() };
        let paths: BTreeSet<&PathBuf> =
            base.keys().chain(ours.keys()).chain(theirs.keys()).collect();
        for path in &paths {
            let of = |tree: &Tree| {
                let mut known = tree.get(*path).cloned();
                // The time of a directory is no change of it.
                let is_dir = |it: &&mut Known| it.attributes.0 & 0o170_000 == 0o040_000;
                known.as_mut().filter(is_dir).into_iter().for_each(|it| it.mtime = 0);
                known
            };
            model.path(path, (of(base), of(ours), of(theirs)));
        }
        // Directories stay for what is in them.
        let kept: Vec<PathBuf> = model.tree.keys().cloned().collect();
        for dir in kept.iter().flat_map(|path| path.ancestors().skip(1)) {
            if !model.tree.contains_key(dir) {
                let known = ours.get(dir).or(theirs.get(dir)).unwrap();
                model.tree.insert(dir.into(), known.clone());
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
        let content = base.as_ref().map(|it| &it.content);
        let content = three(content, &ours.content, &theirs.content).unwrap_or_else(|content| {
            let mut name = path.as_os_str().to_owned();
            name.push(".from");
            let beside = PathBuf::from(name);
            self.tree.insert(beside.clone(), Known { first: beside.clone(), ..theirs.clone() });
            let kind = if base.is_some() { ConflictKind::Content } else { ConflictKind::Name };
            self.conflict(path, kind, Some(beside));
            content
        });
        if base.is_none() && ours.content != theirs.content {
            return ours;
        }
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
        Known { content, attributes: (mode, one.1, one.2, one.3), xattrs, ..ours }
    }
}

fn without_times(tree: &Tree) -> Tree {
    tree.iter().map(|(path, it)| (path.clone(), Known { mtime: 0, ..it.clone() })).collect()
}

/// Makes random histories, and merges them. Returns how many had no conflict.
fn run(rounds: u64, moves: bool) -> u64 {
    let seed = seed();
    eprintln!("seed {seed}");
    let (mut random, mut clean) = (Random::new(seed), 0);
    let dir = tempfile::tempdir().unwrap();
    let pool = vfscale::pool(image(dir.path(), |_| ())).convert(true).open().unwrap();
    for round in 0..rounds {
        pool.fork("main", "base").unwrap();
        within(&pool, "base", |task| (0..14).for_each(|_| change(task, &mut random, true)));
        let base = within(&pool, "base", |task| {
            if !moves {
                // The model knows no links.
                for (path, known) in all(task) {
                    if known.first != path {
                        task.remove_file(&path).unwrap();
                    }
                }
            }
            all(task)
        });
        for name in ["into", "from"] {
            pool.fork("base", name).unwrap();
            let count = random.below(9);
            within(&pool, name, |task| (0..count).for_each(|_| change(task, &mut random, moves)));
            pool.fork(name, &format!("{name} 2")).unwrap();
        }
        let (ours, theirs) = (within(&pool, "into", all), within(&pool, "from", all));
        let options = MergeOptions::new();
        let context = |what: &str| format!("seed {seed}, round {round}: {what}");
        let done = pool.merge("from", "into", options);
        let done = done.unwrap_or_else(|error| panic!("{}", context(&error.to_string())));
        let after = within(&pool, "into", all);
        if !moves {
            let model = Model::new(&base, &ours, &theirs);
            let told = done.conflicts.iter().cloned();
            let told: BTreeSet<_> = told.map(|it| (it.path, it.kind, it.beside)).collect();
            assert_eq!(model.conflicts, told, "{}", context("conflicts"));
            same(&without_times(&after), &without_times(&model.tree), &context("the model"));
        }
        // With moves, a file may be put beside once more.
        if !moves {
            let again = pool.merge("from", "into", options).unwrap();
            let context = context(&format!("again {:?}", kinds(&again)));
            same(&within(&pool, "into", all), &after, &context);
        }
        if done.conflicts.is_empty() {
            clean += 1;
            pool.merge("into 2", "from 2", options).unwrap();
            same(&within(&pool, "from 2", all), &after, &context("the other way round"));
        }
        let fail = options.strategy(Strategy::Fail);
        assert_eq!(pool.merge("into", "into 2", fail).unwrap().conflicts, [], "fast-forward");
        for name in ["base", "into", "from", "into 2", "from 2"] {
            pool.delete(name).unwrap();
        }
        pool.reap().unwrap();
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
    clean
}

fn rounds(few: u64) -> u64 {
    std::env::var("VFSCALE_MERGES").map_or(few, |text| text.parse().unwrap())
}

#[test]
fn random_histories_are_merged_as_the_model_says() {
    let rounds = rounds(60);
    assert!(run(rounds, false) * 10 > rounds);
}

/// With moves and links: a merge is done, and without conflicts its direction makes no difference.
#[test]
fn random_moves_are_merged_alike_in_both_directions() {
    let rounds = rounds(60);
    assert!(run(rounds, true) * 20 > rounds);
}
