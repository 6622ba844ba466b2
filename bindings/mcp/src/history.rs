//! Branches and their history, as commands print them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A branch, as the command lists it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Branch {
    pub(crate) name: String,
    /// Branch that it comes from
    pub(crate) parent: Option<String>,
    /// Bytes that deleting it frees, at most
    pub(crate) own: u64,
    /// When it was made, in universal time
    pub(crate) made: Option<String>,
    /// Text of a checkpoint
    pub(crate) text: String,
    /// Whether it can only be read
    pub(crate) read_only: bool,
    /// Directories at which it is mounted
    pub(crate) mounted: Vec<String>,
}

impl Branch {
    /// Returns the only branch of an image without branches.
    pub(crate) fn main() -> Branch {
        Branch {
            name: vfscale::pool::MAIN.to_owned(),
            parent: None,
            own: 0,
            made: None,
            text: String::new(),
            read_only: false,
            mounted: Vec::new(),
        }
    }
}

/// A state that was merged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Merge {
    #[serde(default)]
    node: Option<u64>,
    #[serde(default)]
    branch: Option<String>,
}

/// A state in the history of a branch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    /// Number of the state
    pub(crate) node: u64,
    /// Number of the state before it
    pub(crate) parent: Option<u64>,
    /// `now`, `fork`, `checkpoint`, `merge`, `merged` (into another branch) or `adoption`
    pub(crate) kind: String,
    /// When that was, in universal time
    pub(crate) time: Option<String>,
    pub(crate) text: String,
    /// Branches and checkpoints that have this state or were forked from it
    #[serde(default)]
    pub(crate) branches: Vec<String>,
    /// States that were merged into it
    #[serde(default)]
    pub(crate) merges: Vec<Merge>,
}
