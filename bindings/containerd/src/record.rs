//! Snapshots as they are written down: a file of JSON for each, which a rename replaces.
//!
//! A record is the last thing that a call writes, and the first that one removes. So a crash leaves
//! files and branches that no record names, which the next start removes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::api::{Info, Kind};
use crate::refusal::{Refusal, Result};

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its number, in the names of its branch and of its directories.
    pub(crate) id: u64,
    pub(crate) name: String,
    /// Empty if it has none.
    pub(crate) parent: String,
    pub(crate) kind: Kind,
    pub(crate) labels: BTreeMap<String, String>,
    /// Since 1970.
    pub(crate) created: Duration,
    pub(crate) updated: Duration,
    /// The state that is below the changes of an active one, and that a view shows.
    pub(crate) base: State,
    /// Bytes and inodes of the changes of a committed one.
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

/// A state that does not change: a read-only branch of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The empty tree.
    Empty,
    /// The contents of the committed snapshot with a number.
    Snapshot(u64),
    /// The contents that another active snapshot had when the one with a number was made.
    Copy(u64),
}

impl State {
    /// Returns the name of its view's file and directory.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Empty => "empty".into(),
            Self::Snapshot(id) => id.to_string(),
            Self::Copy(id) => format!("{id}-base"),
        }
    }

    /// Returns the name of the branch.
    pub(crate) fn branch(self) -> String {
        format!("{}{}", crate::snapshots::BRANCHES, self.name())
    }
}

impl Record {
    /// Returns the state that it has made, which goes with it.
    pub(crate) fn own(&self) -> Option<State> {
        match self.kind {
            Kind::Committed => Some(State::Snapshot(self.id)),
            _ => Some(self.base).filter(|base| *base == State::Copy(self.id)),
        }
    }

    /// Returns what containerd asks of it.
    pub(crate) fn info(&self) -> Info {
        let time = |since: Duration| Some((UNIX_EPOCH + since).into());
        Info {
            name: self.name.clone(),
            parent: self.parent.clone(),
            kind: self.kind.into(),
            created_at: time(self.created),
            updated_at: time(self.updated),
            labels: self.labels.clone(),
        }
    }
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The directory of the records.
#[derive(Debug)]
pub(crate) struct Records(PathBuf);

impl Records {
    /// Makes the directory if it is missing, and reads what is in it.
    ///
    /// # Errors
    /// Names a file that is no record: nothing is removed then.
    pub(crate) fn open(dir: PathBuf) -> Result<(Self, Vec<Record>)> {
        fs::create_dir_all(&dir).map_err(Refusal::at(&dir))?;
        let mut all = Vec::new();
        for entry in fs::read_dir(&dir).map_err(Refusal::at(&dir))? {
            let path = entry.map_err(Refusal::at(&dir))?.path();
            if path.extension().is_some_and(|it| it == "new") {
                fs::remove_file(&path).map_err(Refusal::at(&path))?;
                continue;
            }
            let text = fs::read(&path).map_err(Refusal::at(&path))?;
            let record = serde_json::from_slice(&text).map_err(io::Error::from);
            all.push(record.map_err(Refusal::at(&path))?);
        }
        Ok((Self(dir), all))
    }

    fn path(&self, id: u64) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    /// Writes a record; it is durable at the return.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let path = self.path(record.id);
        let new = path.with_extension("new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(record)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync(&self.0)
        });
        written.map_err(Refusal::at(&path))
    }

    /// Removes a record; that is durable at the return.
    pub(crate) fn remove(&self, id: u64) -> Result<()> {
        let path = self.path(id);
        let removed = fs::remove_file(&path).and_then(|()| sync(&self.0));
        removed.map_err(Refusal::at(&path))
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
