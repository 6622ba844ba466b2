//! Doing to a tree what a patch says.
//!
//! First all results are made in memory, from the tree as it is: each rename and copy is one of a
//! file that was there before, and any other change is one of what the patch has made so far. Then
//! files that are renamed are put aside, what goes is removed, and the results get their names. A
//! file stays the inode that it is, unless it has other names, which keep what they have. A
//! directory that the patch has emptied goes, as with git-apply(1) and patch(1).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_vfs::{At, AtFlags, Errno, File, OFlags, RenameFlags, Stat, Task};

use super::hunks;
use super::patch::{Change, Wrong};
use super::report::Applied;
use super::stop::{Stop, path_of};
use super::tree::{Tree, split};
use crate::transfer::side::Side;

/// The largest file that is changed by lines, in bytes.
const TEXT_MAX: u64 = 64 << 20;
/// The type of a link in a mode.
const LINK: u32 = 0o120_000;
const TYPE: u32 = 0o170_000;

/// A file of the result.
#[derive(Clone, Debug)]
struct Made {
    /// The path in the tree of the file that this is.
    origin: Option<PathBuf>,
    /// The contents, if they change.
    text: Option<Vec<u8>>,
    is_link: bool,
    /// Whether it can be executed, if that changes.
    can_execute: Option<bool>,
    /// The line of the patch.
    line: usize,
}

