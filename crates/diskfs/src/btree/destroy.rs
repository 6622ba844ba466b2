//! Removal of a whole tree.

use super::{Error, Kind, Nodes, Tree};

impl<K: Kind> Tree<K> {
    /// Removes records from the end, at most `most`, and calls `removed` with each. When none is
    /// left, frees the root too and returns true: the tree no longer exists. A large tree is
    /// removed by several calls, each in a transaction of its own, and is a valid tree between
    /// them.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be had. Some records may be removed then;
    /// the end of the transaction has to undo that.
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
