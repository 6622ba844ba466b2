//! A file system of vfscale that is mounted for a run, in memory or from an image.
//!
//! `vfscale run` serves it in a process of its own, and runs `cat` in it for as long as the bench
//! keeps the pipe to it open. So it is unmounted when the run ends, however the bench ends.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vfscale::block::DeviceOptions;

use super::spec::MountSpec;
use super::volume::{IMAGE_BYTES, exists};
use crate::base::error::{Error, Result};

/// The program that mounts.
const PROGRAM: &str = "vfscale";

/// Says where the mount is, then waits for the end of its input.
const KEEPER: &str = "pwd && exec cat";

/// A mount of a run. Dropping it unmounts, and removes the image if the run made it.
#[derive(Debug)]
pub struct Mounted {
    server: Child,
    dir: PathBuf,
    /// The image, if the run made it.
    made: Option<PathBuf>,
}

impl Mounted {
    /// Mounts a new file system in memory, or the volume in an image, which is made if it does not
    /// exist. Uses the `vfscale` beside this program, or else the one in `PATH`.
    ///
    /// # Errors
    /// Returns [`Error::Mount`] if nothing can be mounted; the program has then said why on
    /// standard error.
    pub fn new(spec: &MountSpec) -> Result<Mounted> {
        let own = std::env::current_exe().unwrap_or_default();
        Mounted::by(&own.with_file_name(PROGRAM), spec)
    }

    /// Does what [`new`](Self::new) does with `program`, or with the one in `PATH` if that does not
    /// exist.
    fn by(program: &Path, spec: &MountSpec) -> Result<Mounted> {
        let failed = |e| Error::Mount(PROGRAM, e);
        let image = spec.image.clone();
        let is_there = image.as_deref().map_or(Ok(false), exists)?;
        let made = image.filter(|_| !is_there);
        let started = match start(program, spec) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => start(Path::new(PROGRAM), spec),
            started => started,
        };
        let server = started.map_err(failed)?;
        let mut mounted = Mounted { server, dir: PathBuf::new(), made };
        mounted.dir = mounted.said().map_err(failed)?;
        Ok(mounted)
    }

    /// Waits until the server has said where the mount is.
    fn said(&mut self) -> io::Result<PathBuf> {
        let mut line = Vec::new();
        if let Some(output) = self.server.stdout.take() {
            BufReader::new(output).read_until(b'\n', &mut line)?;
        }
        match line.pop() {
            Some(b'\n') => Ok(OsString::from_vec(line).into()),
            _ => Err(io::Error::other(format!("it ended with {}", self.server.wait()?))),
        }
    }

    /// Returns the directory of the mount.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Starts a server. Keys that a terminal turns into signals don't reach it: the bench decides when
/// it ends.
fn start(program: &Path, spec: &MountSpec) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg("run");
    if let Some(options) = &spec.options {
        command.arg("-o").arg(options);
    }
    match &spec.image {
        None => command.arg("--memory"),
        Some(image) => command.arg("--size").arg(IMAGE_BYTES.to_string()).arg(image),
    };
    command.args(["--", "sh", "-c", KEEPER]);
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        match self.server.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("vfscale bench: the server of a mount ended with {status}"),
            Err(e) => eprintln!("vfscale bench: cannot wait for the server of a mount: {e}"),
        }
        if let Some(image) = &self.made
            && exists(image).unwrap_or(true)
            && let Err(e) = DeviceOptions::new().remove(image)
        {
            eprintln!("vfscale bench: cannot remove {}: {e}", image.display());
        }
    }
}

#[cfg(test)]
mod tests;
