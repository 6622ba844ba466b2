//! The form of a tool, and what all tools have in common.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::handler::server::common::{schema_for_input, schema_for_output};
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::changes::Changes;
use crate::output::Output;
use crate::process::Stop;
use crate::refusal::{Refusal, Result};
use crate::session::Session;
use crate::tree::Tree;

/// Time for which a call waits for a branch that is in use.
const BUSY: Duration = Duration::from_secs(5);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of a path.
const PATH_BYTES: usize = 4095;

/// The effect of a tool on the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// Something is added, and nothing lost.
    Adds,
    /// Something may be gone afterwards.
    Destroys,
    /// All that a command does, also outside of the image.
    Runs,
}

/// A result that can be told to a reader.
pub(crate) trait Told: Serialize + JsonSchema + 'static {
    /// Returns all that is in it as text.
    fn text(&self) -> String;

    /// Returns the output of a call.
    fn output(&self) -> Result<Output> {
        let structured = serde_json::to_value(self);
        let structured = structured.map_err(|e| Refusal::new(format!("no result: {e}")))?;
        Ok(Output { structured, text: self.text() })
    }
}

/// The result of a call that can change files.
#[derive(Serialize, JsonSchema)]
struct Changed<R> {
    #[serde(flatten)]
    result: R,
    /// The changes of this call in the branch
    changes: Changes,
}

type OnTree = Box<dyn Fn(&Value, &dyn Tree) -> Result<Output> + Send + Sync>;
type OnSession = Box<dyn Fn(&Session, &Value, &Stop) -> Result<Output> + Send + Sync>;

/// The way to make a call of a tool.
pub(crate) enum Call {
    /// On the files of a branch. The first function only checks the arguments.
    Files(fn(&Value) -> Result<()>, OnTree),
    /// By commands.
    Session(OnSession),
}

/// A tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) effect: Effect,
    pub(crate) input: Arc<JsonObject>,
    pub(crate) output: Arc<JsonObject>,
    pub(crate) call: Call,
}

impl Tool {
    /// Returns what clients may show of the effect.
    pub(crate) fn annotations(&self) -> ToolAnnotations {
        let hints = ToolAnnotations::with_title(self.title)
            .read_only(self.effect == Effect::Reads)
            .open_world(self.effect == Effect::Runs);
        match self.effect {
            Effect::Reads => hints,
            effect => hints.destructive(effect != Effect::Adds),
        }
    }
}

/// The words of a tool: name, title, description.
type Words = [&'static str; 3];

/// Makes a tool on the files of a branch.
pub(super) fn on_files<A, R>(
    words: Words,
    effect: Effect,
    call: fn(A, &dyn Tree) -> Result<R>,
) -> Tool
where
    A: DeserializeOwned + JsonSchema + 'static,
    R: Told,
{
    let on_tree: OnTree = Box::new(move |arguments, tree| call(parsed(arguments)?, tree)?.output());
    let check = |arguments: &Value| parsed::<A>(arguments).map(drop);
    let output = match effect {
        Effect::Reads => schema_for_output::<R>(),
        _ => schema_for_output::<Changed<R>>(),
    };
    tool::<A>(words, effect, output, Call::Files(check, on_tree))
}

/// Makes a tool of commands, whose result has this schema.
pub(super) fn on_session<A, R>(
    words: Words,
    effect: Effect,
    call: fn(A, &Session, &Value, &Stop) -> Result<Output>,
) -> Tool
where
    A: DeserializeOwned + JsonSchema + 'static,
    R: JsonSchema + 'static,
{
    let on_session: OnSession = Box::new(move |session, arguments, stop| {
        call(parsed(arguments)?, session, arguments, stop)
    });
    tool::<A>(words, effect, schema_for_output::<R>(), Call::Session(on_session))
}

fn tool<A: JsonSchema + 'static>(
    [name, title, description]: Words,
    effect: Effect,
    output: Arc<JsonObject>,
    call: Call,
) -> Tool {
    // All arguments are structs, so their schemas are objects; a test lists the tools.
    let input = schema_for_input::<A>().unwrap_or_default();
    Tool { name, title, description, effect, input, output, call }
}

fn parsed<A: DeserializeOwned>(arguments: &Value) -> Result<A> {
    A::deserialize(arguments).map_err(|e| Refusal::new(format!("wrong arguments: {e}")))
}

/// Returns an absolute path in the branch.
pub(super) fn checked_path(path: &str) -> Result<PathBuf> {
    let wrong = |why: &str| {
        let short: String = path.chars().take(100).collect();
        Err(Refusal::new(format!("{short:?} is no path in a branch: {why}")))
    };
    if path.is_empty() {
        return wrong("it is empty; `/` is the root directory of the branch");
    }
    if path.contains('\0') {
        return wrong("it has a zero byte");
    }
    if path.len() > PATH_BYTES {
        return wrong("it has more than 4,095 bytes");
    }
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return wrong("it has `..`; name the file from the root of the branch");
    }
    // Without `.` and doubled slashes.
    Ok(Path::new("/").join(path).components().collect())
}

/// Checks that a number is in a range.
pub(super) fn in_range(name: &str, value: u64, least: u64, most: u64) -> Result<usize> {
    match (least..=most).contains(&value) {
        true => Ok(value as usize),
        false => Err(Refusal::new(format!("`{name}` is {value}; it can be {least} to {most}"))),
    }
}

/// Does what needs a branch that nobody has mounted, and waits for a time until it is so: a call of
/// another server may use it for a moment.
pub(super) fn when_free<T>(stop: &Stop, act: impl Fn() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match act() {
            Err(refusal) if refusal.to_string().contains("in use") => {
                if began.elapsed() >= BUSY || stop.is_set() {
                    return Err(refusal.and("wait until the commands that run in it have ended"));
                }
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Returns a path as text. Bytes that are no UTF-8 become U+FFFD.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns a line, cut to a number of characters.
pub(super) fn cut(line: &str, chars: usize) -> String {
    match line.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
