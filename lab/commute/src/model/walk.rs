//! Path lookup.

use vfscale::Errno;

use super::state::{Body, DentryId, ROOT, State};

/// Maximum number of symbolic links in one walk, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// The parent directory and last component of a path.
pub(super) struct LastComponent<'a> {
    /// The parent directory.
    pub(super) dir: DentryId,
    /// The last component; empty if the path is `/` or ends in `.` or `..`.
    pub(super) name: &'a str,
    /// The dentry of that name, if it exists. Mounts on it are not crossed.
    pub(super) found: Option<DentryId>,
}

impl LastComponent<'_> {
    /// Returns the dentry, or `ENOENT` if the name does not exist.
    pub(super) fn existing(&self) -> Result<DentryId, Errno> {
        self.found.ok_or(Errno::NOENT)
    }

    /// Checks that the name is free; returns `EEXIST` otherwise.
    pub(super) fn vacant(&self) -> Result<(), Errno> {
        if self.found.is_some() || self.name.is_empty() { Err(Errno::EXIST) } else { Ok(()) }
    }
}

impl State {
    /// Returns the root of the topmost mount on a dentry, or the dentry itself. Counterpart of
    /// `follow_mount`.
    pub(super) fn follow_mounts(&self, dentry: DentryId) -> DentryId {
        let mount = self.mounts.iter().find(|(covered, _)| *covered == dentry);
        mount.map_or(dentry, |&(_, root)| self.follow_mounts(root))
    }

    /// Returns the dentry that the root of a mounted file system covers.
    pub(super) fn covered(&self, root: DentryId) -> Option<DentryId> {
        self.mounts.iter().find(|mount| mount.1 == root).map(|mount| mount.0)
    }

    pub(super) fn is_mount_point(&self, dentry: DentryId) -> bool {
        self.mounts.iter().any(|(covered, _)| *covered == dentry)
    }

    /// Returns the parent (`..`) of a directory across mounts.
    fn up(&self, dir: DentryId) -> DentryId {
        match self.covered(dir) {
            Some(covered) => self.up(covered),
            None => self.follow_mounts(self.dentries[dir].parent),
        }
    }

    /// Walks to the parent of a path's last component, and looks that component up without
    /// following it.
    pub(super) fn walk_parent<'a>(
        &self,
        process: usize,
        path: &'a str,
    ) -> Result<LastComponent<'a>, Errno> {
        self.walk_parent_from(self.cwd[process % self.cwd.len()], path, &mut 0)
    }

    pub(super) fn walk_parent_from<'a>(
        &self,
        start: DentryId,
        path: &'a str,
        links: &mut u32,
    ) -> Result<LastComponent<'a>, Errno> {
        let mut dir = if path.starts_with('/') { self.follow_mounts(ROOT) } else { start };
        let mut components = path.split('/').filter(|c| !c.is_empty()).peekable();
        while let Some(component) = components.next() {
            let entries = self.entries(dir).ok_or(Errno::NOTDIR)?;
            match component {
                "." => {}
                ".." => dir = self.up(dir),
                name => {
                    let found = entries.get(name).copied();
                    if components.peek().is_none() {
                        return Ok(LastComponent { dir, name, found });
                    }
                    dir = self.follow(dir, found.ok_or(Errno::NOENT)?, links)?;
                }
            }
        }
        Ok(LastComponent { dir, name: "", found: Some(dir) })
    }

    /// Resolves a dentry found in `dir` through mounts and symbolic links.
    fn follow(&self, dir: DentryId, found: DentryId, links: &mut u32) -> Result<DentryId, Errno> {
        let found = self.follow_mounts(found);
        match self.link_target(found, links)? {
            Some(target) => self.lookup_from(dir, target, links),
            None => Ok(found),
        }
    }

    /// Returns the target of a symbolic link and counts the link, or `None` for a dentry of another
    /// type.
    pub(super) fn link_target(
        &self,
        dentry: DentryId,
        links: &mut u32,
    ) -> Result<Option<&str>, Errno> {
        let Body::Symlink(target) = self.body(dentry) else { return Ok(None) };
        *links += 1;
        if *links > SYMLINKS_MAX { Err(Errno::LOOP) } else { Ok(Some(target)) }
    }

    fn lookup_from(&self, start: DentryId, path: &str, links: &mut u32) -> Result<DentryId, Errno> {
        let last = self.walk_parent_from(start, path, links)?;
        self.follow(last.dir, last.existing()?, links)
    }

    /// Looks up a path.
    pub(super) fn lookup(
        &self,
        process: usize,
        path: &str,
        follow: bool,
    ) -> Result<DentryId, Errno> {
        let last = self.walk_parent(process, path)?;
        let found = last.existing()?;
        if follow { self.follow(last.dir, found, &mut 0) } else { Ok(self.follow_mounts(found)) }
    }

    /// Returns the current path of a dentry from the root.
    pub(super) fn path_text(&self, dentry: DentryId) -> String {
        let mut names = Vec::new();
        let mut at = dentry;
        loop {
            match self.covered(at) {
                Some(covered) => at = covered,
                None if self.dentries[at].parent == at => break,
                None => {
                    names.push(self.dentries[at].name.as_str());
                    at = self.dentries[at].parent;
                }
            }
        }
        if at != ROOT {
            return self.dentries[at].name.clone();
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Returns the path of an open file as `/proc/self/fd` shows it, without numbers.
    pub(super) fn d_path(&self, dentry: DentryId) -> String {
        let deleted = if self.dentries[dentry].removed { " (deleted)" } else { "" };
        self.path_text(dentry) + deleted
    }
}