/// A patch that is applied.
struct Patching<'t> {
    tree: Tree<'t>,
    results: BTreeMap<PathBuf, Made>,
    /// The paths in the tree whose files go, or get another path.
    vacated: BTreeSet<PathBuf>,
    /// The files that are put aside, with their names there.
    aside: BTreeMap<PathBuf, OsString>,
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Applies changes in the tree of a task.
///
/// # Errors
/// A reason, with its place.
pub(super) fn apply(task: &Task, changes: &[Change<'_>]) -> Result<Applied, Wrong> {
    let whole = |stop: Stop| (stop, Vec::new(), 1);
    let (results, vacated, aside) = Default::default();
    let mut patching = Patching { tree: Tree::new(task).map_err(whole)?, results, vacated, aside };
    for change in changes {
        let path = change.new.as_ref().or(change.old.as_ref());
        let path = path.map(|path| bytes(path)).unwrap_or_default();
        let planned = patching.plan(change);
        planned.map_err(|(stop, line)| (stop, path, line.unwrap_or(change.line)))?;
    }
    patching.check_free()?;
    let applied = patching.run()?;
    let Patching { tree, .. } = patching;
    tree.finish().map_err(|(stop, path)| (stop, bytes(&path), 1))?;
    Ok(applied)
}

/// A reason, with the line of a hunk.
type Late = (Stop, Option<usize>);

fn late(stop: impl Into<Stop>) -> Late {
    (stop.into(), None)
}

impl Patching<'_> {
    /// Makes the result of a change.
    fn plan(&mut self, change: &Change<'_>) -> Result<(), Late> {
        let Change { old, new, mode, is_copy, hunks, line } = change;
        let is_moved = old.is_some() && new.is_some() && old != new;
        let before = match old {
            Some(old) => Some(self.before(old, is_moved).map_err(late)?),
            None => None,
        };
        let mut text = None;
        if !hunks.is_empty() {
            let old = before.as_ref().map(|made| self.text(made)).transpose().map_err(late)?;
            let made = hunks::apply(&old.unwrap_or_default(), hunks);
            let place = |number: usize| {
                let what = "the file is not as the patch has it: this hunk does not match";
                (what.into(), hunks.get(number).map(|hunk| hunk.line))
            };
            text = Some(made.map_err(place)?);
        } else if *is_copy {
            text = before.as_ref().map(|made| self.text(made)).transpose().map_err(late)?;
        }
        if let Some(old) = old.as_ref().filter(|_| !is_copy && old != new) {
            self.take_away(old, is_moved).map_err(late)?;
        }
        let Some(new) = new else {
            let is_rest = text.is_some_and(|text| !text.is_empty());
            let what = "the patch removes it, and it has more than that removes";
            return if is_rest { Err(late(what)) } else { Ok(()) };
        };
        let has_type = mode.map(|mode| mode & TYPE == LINK);
        let made = match before {
            Some(made) => {
                let is_type = has_type.is_none_or(|is_link| is_link == made.is_link);
                if !is_type {
                    return Err(late("it is of another type than the patch says"));
                }
                Made {
                    origin: made.origin.filter(|_| !is_copy),
                    text: text.or(made.text),
                    can_execute: mode.map(|mode| mode & 0o111 != 0).or(made.can_execute),
                    line: *line,
                    ..made
                }
            }
            None => Made {
                origin: None,
                text: Some(text.unwrap_or_default()),
                is_link: has_type == Some(true),
                can_execute: Some(mode.is_some_and(|mode| mode & 0o111 != 0)),
                line: *line,
            },
        };
        if (old != &Some(new.clone()) || *is_copy) && self.results.contains_key(new) {
            return Err(late("the patch gives the name to two files"));
        }
        self.results.insert(new.clone(), made);
        Ok(())
    }

    /// Returns what the patch has made of a path so far, or what the tree has there.
    fn before(&self, path: &Path, is_moved: bool) -> Result<Made, Stop> {
        if let Some(made) = self.results.get(path).filter(|_| !is_moved) {
            return Ok(made.clone());
        }
        let gone = self.vacated.contains(path);
        let stat = self.tree.stat(path)?.filter(|_| is_moved || !gone);
        let stat =
            stat.ok_or_else(|| Stop { what: "there is no such file".into(), errno: Errno::NOENT })?;
        if !stat.is_file() && !stat.is_symlink() {
            return Err("it is neither a file nor a symbolic link".into());
        }
        let (origin, is_link) = (Some(path.to_owned()), stat.is_symlink());
        Ok(Made { origin, text: None, is_link, can_execute: None, line: 0 })
    }

    /// Returns the text of a file.
    fn text(&self, made: &Made) -> Result<Vec<u8>, Stop> {
        let path = match (&made.text, &made.origin) {
            (Some(text), _) => return Ok(text.clone()),
            (None, Some(path)) => path,
            (None, None) => return Ok(Vec::new()),
        };
        let calls = self.tree.calls();
        let (dir, name) = split(path).ok_or("it has no name")?;
        let dir = self.tree.there(dir)?;
        if made.is_link {
            let link = calls.open_node(Some(&dir), name)?;
            return Ok(calls.read_link(&link)?.into_os_string().into_encoded_bytes());
        }
        let file = calls.open_file(Some(&dir), name)?;
        let size = file.stat()?.size;
        if size > TEXT_MAX {
            return Err("it is larger than 64 MiB".into());
        }
        let (mut text, mut at) = (vec![0; size as usize], 0);
        while at < text.len() {
            match calls.read_at(&file, &mut text[at..], at as u64)? {
                0 => break,
                read => at += read,
            }
        }
        Ok(text)
    }

    /// Takes a path off a file, which goes or is renamed.
    fn take_away(&mut self, path: &Path, is_moved: bool) -> Result<(), Stop> {
        match self.results.get(path).filter(|_| !is_moved) {
            Some(made) => {
                let origin = made.origin.clone();
                self.results.remove(path);
                self.vacated.extend(origin);
            }
            None if self.vacated.contains(path) => {
                return Err("the patch takes it away twice".into());
            }
            None => _ = self.vacated.insert(path.to_owned()),
        }
        Ok(())
    }

    /// Fails if a new file has the path of one that stays.
    fn check_free(&self) -> Result<(), Wrong> {
        for (path, made) in &self.results {
            let is_own = made.origin.as_ref() == Some(path) || self.vacated.contains(path);
            let there = if is_own { Ok(None) } else { self.tree.stat(path) };
            let taken = |stop| (stop, bytes(path), made.line);
            // A directory may be emptied first.
            if there.map_err(taken)?.is_some_and(|stat| !stat.is_dir()) {
                let what = "there is a file of this name already".into();
                return Err(taken(Stop { what, errno: Errno::EXIST }));
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Applied, Wrong> {
        let mut applied = Applied::default();
        let root = Path::new("");
        let name = (0..).map(|number| format!(".vfscale-apply-{number}"));
        let mut free = name.filter(|name| {
            !self.results.contains_key(Path::new(name))
                && self.tree.stat(Path::new(name)).is_ok_and(|it| it.is_none())
        });
        let aside = PathBuf::from(free.next().unwrap_or_default());
        let first = |stop: Stop| (stop, Vec::new(), 1);
        let moved: BTreeSet<PathBuf> = self
            .results
            .iter()
            .filter(|(path, made)| made.origin.as_ref().is_some_and(|from| from != *path))
            .filter_map(|(_, made)| made.origin.clone())
            .collect();
        // A directory that is made changes the one above it.
        let aside_path = if moved.is_empty() { root } else { &aside };
        let aside_dir = self.tree.dir(aside_path).map_err(first)?;
        self.take_aside(&aside_dir, &moved, &mut applied)?;
        for (path, made) in self.results.clone() {
            let done = self.make(&aside_dir, &path, &made);
            done.map_err(|stop| (stop, bytes(&path), made.line))?;
            applied.written += 1;
        }
        for path in self.vacated.clone() {
            self.prune(&path, root).map_err(|stop| (stop, bytes(&path), 1))?;
        }
        let root = self.tree.dir(root).map_err(first)?;
        self.tree.remove(&root, aside.as_os_str(), &aside).map_err(first)?;
        Ok(applied)
    }

    /// Puts aside what is renamed, and removes what goes.
    fn take_aside(
        &mut self,
        aside: &File,
        moved: &BTreeSet<PathBuf>,
        applied: &mut Applied,
    ) -> Result<(), Wrong> {
        for (number, path) in self.vacated.clone().into_iter().enumerate() {
            let wrong = |stop| (stop, bytes(&path), 1);
            let Some((dir, name)) = split(&path) else { continue };
            let dir = self.tree.dir(dir).map_err(wrong)?;
            if !moved.contains(&path) {
                let removed = self.tree.calls().unlink(Some(&dir), name);
                removed.map_err(|error| wrong(error.into()))?;
                applied.removed += u64::from(!self.results.contains_key(&path));
                continue;
            }
            let new = OsString::from(number.to_string());
            let (at, to) = (At::File(&dir), At::File(aside));
            let calls = self.tree.task.posix();
            let renamed = calls.renameat2(at, name, to, &new, RenameFlags::NOREPLACE);
            renamed.map_err(|error| wrong(error.into()))?;
            self.aside.insert(path, new);
        }
        Ok(())
    }

    /// Gives a file its path, its contents and its permissions.
    fn make(&mut self, aside: &File, path: &Path, made: &Made) -> Result<(), Stop> {
        let Some((dir_path, name)) = split(path) else { return Err("it has no name".into()) };
        let dir = self.tree.dir(dir_path)?;
        if self.tree.stat_in(&dir, name)?.is_some_and(|stat| stat.is_dir()) {
            let emptied: Vec<_> =
                self.vacated.iter().filter(|it| it.starts_with(path)).cloned().collect();
            for below in emptied {
                self.prune(&below, dir_path)?;
            }
        }
        let dir = self.tree.dir(dir_path)?;
        if let Some(from) = made.origin.as_ref().and_then(|origin| self.aside.get(origin)) {
            let (at, to) = (At::File(aside), At::File(&dir));
            let calls = self.tree.task.posix();
            calls.renameat2(at, from, to, name, RenameFlags::NOREPLACE)?;
        }
        let there = self.tree.stat_in(&dir, name)?;
        if let Some(text) = &made.text {
            self.write((&dir, name), there.as_ref(), made.is_link, text)?;
        }
        if let Some(can_execute) = made.can_execute.filter(|_| !made.is_link) {
            let file = self.tree.calls().open_node(Some(&dir), name)?;
            let mode = file.stat()?.mode & 0o7777;
            let new = match can_execute {
                true => mode | (mode & 0o444) >> 2,
                false => mode & !0o111,
            };
            if new != mode {
                self.tree.calls().chmod(&file, new)?;
            }
        }
        Ok(())
    }

    /// Writes a text or the target of a link to a file, which may be `there`.
    fn write(
        &mut self,
        (dir, name): (&File, &OsStr),
        there: Option<&Stat>,
        is_link: bool,
        text: &[u8],
    ) -> Result<(), Stop> {
        let calls = self.tree.calls();
        if there.is_some_and(|it| !is_link && it.is_file() && it.nlink == 1) {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file = self.tree.task.posix().openat(At::File(dir), name, flags, 0)?;
            file.truncate(0)?;
            return Ok(calls.write_all_at(&file, text, 0)?);
        }
        let old = match there {
            Some(stat) => {
                let node = calls.open_node(Some(dir), name)?;
                let xattrs = calls.xattrs(&node)?;
                calls.unlink(Some(dir), name)?;
                Some((stat, xattrs))
            }
            None => None,
        };
        if is_link {
            calls.symlink(path_of(text), Some(dir), name)?;
        } else {
            let file = calls.create(Some(dir), name)?;
            calls.write_all_at(&file, text, 0)?;
            calls.chmod(&file, 0o644)?;
        }
        if let Some((stat, xattrs)) = old {
            let node = calls.open_node(Some(dir), name)?;
            calls.chown(&node, stat.uid, stat.gid)?;
            self.tree.set_xattrs(&node, &xattrs)?;
            if !is_link {
                calls.chmod(&node, stat.mode & 0o7777)?;
            }
        }
        Ok(())
    }

    /// Removes the directories above a path, below `end`, that are empty.
    fn prune(&mut self, path: &Path, end: &Path) -> Result<(), Stop> {
        for dir in path.ancestors().skip(1) {
            let Some((above, name)) = split(dir).filter(|_| dir != end) else { return Ok(()) };
            if self.tree.stat(dir)?.is_none_or(|stat| !stat.is_dir()) {
                continue;
            }
            let above = self.tree.dir(above)?;
            let calls = self.tree.task.posix();
            match calls.unlinkat(At::File(&above), name, AtFlags::REMOVEDIR) {
                Err(error) if error.errno() == Errno::NOTEMPTY => return Ok(()),
                removed => removed?,
            }
            self.tree.forget(dir);
        }
        Ok(())
    }
}
