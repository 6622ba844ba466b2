//! Taking a whole tree away.

use super::{Error, Kind, Nodes, Tree};

impl<K: Kind> Tree<K> {
    /// Removes records from the end, at most `most`, and tells each to `removed`. When none is left
    /// it frees the root too, and says so: then there is no tree any more. So a large tree is taken
    /// away by several calls, each in a transaction of its own, and is a tree between them.
    ///
    /// # Errors
    /// [`Error`]; some records may be removed then, which the end of the transaction has to undo.
    pub fn destroy<N: Nodes>(
        &self,
        nodes: &mut N,
        most: usize,
        mut removed: impl FnMut(super::Record<K>),
    ) -> Result<bool, Error<N::Error>> {
        for _ in 0..most {
            let Some(last) = self.last(nodes)? else {
                let root = nodes.freeable(self.root(), &self.expected())?;
                nodes.free(root);
                return Ok(true);
            };
            self.remove(nodes, last.key)?;
            removed(last);
        }
        Ok(false)
    }
}
