//! The rights of a call, and the states of its branch before and after it.
//!
//! # Locks
//!
//! Calls that change the files of a branch come one after the other, so that each sees its own
//! changes only. Others wait for nothing: a branch may be read and forked while a command runs in
//! it. The locks of the maps are leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use vfscale::pool::MAIN;

use crate::audit::{Audit, Record};
use crate::changes::{CHANGES_SHOWN, Changes, between};
use crate::command::{Vfscale, arguments, option};
use crate::history::{Branch, State};
use crate::output::Output;
use crate::reach::Image;
use crate::refusal::{Refusal, Result};

/// The most characters of the text of a checkpoint.
const TEXT_CHARS: usize = 200;

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) image: PathBuf,
    pub(crate) read_only: bool,
    /// The only branch that may be changed, with those that are forked from it.
    pub(crate) branch: Option<String>,
    pub(crate) runs: bool,
    pub(crate) audit: Option<PathBuf>,
    pub(crate) checkpoint_each: bool,
}

/// A server, and its image.
#[derive(Debug)]
pub(crate) struct Session {
    options: Options,
    image: Image,
    pub(crate) audit: Audit,
    /// The branches that this server has made.
    forked: Mutex<BTreeSet<String>>,
    /// A lock for each branch that was changed.
    changing: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    pub(crate) ending: Arc<AtomicBool>,
}

/// A call that can change something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'s> {
    tool: &'s str,
    arguments: &'s Value,
    branch: &'s str,
    /// Whether the state before it stays, as a checkpoint.
    keeps: bool,
}

impl<'s> Step<'s> {
    /// Makes the step of a call that changes a branch.
    pub(crate) fn new(tool: &'s str, arguments: &'s Value, branch: &'s str) -> Step<'s> {
        Step { tool, arguments, branch, keeps: false }
    }

    /// Keeps the state before the step.
    pub(crate) fn that_keeps(self) -> Step<'s> {
        Step { keeps: true, ..self }
    }
}

impl Session {
    /// Begins a session on an image.
    ///
    /// # Errors
    /// There is no `vfscale`, no such image or branch; the audit file can't be opened.
    pub(crate) fn new(options: Options) -> Result<Session> {
        let vfscale = Vfscale::find()?;
        // Commands may start elsewhere. Images of Ceph RBD are no files.
        let path = options.image.canonicalize().unwrap_or_else(|_| options.image.clone());
        let session = Session {
            image: Image::new(path, vfscale),
            audit: Audit::new(options.audit.as_deref())?,
            forked: Mutex::default(),
            changing: Mutex::default(),
            ending: Arc::default(),
            options,
        };
        let found = session.exists(&session.named(None));
        found.map_err(|refusal| match refusal.to_string().contains("No such file") {
            true => refusal.and("`vfscale mkfs` makes an image"),
            false => refusal,
        })?;
        Ok(session)
    }

    /// Returns the image.
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// Ends the commands that run.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Returns whether commands may be run.
    pub(crate) fn may_run(&self) -> bool {
        self.options.runs && !self.options.read_only
    }

    /// Returns whether this server only reads.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Returns a branch that a call names, or that of the server.
    pub(crate) fn named(&self, branch: Option<String>) -> String {
        branch.or_else(|| self.options.branch.clone()).unwrap_or_else(|| MAIN.to_owned())
    }

    /// Returns sentences about the branch of this server, and about what may be changed.
    pub(crate) fn rights(&self) -> String {
        let branch = self.named(None);
        let mut words = format!("A call that names no branch is about {branch:?}.");
        if self.options.read_only {
            words += " This server only reads.";
        } else if self.options.branch.is_some() {
            words += " Only that branch and forks of it can be changed.";
        }
        words
    }

    /// Makes a call that can change the files of a branch, and adds to its result what it has
    /// changed. The state before it stays, as a checkpoint, if the call has failed after a change,
    /// or the user or the step wants that.
    ///
    /// # Errors
    /// Errors of the call; the branch may not be changed, or can't be compared.
    pub(crate) fn audited(
        &self,
        step: Step<'_>,
        act: impl FnOnce() -> Result<Output>,
    ) -> Result<Output> {
        self.may_change(step.branch)?;
        let lock = self.lock_of(step.branch);
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.checkpoint(step.branch, &format!("before {}", step.tool))?;
        let outcome = act();
        let (changes, outcome) = match self.changes(step.branch, &before) {
            Ok(changes) => (changes, outcome),
            Err(unknown) => {
                let why =
                    format!("the call was made; what it has changed can't be told: {unknown}");
                let changes = Changes { checkpoint: Some(before.clone()), ..Changes::default() };
                (changes, outcome.and(Err(Refusal::new(why))))
            }
        };
        let changes = self.settled(step, changes, before, outcome.is_err());
        let error = outcome.as_ref().err();
        let (tool, branch) = (step.tool, step.branch);
        self.audit.add(&Record::new(tool, step.arguments, branch, error, Some(&changes)))?;
        match outcome {
            Ok(mut output) => {
                output.text += &format!("\n{}", changes.text());
                output.structured["changes"] = serde_json::to_value(&changes).unwrap_or_default();
                Ok(output)
            }
            Err(refusal) => Err(match &changes.checkpoint {
                Some(name) => {
                    let done = changes.differences.text();
                    refusal.and(format!("`roll_back` to {name} undoes what was done\n{done}"))
                }
                None => refusal,
            }),
        }
    }

