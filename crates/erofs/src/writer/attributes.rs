//! Extended attributes: those that repeat are stored once.

use std::collections::HashMap;

use zerocopy::IntoBytes;

use super::output::Output;
use crate::Attribute;
use crate::error::Error;
use crate::format::{ATTRIBUTES_MAX, NAME_MAX, RawAttribute, RawAttributes, SHARED_MAX, split};

/// The most bytes of attributes that are remembered.
const REMEMBERED: usize = 4 << 20;
/// From this size on an attribute stands by itself, so that contents fit behind the inode.
const LARGE: usize = 512;
/// The size that an entry of the table has beside its bytes.
const ENTRY: usize = 64;

/// The attributes that were seen, by their bytes, each with its number if it is shared. What does
/// not fit is not shared.
#[derive(Default)]
pub(super) struct Shared {
    known: HashMap<Vec<u8>, Option<u32>>,
    bytes: usize,
}

impl Shared {
    /// Returns the bytes that stand behind an inode with these attributes.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Attributes`] and errors of the file.
    pub(super) fn encode(
        &mut self,
        output: &mut Output<'_>,
        list: &[Attribute],
    ) -> Result<Vec<u8>, Error> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        for attribute in list {
            let bytes = encoded(attribute)?;
            let number = match shared.len() < 4 * SHARED_MAX {
                true => self.number(output, &bytes)?,
                false => None,
            };
            match number {
                Some(number) => shared.extend_from_slice(&number.to_le_bytes()[..]),
                None => own.extend_from_slice(&bytes),
            }
        }
        let count = (shared.len() / 4) as u8;
        let head = RawAttributes { filter: 0.into(), shared: count, reserved: [0; 7] };
        let all = [head.as_bytes(), &shared, &own].concat();
        if all.len() > ATTRIBUTES_MAX { Err(Error::Attributes) } else { Ok(all) }
    }

    /// Returns the number of an attribute that is shared; `None` if it is not.
    fn number(&mut self, output: &mut Output<'_>, bytes: &[u8]) -> Result<Option<u32>, Error> {
        let is_known = self.known.get(bytes);
        if let Some(Some(number)) = is_known {
            return Ok(Some(*number));
        }
        if is_known.is_none() && bytes.len() < LARGE {
            self.remember(bytes, None);
            return Ok(None);
        }
        let at = output.place(bytes.len() as u64, false);
        let number = u32::try_from(at / 4).map_err(|_| Error::TooLarge)?;
        output.write(at, bytes)?;
        self.remember(bytes, Some(number));
        Ok(Some(number))
    }

    fn remember(&mut self, bytes: &[u8], number: Option<u32>) {
        if let Some(known) = self.known.get_mut(bytes) {
            *known = number;
        } else if self.bytes + bytes.len() + ENTRY <= REMEMBERED {
            self.bytes += bytes.len() + ENTRY;
            self.known.insert(bytes.to_vec(), number);
        }
    }
}

/// Returns an attribute as it is on disk.
fn encoded((name, value): &Attribute) -> Result<Vec<u8>, Error> {
    let refused = || Error::Attribute(String::from_utf8_lossy(name).into_owned());
    let (prefix, rest) =
        split(name).filter(|(_, rest)| rest.len() <= NAME_MAX).ok_or_else(refused)?;
    let value_bytes = u16::try_from(value.len()).map_err(|_| refused())?.into();
    let head = RawAttribute { name_bytes: rest.len() as u8, prefix, value_bytes };
    let mut bytes = [head.as_bytes(), rest, value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}
