//! The choice of what a volume does about errors.

use std::fmt;
use std::str::FromStr;

/// The behaviour of a volume that finds damage, or whose log fails (`errors=` of ext4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The volume becomes read-only: changes fail with `EROFS`.
    RemountRo,
    /// Changes fail with `EIO`.
    #[default]
    Shutdown,
}

/// The error for a text that is no [`OnError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not what a volume can do about errors: `remount-ro` or `shutdown`")]
pub struct OnErrorError(String);

impl FromStr for OnError {
    type Err = OnErrorError;

    fn from_str(text: &str) -> Result<Self, OnErrorError> {
        match text {
            "remount-ro" => Ok(Self::RemountRo),
            "shutdown" => Ok(Self::Shutdown),
            _ => Err(OnErrorError(text.to_owned())),
        }
    }
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemountRo => "remount-ro",
            Self::Shutdown => "shutdown",
        })
    }
}
