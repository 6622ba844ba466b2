//! The files of a branch, wherever the image is open.
//!
//! If no other process has the image, the library opens it for one call: no mount is needed. Else
//! the call is made where the branch is mounted: `vfscale run` joins the process that has the
//! image, and starts this program there, which reads the request and prints the answer. A branch
//! that `vfscale mount` has mounted is used at its directory.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::process::{getegid, geteuid, getgroups};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vfscale::block::Error as DeviceError;
use vfscale::{Credentials, PoolError, Task, Volume, VolumeError};

use crate::command::{Vfscale, option, reason};
use crate::output::Output;
use crate::process::{End, Limits, Stop, finish};
use crate::refusal::{Refusal, Result};
use crate::tree::Tree;
use crate::tree::mounted::Mounted;

/// The size of the caches: each call reads or writes once.
const CACHE_BYTES: u64 = 64 << 20;
/// Time for which a call waits for an image that another process has open for a moment.
const BUSY: Duration = Duration::from_secs(10);
/// Time between two looks whether it still is.
const PAUSE: Duration = Duration::from_millis(5);
/// Time for a call inside a mount.
const INSIDE: Duration = Duration::from_secs(600);
/// The most bytes of an answer from inside a mount.
const ANSWER_BYTES: usize = 64 << 20;

/// A call of a tool on the files of a branch.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub(crate) tool: &'c str,
    pub(crate) arguments: &'c Value,
    pub(crate) branch: &'c str,
    /// Whether it changes nothing.
    pub(crate) reads: bool,
    /// Makes it.
    pub(crate) act: &'c dyn Fn(&dyn Tree) -> Result<Output>,
}

/// The image of a server.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) vfscale: Vfscale,
    /// Held while this process has the image open, shared by calls that only read.
    open: RwLock<()>,
}

impl Image {
    pub(crate) fn new(path: PathBuf, vfscale: Vfscale) -> Image {
        Image { path, vfscale, open: RwLock::new(()) }
    }

