//! A state under other names.

use super::state::{Body, DentryId, State};

impl State {
    /// Returns the absolute form of a path, without following symbolic links.
    #[must_use]
    pub fn absolute(&self, process: u8, path: &str) -> String {
        let cwd = self.d_path(self.cwd[usize::from(process) % self.cwd.len()]);
        let whole = if path.starts_with('/') { path.into() } else { format!("{cwd}/{path}") };
        let mut components = Vec::new();
        for component in whole.split('/').filter(|c| !c.is_empty() && *c != ".") {
            if component == ".." {
                components.pop();
            } else {
                components.push(component);
            }
        }
        format!("/{}", components.join("/"))
    }

    /// Returns a copy of the state in which `new_path` has replaced the paths of all names and the
    /// targets of symbolic links.
    #[must_use]
    pub fn renamed(&self, new_path: impl Fn(&str) -> String) -> State {
        let mut state = self.clone();
        let new_name = |dentry: DentryId| {
            let path = new_path(&self.path_text(dentry));
            path.rsplit('/').next().unwrap_or_default().to_owned()
        };
        for (id, dentry) in state.dentries.iter_mut().enumerate() {
            if dentry.parent != id && !dentry.removed {
                dentry.name = new_name(id);
            }
        }
        for inode in &mut state.inodes {
            match &mut inode.body {
                Body::Directory(entries) => {
                    *entries = entries.values().map(|&entry| (new_name(entry), entry)).collect();
                }
                Body::Symlink(target) => *target = new_path(target),
                _ => {}
            }
        }
        state
    }

    /// Exchanges processes 0 and 1 if `processes` is set. Exchanges slots 0 and 1, and 8 and 9, of
    /// each process if `slots` is set.
    #[must_use]
    pub fn turned(mut self, processes: bool, slots: bool) -> State {
        if processes {
            self.slots.reverse();
            self.cwd.reverse();
        }
        if slots {
            for of_process in &mut self.slots {
                of_process.swap(0, 1);
                of_process.swap(8, 9);
            }
        }
        self
    }
}
