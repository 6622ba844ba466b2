//! The tool that runs commands.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool::{Effect, Told, Tool, checked_path, in_range, on_session};
use crate::changes::Changes;
use crate::command::{option, reason};
use crate::output::Output;
use crate::process::{End, Kept, Limits, Stop, finish};
use crate::refusal::{Refusal, Result};
use crate::session::{Session, Step};

/// The longest time of a command, in seconds.
const SECONDS_MAX: u64 = 3600;
/// The most bytes of each output.
const OUTPUT_MAX: u64 = 1 << 20;
/// The first output of the shell: without it, the branch was not mounted.
const BEGUN: &str = "\u{1}\n";

/// Returns the tool.
pub(super) fn tool() -> Tool {
    on_session::<RunArgs, RunResult>(
        [
            "run",
            "Run a command",
            "Run a shell command in a mount of a branch, with a time limit; other files of the machine are not protected from it",
        ],
        Effect::Runs,
        run,
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunArgs {
    /// Branch; default: the server's branch
    branch: Option<String>,
    /// Command line for `/bin/sh`
    command: String,
    /// Working directory, from the root of the branch
    #[serde(default = "super::files::root")]
    directory: String,
    /// Time after which the command is ended
    #[serde(default = "seconds")]
    #[schemars(range(min = 1, max = 3600))]
    timeout_seconds: u64,
    /// Most bytes of each output; its middle is left out if it is longer
    #[serde(default = "output_bytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    output_bytes: u64,
    /// Run in a copy of the branch, and drop all changes of files
    #[serde(default)]
    discard: bool,
}

fn seconds() -> u64 {
    120
}

fn output_bytes() -> u64 {
    16 << 10
}

/// An end of a command.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Ended {
    Itself,
    TimedOut,
    Cancelled,
}

#[derive(Serialize, JsonSchema)]
struct Ran {
    branch: String,
    /// Exit status; 128 plus the number of the signal that ended the command
    status: i32,
    /// `itself`, or the time was over, or the call was cancelled
    ended: Ended,
    stdout: String,
    stderr: String,
    /// Bytes that are left out of both outputs
    omitted_bytes: u64,
    seconds: f64,
}

#[derive(Serialize, JsonSchema)]
struct RunResult {
    #[serde(flatten)]
    ran: Ran,
    /// Changes of the branch; absent with `discard`
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

impl Told for Ran {
    fn text(&self) -> String {
        let mut text = match self.ended {
            Ended::Itself => format!("status {}", self.status),
            Ended::TimedOut => format!("ended after {:.0} s: the time was over", self.seconds),
            Ended::Cancelled => "ended: the call was cancelled".to_owned(),
        };
        for (name, output) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !output.is_empty() {
                text += &format!("\n--- {name}\n{}", output.trim_end_matches('\n'));
            }
        }
        text
    }
}

fn run(args: RunArgs, session: &Session, arguments: &Value, stop: &Stop) -> Result<Output> {
    let directory = checked_path(&args.directory)?;
    let seconds = in_range("timeout_seconds", args.timeout_seconds, 1, SECONDS_MAX)?;
    let bytes = in_range("output_bytes", args.output_bytes, 1, OUTPUT_MAX)?;
    let branch = session.named(args.branch);
    session.exists(&branch)?;
    let image = session.image();
    let mut command = image.vfscale.command();
    command.arg("run").arg(option("branch", &branch));
    if args.discard {
        command.arg("--discard");
    }
    command.arg(&image.path).args(["--", "/bin/sh", "-c"]);
    // The path is one below the working directory, the root of the branch.
    command.arg("printf '\\001\\n'; cd \"./$1\" || exit; shift; exec /bin/sh -c \"$1\"");
    command.arg("sh").arg(&directory).arg(&args.command);
    let limits = Limits { time: Duration::from_secs(seconds as u64), bytes: bytes + BEGUN.len() };
    let act = || {
        let done = finish(command, None, limits, stop);
        let mut done = done.map_err(|e| Refusal::new(format!("cannot run the command: {e}")))?;
        if !done.stdout.strip_prefix(BEGUN.as_bytes()) && done.end == End::Itself {
            return Err(Refusal::new(reason(&done.stderr.text(), done.status)));
        }
        let omitted = [&done.stdout, &done.stderr].map(Kept::omitted).iter().sum();
        let ended = match done.end {
            End::Itself => Ended::Itself,
            End::Late => Ended::TimedOut,
            End::Stopped => Ended::Cancelled,
        };
        let (stdout, stderr) = (done.stdout.text(), done.stderr.text());
        let (status, seconds) = (done.code(), done.took.as_secs_f64());
        Ran {
            branch: branch.clone(),
            status,
            ended,
            stdout,
            stderr,
            omitted_bytes: omitted,
            seconds,
        }
        .output()
    };
    let step = Step::new("run", arguments, &branch);
    if args.discard { session.recorded(step, act) } else { session.audited(step, act) }
}
