//! `vfscale crashlab`: what a power cut can leave of what a command does.
//!
//! Everything happens in a copy of the image in memory, so no image is written. The command runs in
//! a mount of a fork, which records what it changes; then each state that a power cut can leave is
//! made in a fork of its own, mounted at the same directory, and checked.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use vfscale::block::{CowDevice, Device, MemoryDevice};
use vfscale::pool::MAIN;
use vfscale::{Pool, Volume};
use vfscale_command::signals::Blocked;
use vfscale_crashlab::{Event, Lab, Log, Promise, Sink, State};
use vfscale_fuse::{Builder, Mounted, Sharing, recording::Recorder};

use crate::device;
use crate::elsewhere::temporary::{PATIENCE, TempDir};
use crate::error::Failure;
use crate::options;
use crate::source::limits;

use children::{Ended, run_check, run_command};
use report::{Cause, Report};

mod children;
mod report;

/// Size of the file system that a command gets without an image, in bytes of memory at most.
const MEMORY: u64 = 16 << 30;

/// The branches of this command, in its copy of the image.
const RECORDED: &str = "crashlab: the command";
const TRIED: &str = "crashlab: a state";

#[derive(Debug, Args)]
pub(crate) struct CrashlabArgs {
    /// The check of a state: a command for `sh -c`, which finds itself in the root of what the
    /// power cut has left, with what the command had written to its standard output before as
    /// standard input. The state is right if it exits with 0
    #[arg(long, value_name = "CHECK")]
    check: OsString,

    /// The file system whose promises hold: `posix`, which promises what a portable program may
    /// rely on, `ext4`, or `vfscale`
    #[arg(long, value_name = "PROMISE", default_value_t)]
    promise: Promise,

    /// The branch that the command begins with
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    branch: String,

    /// The most states that are checked, spread evenly over all; 0 for all of them. Of more than
    /// 150 steps of a command the states are a part, spread evenly as well
    #[arg(long, value_name = "N", default_value_t = 1000)]
    states: usize,

    /// The seconds that a check may take; one that takes longer has failed
    #[arg(long, value_name = "SECONDS", value_parser = options::parse_seconds, default_value = "60")]
    timeout: Duration,

    /// Let other users than the caller act in the file system, as which command and check may run
    #[arg(long)]
    allow_other: bool,

    /// Show what the check prints about the states that are reported
    #[arg(short, long)]
    verbose: bool,

    /// Print JSON instead of words, and what the command prints to standard error
    #[arg(long)]
    json: bool,

    /// The image that the command begins with, which is only read, and must not be mounted; by
    /// default an empty file system
    #[arg(value_name = "IMAGE")]
    image: Option<PathBuf>,

    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The laboratory: a copy of the image, and the directory to mount at.
struct Bench<'a> {
    args: &'a CrashlabArgs,
    pool: Pool,
    dir: TempDir,
    signals: Blocked,
}

/// Records a command, and checks the states that a power cut can leave. Exits with 1 if one fails.
pub(crate) fn crashlab(args: &CrashlabArgs) -> Result<ExitCode, Failure> {
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let pool = copy(args.image.as_deref())?;
    let bench = Bench { args, pool, dir: TempDir::new(args.allow_other)?, signals };
    let lab = Lab::new(bench.record()?, args.promise);
    let states = lab.states();
    if lab.log().events().iter().all(|event| matches!(event, Event::Said(_))) {
        return Err(Failure::Program("the command has changed nothing".into(), 2));
    }
    bench.verify(&lab)?;
    let step = match args.states {
        0 => 1,
        most => states.len().div_ceil(most).max(1),
    };
    let (all, mut failed) = (states.len(), Vec::new());
    let tried: Vec<State> = states.into_iter().step_by(step).collect();
    let bar = progress(tried.len());
    for state in &tried {
        bar.inc(1);
        let ended = bench.check_state(&lab, state)?;
        if !ended.is_right() {
            failed.push(Cause { state: state.clone(), ended });
        }
    }
    bar.finish_and_clear();
    let (tried, failures) = (tried.len(), failed.len());
    let mut found = causes(failed);
    // Where not all states were tried, those that explain them may be missing.
    for cause in found.iter_mut().take(report::CAUSES) {
        let Cause { state, ended } = cause;
        *state = lab.shrink(state, |smaller| {
            let new = bench.check_state(&lab, smaller)?;
            let has_failed = !new.is_right();
            if has_failed {
                *ended = new;
            }
            Ok::<bool, Failure>(has_failed)
        })?;
    }
    let report = Report { lab: &lab, all, tried, failed: failures, causes: causes(found) };
    report.print(args.json, args.verbose)?;
    Ok(ExitCode::from(u8::from(failures > 0)))
}

/// Returns the states that no other one explains: of two, of which one has lost what the other has,
/// and perhaps more, the former.
fn causes(mut failed: Vec<Cause>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    failed.sort_by_key(|cause| (cause.state.lost().count(), cause.state.cut()));
    for cause in failed {
        if !causes.iter().any(|other| other.state.is_within(&cause.state)) {
            causes.push(cause);
        }
    }
    causes.sort_by_key(|cause| cause.state.cut());
    causes
}

