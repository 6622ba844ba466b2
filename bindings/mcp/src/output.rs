//! Results of calls.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Output {
    /// An object, as the tool's schema says.
    pub(crate) structured: Value,
    /// All of it for a reader.
    pub(crate) text: String,
}
