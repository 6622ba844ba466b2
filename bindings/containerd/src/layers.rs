//! The directories of the host: views that Linux has mounted, and what containers write above them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use tonic::Code;
use vfscale::{Escaped, Overlay, Pool};
use vfscale_command::views::{self, copy_attributes, is_open};

use crate::api::Mount;
use crate::record::State;
use crate::refusal::{Refusal, Result};

/// Options of overlays without which a file with several names would be another one after a change,
/// and such as spare copies.
const OPTIONS: [&str; 4] = ["index=on", "xino=on", "redirect_dir=on", "metacopy=on"];
/// The directories below the root whose entries have the names of states.
pub(crate) const DIRS: [&str; 3] = ["active", "mounts", "views"];
/// The extension of the file of a view.
pub(crate) const VIEW: &str = ".erofs";

/// The directories below the root of the snapshotter.
#[derive(Debug)]
pub(crate) struct Layers {
    root: PathBuf,
    image: PathBuf,
}

impl Layers {
    /// Makes the directories that are missing.
    ///
    /// # Errors
    /// Refuses paths that an option of a mount can't have.
    pub(crate) fn open(root: &Path, image: &Path) -> Result<Self> {
        for path in [root, image] {
            if path.to_str().is_none_or(|path| path.contains([',', ':', '\\', '"', '\n'])) {
                let what = "its path can't be in an option of a mount; name it without , : \\ \"";
                let what = format!("{}: {what}", Escaped::new(path));
                return Err(Refusal::new(Code::InvalidArgument, what));
            }
        }
        let layers = Self { root: root.to_owned(), image: image.to_owned() };
        for name in DIRS {
            let dir = root.join(name);
            fs::create_dir_all(&dir).map_err(Refusal::at(&dir))?;
        }
        Ok(layers)
    }

    /// Returns the file of the view of a state.
    fn view(&self, state: State) -> PathBuf {
        self.root.join("views").join(state.name() + VIEW)
    }

    /// Returns the directory where the view of a state is mounted.
    fn mounted(&self, state: State) -> PathBuf {
        self.root.join("mounts").join(state.name())
    }

    /// Returns the directory of an active snapshot.
    fn active(&self, id: u64) -> PathBuf {
        self.root.join("active").join(id.to_string())
    }

    /// Mounts the view of a state unless it is mounted, and makes it if it is missing. Returns the
    /// directory.
    ///
    /// # Errors
    /// Names a file that an overlay would take for a mark of its own, and what Linux refuses.
    pub(crate) fn show(&self, pool: &Pool, state: State) -> Result<PathBuf> {
        let (view, dir) = (self.view(state), self.mounted(state));
        fs::create_dir_all(&dir).map_err(Refusal::at(&dir))?;
        if is_mounted(&dir).map_err(Refusal::at(&dir))? {
            return Ok(dir);
        }
        if !view.exists() {
            let new = view.with_extension("new");
            if let Some(path) = pool.view(&state.branch(), &new)?.marked {
                return Err(Refusal::state(format!(
                    "{}: a character device 0:0, or attributes `*.overlay.*`, which overlays take \
                     for their own",
                    Escaped::new(&path)
                )));
            }
            fs::rename(&new, &view).map_err(Refusal::at(&view))?;
        }
        views::mount(&view, &self.image, &dir).map_err(|error| {
            let (image, hint) = (Escaped::new(&self.image), views::SUPPORTED);
            Refusal::state(format!("{image}: the view can't be mounted: {error} {hint}"))
        })?;
        Ok(dir)
    }

    /// Unmounts the view with a name in `mounts`, which no snapshot is above, and removes the
    /// directory.
    pub(crate) fn hide(&self, name: &str) -> Result<()> {
        let dir = self.root.join("mounts").join(name);
        let hidden = match is_mounted(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(true) => unmount(&dir, UnmountFlags::empty()).map_err(io::Error::from),
            checked => checked.map(|_| ()),
        };
        hidden.and_then(|()| fs::remove_dir(&dir)).map_err(Refusal::at(&dir))
    }

