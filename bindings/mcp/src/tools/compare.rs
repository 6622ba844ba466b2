//! Tools that compare and merge branches.

use std::io::Read;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool::{Effect, Told, Tool, checked_path, in_range, on_session, shown, when_free};
use crate::changes::{Changes, Differences, between};
use crate::command::{arguments, option};
use crate::output::Output;
use crate::process::Stop;
use crate::refusal::Result;
use crate::session::{Session, Step};

/// The most differences of an answer.
const DIFFERENCES_MAX: u64 = 1000;
/// The most bytes of a patch.
const PATCH_BYTES: u64 = 1 << 20;

/// Returns the tools.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        on_session::<DiffArgs, DiffResult>(
            [
                "diff",
                "Compare branches",
                "Show what differs from branch or checkpoint A to B: files, or a patch of their lines",
            ],
            Effect::Reads,
            diff,
        ),
        on_session::<MergeArgs, MergeResult>(
            [
                "merge",
                "Merge a branch",
                "Make in branch `into` what branch `from` has changed since both had the same files; conflicts are listed, and `strategy` decides them",
            ],
            Effect::Destroys,
            merge,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiffArgs {
    /// Branch or checkpoint; default: the server's branch
    a: Option<String>,
    /// Branch or checkpoint that A is compared with
    b: String,
    /// Compare B with the last state that both had in common: what B has changed
    #[serde(default)]
    base: bool,
    /// Only files at or below these paths
    #[serde(default)]
    #[schemars(length(max = 100))]
    paths: Vec<String>,
    /// Show the lines that differ, as a patch
    #[serde(default)]
    patch: bool,
    /// Most files of the answer
    #[serde(default = "limit")]
    #[schemars(range(min = 1, max = 1000))]
    limit: u64,
    /// Most bytes of the patch
    #[serde(default = "patch_bytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    patch_bytes: u64,
}

fn limit() -> u64 {
    200
}

fn patch_bytes() -> u64 {
    64 << 10
}

#[derive(Serialize, JsonSchema)]
struct DiffResult {
    a: String,
    b: String,
    #[serde(flatten)]
    differences: Differences,
    /// For `git apply` and `patch -p1`
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// Whether the patch has an end that is left out
    is_patch_cut: bool,
}

impl Told for DiffResult {
    fn text(&self) -> String {
        let mut text = match self.differences.total {
            0 => format!("{} and {} do not differ", self.a, self.b),
            _ => self.differences.text(),
        };
        if let Some(patch) = &self.patch {
            text += &format!("\n\n{patch}");
        }
        if self.is_patch_cut {
            text += "\n[the patch is longer; name `paths`, or raise `patch_bytes`]";
        }
        text
    }
}

fn diff(args: DiffArgs, session: &Session, _: &Value, _: &Stop) -> Result<Output> {
    let limit = in_range("limit", args.limit, 1, DIFFERENCES_MAX)?;
    in_range("patch_bytes", args.patch_bytes, 1, PATCH_BYTES)?;
    let paths = args.paths.iter().map(|path| Ok(shown(&checked_path(path)?)));
    let paths = paths.collect::<Result<Vec<String>>>()?;
    let (a, b) = (session.named(args.a), args.b);
    let image = session.image();
    let differences = between(image, [&a, &b], args.base, &paths, limit)?;
    let (mut patch, mut is_patch_cut) = (None, false);
    if args.patch && differences.total > 0 {
        let mut options = vec!["--patch".into()];
        options.extend(args.base.then(|| "--base".into()));
        let words = [&a, &b].into_iter().chain(&paths).map(String::as_str);
        let arguments = arguments(&["diff"], options, &image.path, words);
        let mut bytes = image.vfscale.read(arguments, &[0, 1], |out| {
            let mut bytes = Vec::new();
            out.take(args.patch_bytes + 1).read_to_end(&mut bytes).map(|_| bytes)
        })?;
        is_patch_cut = bytes.len() as u64 > args.patch_bytes;
        bytes.truncate(args.patch_bytes as usize);
        patch = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    DiffResult { a, b, differences, patch, is_patch_cut }.output()
}

/// The way to decide about what both branches have changed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Strategy {
    #[default]
    Both,
    Ours,
    Theirs,
    Fail,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MergeArgs {
    /// Branch or checkpoint whose changes are taken
    from: String,
    /// Branch that takes them; default: the server's branch
    into: Option<String>,
    /// Decision about what both have changed: `both` keeps the file of `into` and puts that of
    /// `from` beside it, `ours` takes that of `into`, `theirs` that of `from`, `fail` nothing
    #[serde(default)]
    strategy: Strategy,
    /// Only tell what would be done
    #[serde(default)]
    dry_run: bool,
}

/// A change that both branches have made in different ways.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Conflict {
    /// The file in the result
    path: String,
    /// `content`, `attributes`, `extended attributes`, `removed`, `renamed`, `name` or `loop`
    kind: String,
    /// The file beside it that has what `from` has
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<String>,
}

/// The result of a merge, as the command prints it.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Merged {
    /// Files and directories that the branch has got
    added: u64,
    /// Names that went with nothing in their place
    removed: u64,
    /// Names that its files have got
    moved: u64,
    /// Files whose contents or attributes changed
    changed: u64,
    /// Files of them that were merged by lines
    texts: u64,
    /// Whether the branch was changed
    done: bool,
    #[serde(default)]
    conflicts: Vec<Conflict>,
}

#[derive(Serialize, JsonSchema)]
struct MergeResult {
    #[serde(flatten)]
    merged: Merged,
    /// Changes of the branch; absent of a dry run
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

impl Told for Merged {
    fn text(&self) -> String {
        let Self { added, removed, moved, changed, texts, done, conflicts } = self;
        let done = if *done { "merged" } else { "nothing was changed" };
        let mut text = format!(
            "{done}: {added} added, {removed} removed, {moved} moved, {changed} changed, {texts} of \
             them by lines, {} conflicts",
            conflicts.len()
        );
        for Conflict { path, kind, beside } in conflicts {
            text += &format!("\nconflict {path} ({kind})");
            if let Some(beside) = beside {
                text += &format!("; {beside} has the other side");
            }
        }
        text
    }
}

fn merge(args: MergeArgs, session: &Session, arguments: &Value, stop: &Stop) -> Result<Output> {
    let into = session.named(args.into);
    let strategy = match args.strategy {
        Strategy::Both => "both",
        Strategy::Ours => "ours",
        Strategy::Theirs => "theirs",
        Strategy::Fail => "fail",
    };
    let mut options = vec!["--json".into(), option("into", &into), option("strategy", strategy)];
    options.extend(args.dry_run.then(|| "--dry-run".into()));
    let image = session.image();
    let words = self::arguments(&["merge"], options, &image.path, [args.from.as_str()]);
    let merge = || image.vfscale.json::<Merged, _>(&words, &[0, 1])?.output();
    if args.dry_run {
        return merge();
    }
    session.audited(Step::new("merge", arguments, &into), || when_free(stop, merge))
}
