//! The label of a volume.

use std::fmt;
use std::str::FromStr;

use crate::format::Damage;

/// Size of a label, in bytes.
pub const LABEL_BYTES: usize = 64;

/// The label of a volume, chosen by its owner: up to 64 bytes of text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Label(String);

/// Error of parsing a text that is no [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a label has {LABEL_BYTES} bytes at most, and none of them is zero")]
pub struct NoLabel;

impl FromStr for Label {
    type Err = NoLabel;

    fn from_str(text: &str) -> Result<Self, NoLabel> {
        let fits = text.len() <= LABEL_BYTES && !text.contains('\0');
        if fits { Ok(Self(text.into())) } else { Err(NoLabel) }
    }
}

impl Label {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn raw(&self) -> [u8; LABEL_BYTES] {
        let mut raw = [0; LABEL_BYTES];
        raw[..self.0.len()].copy_from_slice(self.0.as_bytes());
        raw
    }

    pub(super) fn decode(raw: &[u8; LABEL_BYTES]) -> Result<Self, Damage> {
        let length = raw.iter().position(|byte| *byte == 0).unwrap_or(LABEL_BYTES);
        let (text, behind) = raw.split_at(length);
        let text = str::from_utf8(text).map_err(|_| Damage::Label)?;
        let is_clean = behind.iter().all(|byte| *byte == 0);
        if is_clean { Ok(Self(text.into())) } else { Err(Damage::Label) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:?})", self.0)
    }
}
