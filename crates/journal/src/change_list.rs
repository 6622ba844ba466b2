//! The items of one commit, and its log space.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::admission::ticket::Costs;
use crate::disk::checkpoint::Durable;
use crate::item::{Image, Item, LogItem, LogVector, address};

/// A callback that is called once, when its transaction's checkpoint is durable or will never be.
pub(crate) type Callback = Box<dyn FnOnce(Result<Durable>) + Send>;

/// The items of a commit, each with the contents to log.
pub(crate) type Items = SmallVec<[(Item, LogVector); 2]>;

/// The items that one commit logs, and the log space that it may use. `Send`.
pub struct ChangeList {
    /// The contents of those that were added without an image are formatted by the commit.
    pub(crate) items: Items,
    pub(crate) callbacks: Vec<Callback>,
    /// Rest of the log space, in bytes. Zero after the commit.
    pub(crate) left: u64,
    /// The order id that it follows, besides those of its items.
    pub(crate) follows: u64,
    pub(crate) costs: Costs,
}

/// The result of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is durable only once its sequence is forced"]
pub struct Committed {
    /// Checkpoint that it is in, for [`Journal::force`](crate::Journal::force); 0 if it logged
    /// nothing.
    pub sequence: u64,
    /// Its order id, for [`ChangeList::follow`]; 0 if it logged nothing.
    pub order: u64,
}

impl ChangeList {
    pub(crate) fn new(costs: Costs, left: u64) -> Self {
        Self { items: SmallVec::new(), callbacks: Vec::new(), left, follows: 0, costs }
    }

    /// Adds and pins `item`, which the caller is about to change. The caller holds it locked until
    /// after the commit. Adding it twice is harmless.
    pub fn add<I: LogItem + 'static>(&mut self, item: Arc<I>) {
        self.put(item, LogVector::new(), |_| {});
    }

    /// Adds `item` like [`add`](Self::add), with its contents after the change: an image that is
    /// what [`LogItem::format`] would share at the commit. `change` changes the item, which is
    /// pinned then.
    pub fn add_image<I: LogItem + 'static>(
        &mut self,
        item: Arc<I>,
        image: Arc<dyn Image>,
        change: impl FnOnce(&I),
    ) {
        self.put(item, LogVector::of(image), change);
    }

    fn put<I: LogItem + 'static>(
        &mut self,
        item: Arc<I>,
        vector: LogVector,
        change: impl FnOnce(&I),
    ) {
        let id = address(&item);
        if let Some((_, own)) = self.items.iter_mut().find(|(other, _)| address(other) == id) {
            *own = vector;
            change(&item);
            return;
        }
        item.state().pin();
        change(&item);
        self.items.push((item, vector));
    }

    /// Orders this commit behind the one with the [order id](Committed::order) `order`, as a common
    /// item would: a recovery replays it later, if both are in one checkpoint. The caller prevents
    /// the two from committing concurrently.
    pub fn follow(&mut self, order: u64) {
        self.follows = self.follows.max(order);
    }

    /// Takes log space for items of `bytes` bytes out of the reservation, and returns its size in
    /// bytes of log: for a delayed change, which [`Hooks::run_delayed`] logs. The caller has
    /// reserved the items, and one byte more for each call, because shares of record headers are
    /// rounded. Returns `None` if too little is left; nothing is taken then.
    ///
    /// [`Hooks::run_delayed`]: crate::Hooks::run_delayed
    #[must_use = "the space belongs to the caller now"]
    pub fn set_aside(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes + self.costs.split(bytes);
        self.left = self.left.checked_sub(bytes)?;
        Some(bytes)
    }

    /// Adds log space that other transactions have [set aside](Self::set_aside), in bytes of log:
    /// this one logs their delayed changes.
    pub fn take_over(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Registers `f`, which is called once when the transaction is durable; see
    /// [`Transaction::on_durable`](crate::Transaction::on_durable).
    pub fn on_durable(&mut self, f: impl FnOnce(Result<Durable>) + Send + 'static) {
        self.callbacks.push(Box::new(f));
    }
}

impl std::fmt::Debug for ChangeList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeList")
            .field("items", &self.items.len())
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
