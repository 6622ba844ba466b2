//! The checkpoints that `vfscale run --checkpoint-every` makes while its command runs.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use vfscale_command::say;

use super::args::RunArgs;
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source;
use crate::volume::{checkpoint, diff};

/// The most of a command's name that the text of a checkpoint has, in bytes.
const NAME_MAX: usize = 40;

/// The checkpoints of a run.
pub(super) struct Checkpoints<'r> {
    image: &'r Path,
    dir: &'r Path,
    branch: String,
    text: String,
    every: Duration,
    next: Instant,
    /// The last one.
    last: Option<String>,
    has_failed: bool,
}

impl<'r> Checkpoints<'r> {
    /// Returns the checkpoints of a run whose mount is at `dir`, if it makes any.
    pub(super) fn of(args: &'r RunArgs, options: &MountOptions, dir: &'r Path) -> Option<Self> {
        let (every, image) = (args.checkpoint_every?, args.image.as_deref()?);
        let name = args.words.command.first().and_then(|program| Path::new(program).file_name());
        let name = name.map(OsStr::to_string_lossy).unwrap_or_default();
        let end = name.char_indices().map(|(at, letter)| at + letter.len_utf8());
        let end = end.take_while(|end| *end <= NAME_MAX).last().unwrap_or(0);
        Some(Self {
            image,
            dir,
            branch: source::branch_name(options),
            text: format!("while {} ran", name[..end].escape_default()),
            every,
            next: Instant::now() + every,
            last: None,
            has_failed: false,
        })
    }

    /// Returns the time until the next one.
    pub(super) fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Makes one, unless nothing has changed since the last one. The command goes on if that fails,
    /// which is said once.
    pub(super) fn make(&mut self) {
        match self.made() {
            Ok(()) => self.has_failed = false,
            Err(failure) if !self.has_failed => {
                self.has_failed = true;
                say(format_args!("vfscale: no checkpoint of `{}`: {failure}", self.branch));
            }
            Err(_) => {}
        }
        self.next = Instant::now() + self.every;
    }

    fn made(&mut self) -> Result<(), Failure> {
        let Self { image, dir, branch, text, last, .. } = self;
        if let Some(last) = last
            && !diff::differ(image, dir, last, branch)?
        {
            return Ok(());
        }
        *last = Some(checkpoint::served(image, dir, branch, text)?);
        Ok(())
    }
}
