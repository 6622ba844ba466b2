//! Tools on whole branches, and on their history.

use std::ffi::OsString;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool::{Effect, Told, Tool, in_range, on_session, when_free};
use crate::changes::Changes;
use crate::command::{arguments, option};
use crate::history::{Branch, State};
use crate::output::Output;
use crate::process::Stop;
use crate::refusal::Result;
use crate::session::{Session, Step};

/// The most branches or states of an answer.
const LIST_MAX: u64 = 1000;

/// Returns the tools.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        on_session::<ListArgs, BranchList>(
            [
                "branch_list",
                "List branches",
                "List the branches of the image, and with `checkpoints` their checkpoints too",
            ],
            Effect::Reads,
            list,
        ),
        on_session::<ForkArgs, Named>(
            [
                "branch_fork",
                "Fork a branch",
                "Make a branch that begins as a copy of another one, at once and without copying data",
            ],
            Effect::Adds,
            fork,
        ),
        on_session::<RenameArgs, Named>(
            ["branch_rename", "Rename a branch", "Give a branch another name"],
            Effect::Adds,
            rename,
        ),
        on_session::<DeleteArgs, Named>(
            [
                "branch_delete",
                "Delete a branch",
                "Delete a branch or checkpoint with what only it has; this can't be undone",
            ],
            Effect::Destroys,
            delete,
        ),
        on_session::<CheckpointArgs, Named>(
            [
                "checkpoint",
                "Make a checkpoint",
                "Keep the present state of a branch under a name, BRANCH@N, to roll back to or compare with",
            ],
            Effect::Adds,
            checkpoint,
        ),
        on_session::<LogArgs, Log>(
            [
                "log",
                "Show the history",
                "Show the history of a branch, the last state first: checkpoints, forks, merges",
            ],
            Effect::Reads,
            log,
        ),
        on_session::<RollBackArgs, RolledBack>(
            [
                "roll_back",
                "Roll back a branch",
                "Give a branch the files back that it had at a checkpoint; what it has now is kept as a new checkpoint",
            ],
            Effect::Destroys,
            roll_back,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// List checkpoints as well
    #[serde(default)]
    checkpoints: bool,
    /// Most branches of the answer
    #[serde(default = "list_limit")]
    #[schemars(range(min = 1, max = 1000))]
    limit: u64,
    /// `next_cursor` of the answer before
    #[serde(default)]
    cursor: u64,
}

fn list_limit() -> u64 {
    100
}

#[derive(Serialize, JsonSchema)]
struct BranchList {
    branches: Vec<Branch>,
    /// Number of all branches
    total: u64,
    /// `cursor` of the next call; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
}

impl Told for BranchList {
    fn text(&self) -> String {
        let line = |branch: &Branch| {
            let Branch { name, parent, own, text, read_only, mounted, .. } = branch;
            let mut line = format!("{name}: {} KiB of its own", own >> 10);
            if let Some(parent) = parent {
                line += &format!(", from {parent}");
            }
            if *read_only {
                line += ", read-only";
            }
            for dir in mounted {
                line += &format!(", mounted at {dir}");
            }
            if !text.is_empty() {
                line += &format!(": {text}");
            }
            line
        };
        let mut lines: Vec<String> = self.branches.iter().map(line).collect();
        if let Some(cursor) = self.next_cursor {
            lines.push(format!("[{} in all; go on with cursor {cursor}]", self.total));
        }
        lines.join("\n")
    }
}

fn list(args: ListArgs, session: &Session, _: &Value, _: &Stop) -> Result<Output> {
    let limit = in_range("limit", args.limit, 1, LIST_MAX)?;
    let all = session.branches(args.checkpoints)?;
    let total = all.len() as u64;
    let from = usize::try_from(args.cursor).unwrap_or(usize::MAX);
    let branches: Vec<Branch> = all.into_iter().skip(from).take(limit).collect();
    let next = args.cursor.saturating_add(branches.len() as u64);
    let next_cursor = (!branches.is_empty() && next < total).then_some(next);
    BranchList { branches, total, next_cursor }.output()
}

/// The branch that a call has made or changed.
#[derive(Serialize, JsonSchema)]
struct Named {
    /// The branch or checkpoint
    name: String,
    /// Words for the change
    done: String,
}

