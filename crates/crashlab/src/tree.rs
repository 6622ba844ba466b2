//! The tree of a state, as the differences from the one at the beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use vfscale_fuse::recording::{Change, Object};

use crate::event::Event;
use crate::log::Log;
use crate::state::State;

/// A step that changes an object, and the part of its data that has arrived.
pub(crate) type Step = (usize, Option<(usize, usize)>);

/// The differences from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    /// The names that have changed, and what they lead to.
    pub(crate) names: BTreeMap<(Object, OsString), Option<Object>>,
    /// The steps of each object that is changed or new, in their order.
    pub(crate) steps: BTreeMap<Object, Vec<Step>>,
    /// The objects that are new: the step that made them.
    pub(crate) made: BTreeMap<Object, usize>,
}

impl Tree {
    pub(crate) fn of(log: &Log, state: &State) -> Self {
        let (names, steps, made) = Default::default();
        let mut tree = Self { names, steps, made };
        for (index, event) in log.events.iter().enumerate().take(state.cut()) {
            let Event::Change(change) = event else { continue };
            // An inode is there without its name.
            if let Change::Made { object, .. } = change {
                tree.made.insert(*object, index);
                tree.steps.entry(*object).or_default().push((index, None));
            }
            let torn = state.torn().filter(|(torn, _)| *torn == index);
            if state.has(index) || torn.is_some() {
                tree.take(log, (index, torn.map(|(_, part)| part)), change);
            }
        }
        tree.drop_unnamed();
        tree
    }

    fn take(&mut self, log: &Log, step: Step, change: &Change) {
        let mut bind = |name: &vfscale_fuse::recording::Name, object| {
            self.names.insert((name.dir, name.name.clone()), object);
        };
        match change {
            Change::Made { object, at: Some(at), .. } | Change::Linked { object, at } => {
                bind(at, Some(*object));
            }
            Change::Removed { at, .. } => bind(at, None),
            Change::Renamed { object, from, to, replaced, exchanged } => {
                bind(from, replaced.filter(|_| *exchanged));
                bind(to, Some(*object));
            }
            Change::Written { object, .. }
            | Change::Resized { object, .. }
            | Change::Allocated { object, .. }
            | Change::Attributes { object, .. }
            | Change::Xattr { object, .. } => {
                let steps = self.steps.entry(*object).or_default();
                if matches!(change, Change::Resized { size: 0, .. }) {
                    steps.retain(|(index, _)| !log.events[*index].is_about_data());
                }
                steps.push(step);
            }
            _ => {}
        }
    }

    /// Leaves out what has no name: new objects, and what is in new directories without one.
    fn drop_unnamed(&mut self) {
        loop {
            let named: BTreeSet<Object> = self.names.values().flatten().copied().collect();
            let before = self.made.len();
            let gone = |object: &Object| self.made.contains_key(object) && !named.contains(object);
            self.names.retain(|(dir, _), _| !gone(dir));
            self.steps.retain(|object, _| !gone(object));
            self.made.retain(|object, _| named.contains(object));
            if self.made.len() == before {
                return;
            }
        }
    }
}
