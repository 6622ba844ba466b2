//! The states that a power cut can leave of what a program has done to a file system.
//!
//! A [`Log`] has the changes that a program made through a mount, in their order. A [`Promise`]
//! says which of them a power cut may undo: what a kind of file system promises, not what one of
//! them happens to do. [`Lab`] finds the [states](State) that follow, [makes](Lab::build) each of
//! them in a fork of the branch that the program began with, and [tells](Lab::story) what was lost.
//!
//! This is the method of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI
//! 2014): a model of the file system instead of its code, so the answer does not depend on a clock
//! or on the load, and holds for file systems that nobody has mounted.
//!
//! # Which states
//!
//! There are too many subsets of the changes to try all. For each moment of the power cut these
//! are tried: nothing is lost; one change is lost, with all that can't be there without it; a write
//! arrives in part; everything from some change on is lost; only one change arrives. States with
//! the same tree are one. These find each fault that needs one change to be late, which are nearly
//! all that ALICE and CrashMonkey (OSDI 2018) report.
//!
//! # What is not seen
//!
//! `sync` and `syncfs`, which Linux keeps from file systems in user space; inode flags; the times
//! of directories, which are those of the making of a state.

mod build;
mod event;
mod log;
mod promise;
mod shrink;
mod state;
mod states;
mod story;
mod tree;

pub use build::BuildError;
pub use event::Event;
pub use log::{Log, Sink};
pub use promise::{ParsePromiseError, Promise};
pub use state::State;
pub use story::{Fate, Line};

use promise::History;
use vfscale::Task;

/// A log under a promise.
pub struct Lab {
    log: Log,
    promise: Promise,
    history: History,
}

impl Lab {
    /// Takes a log, to find out what a file system with this promise may lose of it.
    pub fn new(log: Log, promise: Promise) -> Self {
        let history = History::new(&log, promise);
        Self { log, promise, history }
    }

    /// Returns the log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the promise.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// Returns the different states that a power cut can leave, in the order of its moment, and of
    /// one moment those first that have lost less. Of a log of more than 150 steps a part, spread
    /// over all.
    pub fn states(&self) -> Vec<State> {
        states::all(&self.log, &self.history)
    }

    /// Returns the state after the last step, in which nothing is lost.
    pub fn whole(&self) -> State {
        State::whole(self.log.events.len())
    }

    /// Returns a state that fails as this one does, in which less is lost, and earlier. `fails`
    /// tells whether one fails, and is called 64 times at most.
    ///
    /// # Errors
    /// The errors of `fails`.
    pub fn shrink<E>(
        &self,
        state: &State,
        fails: impl FnMut(&State) -> Result<bool, E>,
    ) -> Result<State, E> {
        shrink::shrink(&self.history, state, fails)
    }

    /// Makes a state of the tree of a task, which is that with which the log begins.
    ///
    /// # Errors
    /// [`BuildError`], whose text names the step.
    pub fn build(&self, state: &State, task: &Task) -> Result<(), BuildError> {
        build::build(&tree::Tree::of(&self.log, state), &self.log, task)
    }

    /// Returns what the program had written to its standard output before the power cut.
    pub fn said(&self, state: &State) -> Vec<u8> {
        self.log.said(state.cut())
    }

    /// Tells the changes up to the power cut, from the first one on that is lost, and the one
    /// before.
    pub fn story(&self, state: &State) -> Vec<Line> {
        story::of(&self.log, state)
    }
}
