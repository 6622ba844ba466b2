//! Names of images: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`.

use std::ffi::CString;
use std::fmt;
use std::path::Path;

use crate::Error;

/// The name of an image, or of a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pool: String,
    namespace: Option<String>,
    image: String,
    snapshot: Option<String>,
}

impl Name {
    /// Parses `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`.
    ///
    /// # Errors
    /// [`Error::Refused`] if `name` is no such name.
    pub fn parse(name: impl AsRef<Path>) -> Result<Self, Error> {
        let name = name.as_ref();
        let refused = || Error::Refused {
            device: name.to_string_lossy().into(),
            why: "this is no image: its name is rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]".into(),
        };
        let text = name.to_str().and_then(|text| text.strip_prefix("rbd:")).ok_or_else(refused)?;
        let (path, snapshot) = match text.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (text, None),
        };
        let (pool, namespace, image) = match path.split('/').collect::<Vec<_>>()[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => return Err(refused()),
        };
        let is_part = |part: &&str| !part.is_empty() && !part.contains(['/', '@', '\0']);
        if ![Some(pool), namespace, Some(image), snapshot].iter().flatten().all(is_part) {
            return Err(refused());
        }
        let owned = |part: Option<&str>| part.map(str::to_owned);
        let (namespace, snapshot) = (owned(namespace), owned(snapshot));
        Ok(Self { pool: pool.to_owned(), namespace, image: image.to_owned(), snapshot })
    }

    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(super) fn image(&self) -> &str {
        &self.image
    }

    pub(super) fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}", self.pool)?;
        self.namespace.iter().try_for_each(|namespace| write!(f, "/{namespace}"))?;
        write!(f, "/{}", self.image)?;
        self.snapshot.iter().try_for_each(|snapshot| write!(f, "@{snapshot}"))
    }
}

/// Returns a text as C has it. Ends it at a zero byte, which no valid text contains.
pub(super) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests;
