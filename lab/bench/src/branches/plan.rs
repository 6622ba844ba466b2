//! The plan of a run, and one row of its results.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Fault, Result};
use crate::base::stats;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Branching {
    /// The image, which must not exist yet; `None` for a device in memory. A volume without
    /// branches is made beside it, in an image with `.plain` behind its name.
    pub image: Option<PathBuf>,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Number of files in the volume, a thousand in each directory.
    pub files: u64,
    /// Number of forks of the volume while it is closed; other measurements make fewer.
    pub forks: u64,
    /// Number of generations of the deepest branch.
    pub depth: u64,
    /// Number of branches that are opened, changed and closed to take their space.
    pub changed: u64,
    /// Number of branches that are open at once to take their memory.
    pub open: u64,
}

impl Branching {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Usage(what));
        match self {
            Self { files: 0, .. } => wrong("--files 0: must be at least 1".to_owned()),
            Self { forks: 0, .. } => wrong("--forks 0: must be at least 1".to_owned()),
            Self { depth: 0, .. } => wrong("--depth 0: must be at least 1".to_owned()),
            _ => match self.image.iter().chain(&self.plain()).find(|image| image.exists()) {
                Some(image) => wrong(format!(
                    "{} exists already; name a new image, which is made for the run",
                    image.display()
                )),
                None => Ok(()),
            },
        }
    }

    /// Returns the image of the volume without branches.
    pub(super) fn plain(&self) -> Option<PathBuf> {
        self.image.as_ref().map(|image| {
            let mut name = image.clone().into_os_string();
            name.push(".plain");
            name.into()
        })
    }
}

/// The results of one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchRow {
    /// The measurement, in words.
    pub name: String,
    /// The unit of the figures, such as `us`.
    pub unit: String,
    /// Number of figures.
    pub count: usize,
    /// Their median.
    pub median: f64,
    /// The figure that 99 % don't exceed.
    pub p99: f64,
    /// The largest figure.
    pub max: f64,
}

impl BranchRow {
    pub(super) fn of(name: impl Into<String>, unit: &str, figures: &[f64]) -> BranchRow {
        BranchRow {
            name: name.into(),
            unit: unit.to_owned(),
            count: figures.len(),
            median: stats::median(figures),
            p99: stats::quantile(figures, 0.99),
            max: stats::quantile(figures, 1.0),
        }
    }
}

/// Turns an error of the library into a fault that names it.
pub(super) fn said(error: impl std::fmt::Display) -> Fault {
    Fault::wrong(error.to_string())
}