fn build(lab: &Lab, state: &State, volume: &Volume) -> Result<(), Failure> {
    let built = lab.build(state, &volume.task());
    built.map_err(|error| Failure::Program(error.to_string(), 1))
}

/// Opens a copy of an image in memory, with branches, or an empty one.
fn copy(image: Option<&Path>) -> Result<Pool, Failure> {
    let device: Arc<dyn Device> = match image {
        Some(image) => Arc::new(CowDevice::in_place_of(device::open(image, true)?)),
        None => {
            let device = Arc::new(MemoryDevice::new(MEMORY)?);
            let made: Arc<dyn Device> = device.clone();
            let (uid, gid) = options::caller();
            let volume = vfscale::volume_on(made).create(MEMORY).owner(uid, gid).open()?;
            volume.close().map_err(|error| Failure::Open(error.into()))?;
            device
        }
    };
    Ok(vfscale::pool_on(device).convert(true).open()?)
}

fn progress(states: usize) -> ProgressBar {
    match io::stderr().is_terminal() {
        true => ProgressBar::new(states as u64),
        false => ProgressBar::hidden(),
    }
}

impl Bench<'_> {
    /// Calls `inside` with a fork of the branch, and deletes it.
    fn in_fork<T>(
        &self,
        name: &str,
        inside: impl FnOnce(&Volume) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.pool.fork(&self.args.branch, name)?;
        let volume = self.pool.branch(name).limits(limits()).open()?;
        let done = inside(&volume);
        let closed = volume.close().map_err(|error| Failure::Open(error.into()));
        self.pool.delete(name)?;
        let done = done?;
        closed.map(|()| done)
    }

    /// Mounts a volume, runs something in it, and unmounts it.
    fn mounted<T>(
        &self,
        volume: &Volume,
        recorder: Option<Arc<dyn Recorder>>,
        inside: impl FnOnce(&Path) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let builder = Builder::new(volume.vfs()).sharing(Sharing::Exclusive).threads(2);
        let mut builder = builder.allow_other(self.args.allow_other);
        if let Some(recorder) = recorder {
            builder = builder.record(recorder);
        }
        let mounted: Mounted = builder.mount(self.dir.path())?;
        let done = inside(self.dir.path());
        if let Err(error) = mounted.unmounter().unmount_within(PATIENCE) {
            return Err(Failure::Unmount(self.dir.path().to_owned(), error));
        }
        mounted.wait();
        done
    }

    /// Runs the command, and returns what it has done.
    fn record(&self) -> Result<Log, Failure> {
        let Bench { args, signals, .. } = self;
        let failed = |e: io::Error| Failure::System("pipe", e);
        let (reader, writer) = io::pipe().map_err(failed)?;
        let to_stderr = args.json;
        let sink = Sink::new(reader.into(), move |said| {
            // Its reader may have gone.
            let _ = match to_stderr {
                true => io::stderr().write_all(said),
                false => io::stdout().write_all(said).and_then(|()| io::stdout().flush()),
            };
        });
        let sink = Arc::new(sink.map_err(failed)?);
        let recorder: Arc<dyn Recorder> = sink.clone();
        self.in_fork(RECORDED, |volume| {
            self.mounted(volume, Some(recorder), |dir| {
                run_command(dir, &args.command, (&sink, writer.into()), *signals)
            })
        })?;
        sink.take().ok_or_else(|| {
            let why = "the command has written more than 1 GiB, more than can be recorded";
            Failure::Program(why.into(), 2)
        })
    }

    /// Checks a fork that `make` has changed.
    fn check(
        &self,
        make: impl FnOnce(&Volume) -> Result<(), Failure>,
        said: &[u8],
    ) -> Result<Ended, Failure> {
        let Bench { args, signals, .. } = self;
        self.in_fork(TRIED, |volume| {
            make(volume)?;
            self.mounted(volume, None, |dir| {
                run_check(dir, (&args.check, said), args.timeout, *signals)
            })
        })
    }

    fn check_state(&self, lab: &Lab, state: &State) -> Result<Ended, Failure> {
        self.check(|volume| build(lab, state, volume), &lab.said(state))
    }

    /// Finds out whether the check says anything about power cuts: it has to accept what was there
    /// before the command, and what is there after it.
    fn verify(&self, lab: &Lab) -> Result<(), Failure> {
        let before = self.check(|_| Ok(()), b"")?;
        let after = self.check_state(lab, &lab.whole())?;
        for (ended, when) in [
            (before, "before the command, which a power cut can leave"),
            (after, "after the command, without a power cut"),
        ] {
            if !ended.is_right() {
                let why = format!(
                    "the check fails {when} ({ended}): it has to succeed there\n{}",
                    ended.output()
                );
                return Err(Failure::Program(why.trim_end().into(), 2));
            }
        }
        Ok(())
    }
}