    /// Deletes the checkpoint before a call, or adds it to what has changed.
    fn settled(&self, step: Step<'_>, changes: Changes, before: String, failed: bool) -> Changes {
        let is_changed = changes.differences.total > 0 || changes.checkpoint.is_some();
        let is_kept = is_changed && (step.keeps || self.options.checkpoint_each || failed);
        // A checkpoint that can't be deleted stays, and is told.
        if is_kept || self.forget(&before).is_err() {
            return Changes { checkpoint: Some(before), ..changes };
        }
        changes
    }

    /// Makes a call that changes branches, and no files of one.
    ///
    /// # Errors
    /// Errors of the call; the branch may not be changed.
    pub(crate) fn recorded(
        &self,
        step: Step<'_>,
        act: impl FnOnce() -> Result<Output>,
    ) -> Result<Output> {
        self.may_change(step.branch)?;
        let outcome = act();
        let error = outcome.as_ref().err();
        self.audit.add(&Record::new(step.tool, step.arguments, step.branch, error, None))?;
        outcome
    }

    fn lock_of(&self, branch: &str) -> Arc<Mutex<()>> {
        let mut locks = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(branch.to_owned()).or_default().clone()
    }

    /// Returns what has changed in a branch since a checkpoint.
    fn changes(&self, branch: &str, before: &str) -> Result<Changes> {
        let differences = between(&self.image, [before, branch], false, &[], CHANGES_SHOWN)?;
        let history = self.history(branch)?;
        let has = |state: &&State| state.branches.iter().any(|name| name == before);
        let node_before = history.iter().find(has).map(|state| state.node);
        let node_after = history.first().map(|state| state.node);
        Ok(Changes { differences, node_before, node_after, checkpoint: None })
    }

    /// Makes a checkpoint of a branch, and returns its name.
    pub(crate) fn checkpoint(&self, branch: &str, text: &str) -> Result<String> {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = text.chars().take(TEXT_CHARS).map(plain).collect();
        let options = vec![option("message", text)];
        let arguments = arguments(&["checkpoint"], options, &self.image.path, [branch]);
        Ok(self.image.vfscale.text(arguments)?.trim().to_owned())
    }

    /// Deletes a checkpoint that is of no use.
    fn forget(&self, name: &str) -> Result<()> {
        let command = ["branch", "delete"];
        let arguments = arguments(&command, Vec::new(), &self.image.path, [name]);
        self.image.vfscale.text(arguments).map(drop)
    }

    /// Lists the branches; `main` alone of an image that has none yet.
    pub(crate) fn branches(&self, checkpoints: bool) -> Result<Vec<Branch>> {
        let mut options: Vec<OsString> = vec!["--json".into()];
        options.extend(checkpoints.then(|| "--all".into()));
        let arguments = arguments(&["branch", "list"], options, &self.image.path, []);
        let mut branches: Vec<Branch> = self.image.vfscale.json(arguments, &[0])?;
        if branches.is_empty() {
            branches.push(Branch::main());
        }
        Ok(branches)
    }

    /// Returns the history of a branch, the last state first.
    pub(crate) fn history(&self, branch: &str) -> Result<Vec<State>> {
        let arguments = arguments(&["log"], vec!["--json".into()], &self.image.path, [branch]);
        self.image.vfscale.json(arguments, &[0])
    }

    /// Checks that there is a branch or checkpoint.
    pub(crate) fn exists(&self, name: &str) -> Result<()> {
        match self.branches(true)?.iter().any(|branch| branch.name == name) {
            true => Ok(()),
            false => Err(Refusal::new(format!("the image has no branch {name:?}"))),
        }
    }

    /// Notes a branch that this server has made.
    pub(crate) fn has_forked(&self, name: &str) {
        self.forked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Refuses to take the branch of the server away.
    pub(crate) fn not_own(&self, name: &str, what: &str) -> Result<()> {
        match self.options.branch.as_deref() == Some(name) {
            true => Err(Refusal::new(format!(
                "{name:?} is the branch of this server, and is not {what}"
            ))),
            false => Ok(()),
        }
    }

    /// Checks that the user of this server lets a branch be changed: all of them, or one and those
    /// that are forked from it.
    fn may_change(&self, name: &str) -> Result<()> {
        if self.options.read_only {
            return Err(Refusal::new("this server only reads: it was started with --read-only"));
        }
        let Some(own) = &self.options.branch else { return Ok(()) };
        let branches = self.branches(true)?;
        let forked = self.forked.lock().unwrap_or_else(PoisonError::into_inner);
        if is_below(own, name, &branches, &forked) {
            return Ok(());
        }
        let why = format!("this server changes branch {own:?} only, and those forked from it");
        Err(Refusal::new(why).and("`branch_fork` makes one"))
    }
}

/// Returns whether a branch or checkpoint is `own`, or comes from it. A branch is one of those that
/// this server has `forked`, or has it above itself in the list, which skips branches without
/// changes of their own.
fn is_below(own: &str, name: &str, branches: &[Branch], forked: &BTreeSet<String>) -> bool {
    let mut at = of_checkpoint(name);
    // A list that leads in a circle ends, too.
    for _ in 0..=branches.len() {
        if at == own || forked.contains(at) {
            return true;
        }
        let parent = branches.iter().find(|branch| branch.name == at);
        match parent.and_then(|branch| branch.parent.as_deref()) {
            Some(parent) => at = of_checkpoint(parent),
            None => return false,
        }
    }
    false
}

/// Returns the branch that a checkpoint is of; a branch itself.
fn of_checkpoint(name: &str) -> &str {
    name.split_once('@').map_or(name, |(branch, _)| branch)
}

#[cfg(test)]
mod tests;