    /// Makes a call on the files of a branch. What it changes is durable then. Waits for its turn
    /// while other processes have the image open for a moment.
    ///
    /// # Errors
    /// Errors of the call; the image can't be opened, or is in use.
    pub(crate) fn call(&self, call: Call<'_>, stop: &Stop) -> Result<Output> {
        let began = Instant::now();
        loop {
            match self.opened(call)? {
                Ok(done) => return done,
                Err(locked) => {
                    if let Some(mounts) = self.mounts()? {
                        return self.inside(call, &mounts, stop);
                    }
                    if began.elapsed() >= BUSY || stop.is_set() {
                        return Err(Refusal::new(locked).and("try again when it has ended"));
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Makes a call by the library. Returns why not if another process has the image open.
    fn opened(&self, call: Call<'_>) -> Result<std::result::Result<Result<Output>, String>> {
        let held = (
            call.reads.then(|| self.open.read().unwrap_or_else(PoisonError::into_inner)),
            (!call.reads).then(|| self.open.write().unwrap_or_else(PoisonError::into_inner)),
        );
        let volume = match self.open(call) {
            Err(failure) if failure.is_locked => return Ok(Err(failure.why)),
            opened => opened.map_err(|failure| Refusal::new(failure.why))?,
        };
        let done = (call.act)(&task(&volume));
        let closed = volume.close();
        drop(held);
        let done = match (done, closed) {
            (Ok(_), Err(error)) => {
                Err(Refusal::new(format!("what was changed may not be durable: {error}")))
            }
            (done, _) => done,
        };
        Ok(Ok(done))
    }

    fn open(&self, call: Call<'_>) -> std::result::Result<Volume, Failure> {
        let builder = match call.branch {
            vfscale::pool::MAIN => vfscale::volume(&self.path).read_only(call.reads),
            name => vfscale::pool(&self.path).read_only(call.reads).open()?.branch(name),
        };
        Ok(builder.cache_size(CACHE_BYTES).open()?)
    }

    /// Returns where branches of the image are mounted; `None` if nowhere.
    fn mounts(&self) -> Result<Option<Vec<Mount>>> {
        let image = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let mut mounts: Vec<Mount> = self.vfscale.json(["mounts", "--json"], &[0])?;
        mounts.retain(|mount| mount.image == image && mount.state == "served");
        Ok((!mounts.is_empty()).then_some(mounts))
    }

    /// Makes a call where the branch is mounted, or mounts it for the call.
    fn inside(&self, call: Call<'_>, mounts: &[Mount], stop: &Stop) -> Result<Output> {
        let failed = |e: io::Error| Refusal::new(format!("cannot work in a mount: {e}"));
        let mut command = self.vfscale.command();
        command.arg("run").arg(option("branch", call.branch));
        if call.reads && call.branch.contains('@') {
            // Checkpoints can only be mounted so.
            command.args(["-o", "ro"]);
        }
        command.arg(&self.path).arg("--").arg(std::env::current_exe().map_err(failed)?);
        command.arg("--inside");
        let request = Request { tool: call.tool.to_owned(), arguments: call.arguments.clone() };
        let request = serde_json::to_vec(&request).map_err(|e| failed(e.into()))?;
        let limits = Limits { time: INSIDE, bytes: ANSWER_BYTES };
        let done = finish(command, Some(request), limits, stop).map_err(failed)?;
        if done.end != End::Itself {
            return Err(Refusal::new("the call was stopped before its end"));
        }
        if let Ok(answer) = serde_json::from_str::<Answer>(&done.stdout.text()) {
            return answer.into();
        }
        let is_it =
            |mount: &&Mount| mount.branch.as_deref().unwrap_or(vfscale::pool::MAIN) == call.branch;
        match mounts.iter().find(is_it) {
            Some(mount) => at_mount(&mount.directory, call.act),
            None => Err(Refusal::new(reason(&done.stderr.text(), done.status))),
        }
    }
}

/// The reason why an image was not opened.
struct Failure {
    is_locked: bool,
    why: String,
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        let is_locked = matches!(error, PoolError::Device(DeviceError::Locked { .. }));
        Failure { is_locked, why: error.to_string() }
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Failure {
        let is_locked = matches!(error, VolumeError::Device(DeviceError::Locked { .. }));
        Failure { is_locked, why: error.to_string() }
    }
}

/// Returns a task with the rights that the user of this process has in a mount.
fn task(volume: &Volume) -> Task {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        return volume.task();
    }
    let groups: Vec<u32> = getgroups().unwrap_or_default().iter().map(|it| it.as_raw()).collect();
    let user = Credentials::user(uid.as_raw(), gid.as_raw()).with_groups(groups);
    volume.vfs().task_as(user)
}

/// A mount, as `vfscale mounts --json` lists it.
#[derive(Debug, Deserialize)]
struct Mount {
    branch: Option<String>,
    directory: PathBuf,
    image: PathBuf,
    state: String,
}

/// A call that is made inside a mount.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    tool: String,
    arguments: Value,
}

/// The answer from inside a mount.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done(Output),
    Refused(String),
}

impl From<Answer> for Result<Output> {
    fn from(answer: Answer) -> Result<Output> {
        match answer {
            Answer::Done(output) => Ok(output),
            Answer::Refused(why) => Err(Refusal::new(why)),
        }
    }
}

/// Has `act` make the call of a request on the standard input, by the name of its tool, in the
/// mount around the working directory, and prints the answer.
///
/// # Errors
/// The request can't be read, or the answer not be written.
pub(crate) fn answer_inside(act: impl Fn(&str, &Value, &dyn Tree) -> Result<Output>) -> Result<()> {
    let failed = |e: io::Error| Refusal::new(format!("cannot answer: {e}"));
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request).map_err(failed)?;
    let request: Request = serde_json::from_slice(&request).map_err(|e| failed(e.into()))?;
    let Request { tool, arguments } = request;
    let answer = match at_mount(Path::new("."), &|tree| act(&tool, &arguments, tree)) {
        Ok(output) => Answer::Done(output),
        Err(refusal) => Answer::Refused(refusal.to_string()),
    };
    let answer = serde_json::to_vec(&answer).map_err(|e| failed(e.into()))?;
    io::stdout().write_all(&answer).map_err(failed)
}

/// Makes a call on the files of the mount at a directory.
fn at_mount(dir: &Path, act: &dyn Fn(&dyn Tree) -> Result<Output>) -> Result<Output> {
    let mounted = Mounted::new(dir)?;
    let output = act(&mounted)?;
    mounted.sync()?;
    Ok(output)
}