impl Told for Named {
    fn text(&self) -> String {
        format!("{} {}", self.name, self.done)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkArgs {
    /// Name of the new branch
    name: String,
    /// Branch or checkpoint that it is a copy of; default: the server's branch
    from: Option<String>,
}

fn fork(args: ForkArgs, session: &Session, arguments: &Value, _: &Stop) -> Result<Output> {
    let (name, from) = (args.name, session.named(args.from));
    session.recorded(Step::new("branch_fork", arguments, &from), || {
        run(session, &["branch", "create"], vec![option("from", &from)], &[&name])?;
        session.has_forked(&name);
        Named { done: format!("is a fork of {from}"), name }.output()
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RenameArgs {
    /// Branch that gets another name
    name: String,
    /// New name
    to: String,
}

fn rename(args: RenameArgs, session: &Session, arguments: &Value, stop: &Stop) -> Result<Output> {
    let RenameArgs { name, to } = args;
    session.recorded(Step::new("branch_rename", arguments, &name), || {
        session.not_own(&name, "renamed")?;
        let words = [&*name, &to];
        when_free(stop, || run(session, &["branch", "rename"], Vec::new(), &words))?;
        session.has_forked(&to);
        Named { done: format!("was {name}"), name: to }.output()
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteArgs {
    /// Branch or checkpoint
    name: String,
}

fn delete(args: DeleteArgs, session: &Session, arguments: &Value, stop: &Stop) -> Result<Output> {
    let name = args.name;
    session.recorded(Step::new("branch_delete", arguments, &name), || {
        session.not_own(&name, "deleted")?;
        when_free(stop, || run(session, &["branch", "delete"], Vec::new(), &[&name]))?;
        Named { done: "is deleted".to_owned(), name: name.clone() }.output()
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckpointArgs {
    /// Branch; default: the server's branch
    branch: Option<String>,
    /// A line that says what the checkpoint is of
    #[serde(default)]
    text: String,
}

fn checkpoint(
    args: CheckpointArgs,
    session: &Session,
    arguments: &Value,
    _: &Stop,
) -> Result<Output> {
    let branch = session.named(args.branch);
    session.recorded(Step::new("checkpoint", arguments, &branch), || {
        let name = session.checkpoint(&branch, &args.text)?;
        Named { done: format!("has the present state of {branch}"), name }.output()
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogArgs {
    /// Branch or checkpoint; default: the server's branch
    branch: Option<String>,
    /// Most states of the answer
    #[serde(default = "log_limit")]
    #[schemars(range(min = 1, max = 1000))]
    limit: u64,
}

fn log_limit() -> u64 {
    50
}

#[derive(Serialize, JsonSchema)]
struct Log {
    branch: String,
    states: Vec<State>,
    /// Number of older states that are left out
    omitted: u64,
}

impl Told for Log {
    fn text(&self) -> String {
        let line = |state: &State| {
            let State { node, kind, time, text, branches, .. } = state;
            let mut line = format!("{node:>6} {kind}");
            if let Some(time) = time {
                line += &format!(" {time}");
            }
            if !text.is_empty() {
                line += &format!(": {text}");
            }
            if !branches.is_empty() {
                line += &format!(" ({})", branches.join(", "));
            }
            line
        };
        let mut lines: Vec<String> = self.states.iter().map(line).collect();
        if self.omitted > 0 {
            lines.push(format!("[{} older states; raise `limit`]", self.omitted));
        }
        lines.join("\n")
    }
}

fn log(args: LogArgs, session: &Session, _: &Value, _: &Stop) -> Result<Output> {
    let limit = in_range("limit", args.limit, 1, LIST_MAX)?;
    let branch = session.named(args.branch);
    let mut states = session.history(&branch)?;
    let omitted = states.len().saturating_sub(limit) as u64;
    states.truncate(limit);
    Log { branch, states, omitted }.output()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RollBackArgs {
    /// Branch that is changed; default: the server's branch
    branch: Option<String>,
    /// Checkpoint whose files it gets, as `BRANCH@1`
    to: String,
}

/// Result of a roll back: what has changed, and the checkpoint that has what was there.
#[derive(Serialize, JsonSchema)]
struct RolledBack {
    branch: String,
    to: String,
    /// Changes of the branch; `checkpoint` has what it had before
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

impl Told for RolledBack {
    fn text(&self) -> String {
        format!("{} has the files of {}", self.branch, self.to)
    }
}

fn roll_back(
    args: RollBackArgs,
    session: &Session,
    arguments: &Value,
    stop: &Stop,
) -> Result<Output> {
    let (branch, to) = (session.named(args.branch), args.to);
    // The state before has to stay: the only branch that has it would be deleted.
    let step = Step::new("roll_back", arguments, &branch).that_keeps();
    session.audited(step, || {
        let options = || vec![option("to", &to)];
        when_free(stop, || run(session, &["branch", "rollback"], options(), &[&branch]))?;
        RolledBack { branch: branch.clone(), to, changes: None }.output()
    })
}

/// Runs a command on branches.
fn run(session: &Session, command: &[&str], options: Vec<OsString>, words: &[&str]) -> Result<()> {
    let image = session.image();
    let arguments = arguments(command, options, &image.path, words.iter().copied());
    image.vfscale.text(arguments).map(drop)
}