    /// Removes the file of a view that is not mounted, by its name in `views`.
    ///
    /// # Errors
    /// Something has it open: a mount of a container that was not ended.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        let view = self.root.join("views").join(name);
        if is_open(&view) {
            let view = Escaped::new(&view);
            return Err(Refusal::state(format!("{view}: a mount or a process has it open")));
        }
        remove(&view)
    }

    /// Makes the upper layer of an active snapshot, whose root is like that of the lower one, and
    /// the directory for an overlay's work.
    pub(crate) fn make(&self, id: u64, lower: &Path) -> Result<()> {
        let dir = self.active(id);
        remove(&dir)?;
        let (upper, work) = (dir.join("upper"), dir.join("work"));
        let made = fs::create_dir(&dir)
            .and_then(|()| fs::create_dir(&work))
            .and_then(|()| fs::create_dir(&upper))
            .and_then(|()| copy_attributes(lower, &upper));
        made.map_err(Refusal::at(&dir))
    }

    /// Returns the overlay of an active snapshot above the view of a state.
    pub(crate) fn overlay(&self, id: u64, base: State) -> Mount {
        let dir = self.active(id);
        let layer = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        let layers = [
            layer("lowerdir", self.mounted(base)),
            layer("upperdir", dir.join("upper")),
            layer("workdir", dir.join("work")),
        ];
        let options = OPTIONS.map(str::to_owned).into_iter().chain(layers).collect();
        Mount { kind: "overlay".into(), source: "overlay".into(), target: String::new(), options }
    }

    /// Returns the mount of a view alone.
    pub(crate) fn bind(&self, base: State) -> Mount {
        let source = self.mounted(base).display().to_string();
        let options = ["ro", "rbind"].map(str::to_owned).to_vec();
        Mount { kind: "bind".into(), source, target: String::new(), options }
    }

    /// Makes the changes of an active snapshot in a branch that was forked from the state below.
    pub(crate) fn ingest(&self, pool: &Pool, branch: &str, id: u64, base: State) -> Result<()> {
        let (dir, base_branch, view) = (self.active(id), base.branch(), self.view(base));
        let overlay = Overlay {
            base: &base_branch,
            view: &view,
            upper: &dir.join("upper"),
            work: &dir.join("work"),
            userxattr: false,
        };
        match pool.ingest(branch, overlay)?.kept {
            None => Ok(()),
            Some(kept) => {
                pool.delete(&kept)?;
                Err(Refusal::state(format!("the branch `{branch}` has changed meanwhile")))
            }
        }
    }

    /// Returns the bytes and the inodes of the changes of an active snapshot.
    pub(crate) fn usage(&self, id: u64) -> Result<(i64, i64)> {
        let dir = self.active(id).join("upper");
        usage(&dir).map_err(Refusal::at(&dir))
    }

    /// Removes the changes of an active snapshot, by its name in `active`.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        remove(&self.root.join("active").join(name))
    }

    /// Returns the names of what is in a directory of the root.
    pub(crate) fn names(&self, dir: &str) -> Result<Vec<String>> {
        let dir = self.root.join(dir);
        let names = fs::read_dir(&dir).and_then(|entries| {
            entries.map(|it| Ok(it?.file_name().to_string_lossy().into_owned())).collect()
        });
        names.map_err(Refusal::at(&dir))
    }
}

/// Returns whether a directory is the root of a mount.
fn is_mounted(dir: &Path) -> io::Result<bool> {
    let above = dir.parent().unwrap_or(Path::new("/"));
    Ok(fs::metadata(dir)?.dev() != fs::metadata(above)?.dev())
}

fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(Refusal::at(path))
}

fn usage(dir: &Path) -> io::Result<(i64, i64)> {
    let (mut bytes, mut inodes) = (0, 0);
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A container may remove it meanwhile.
            let Ok(stat) = entry.metadata() else { continue };
            bytes += stat.blocks() as i64 * 512;
            inodes += 1;
            if stat.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok((bytes, inodes))
}
