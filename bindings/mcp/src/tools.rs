//! The tools.
//!
//! Tools on [`files`] know a tree and no branch, so they work in an image that is open here and in
//! a mount. All others are made of `vfscale` commands.

use std::sync::LazyLock;

use serde_json::Value;

use crate::output::Output;
use crate::process::Stop;
use crate::reach;
use crate::refusal::{Refusal, Result};
use crate::session::{Session, Step};
use crate::tree::Tree;
use tool::{Call, Effect, Tool};

mod branches;
mod compare;
mod files;
mod run;
mod search;
pub(crate) mod tool;
mod walk;

/// All tools, in the order in which they are listed.
pub(crate) static TABLE: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let mut table = files::tools();
    table.push(search::tool());
    table.push(run::tool());
    table.extend(compare::tools());
    table.extend(branches::tools());
    table
});

/// Returns the tool with a name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TABLE.iter().find(|tool| tool.name == name)
}

/// Makes a call of a tool on files.
///
/// # Errors
/// Errors of the call; there is no such tool.
pub(crate) fn on_tree(name: &str, arguments: &Value, tree: &dyn Tree) -> Result<Output> {
    match find(name).map(|tool| &tool.call) {
        Some(Call::Files(_, call)) => call(arguments, tree),
        _ => Err(Refusal::new(format!("`{name}` is no tool on files"))),
    }
}

/// Returns whether a server offers a tool.
pub(crate) fn is_offered(session: &Session, tool: &Tool) -> bool {
    match tool.effect {
        Effect::Reads => true,
        Effect::Runs => session.may_run(),
        Effect::Adds | Effect::Destroys => !session.is_read_only(),
    }
}

/// Makes a call of a tool.
///
/// # Errors
/// Errors of the call.
pub(crate) fn call(
    session: &Session,
    tool: &Tool,
    mut arguments: Value,
    stop: &Stop,
) -> Result<Output> {
    let done = match &tool.call {
        Call::Session(call) => call(session, &arguments, stop),
        Call::Files(check, on_tree) => {
            check(&arguments)?;
            let branch = session.named(arguments["branch"].as_str().map(str::to_owned));
            arguments["branch"] = branch.clone().into();
            let reads = tool.effect == Effect::Reads;
            let (name, arguments) = (tool.name, &arguments);
            let act = |tree: &dyn Tree| on_tree(arguments, tree);
            let call = reach::Call { tool: name, arguments, branch: &branch, reads, act: &act };
            match reads {
                true => session.image().call(call, stop),
                false => {
                    let step = Step::new(name, arguments, &branch);
                    session.audited(step, || session.image().call(call, stop))
                }
            }
        }
    };
    done.map_err(|refusal| match refusal.to_string() {
        why if why.contains("no branch \"") => refusal.and("`branch_list` lists the branches"),
        why if why.contains("branches yet") || why.contains("without branches") => {
            refusal.and("`branch_fork` does that")
        }
        _ => refusal,
    })
}

#[cfg(test)]
mod tests;
