//! Processes with limits of time and of output.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Time between two looks whether the call was cancelled.
const STEP: Duration = Duration::from_millis(50);
/// Time for a command to end after SIGTERM, before SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time for which output is awaited when the command has ended: what it has left in the background
/// may never close it.
const REST: Duration = Duration::from_millis(500);
/// The most bytes of one read.
const PIECE_BYTES: usize = 64 << 10;

/// Whether a call is to end: it was cancelled, or the server ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    pub(crate) call: Arc<AtomicBool>,
    pub(crate) server: Arc<AtomicBool>,
}

impl Stop {
    /// Returns whether the call is to end.
    pub(crate) fn is_set(&self) -> bool {
        self.call.load(Ordering::Relaxed) || self.server.load(Ordering::Relaxed)
    }
}

/// The beginning and the end of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes_max: usize,
    /// All bytes, also those that are left out.
    pub(crate) total: u64,
}

impl Kept {
    /// Keeps at most this many bytes, half of them, rounded up, of the beginning.
    pub(crate) fn new(bytes_max: usize) -> Kept {
        Kept { bytes_max, ..Kept::default() }
    }

    /// Adds output.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let most = self.bytes_max - self.bytes_max / 2;
        let room = most.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend(&bytes[..room]);
        self.tail.extend(&bytes[room..]);
        self.tail.drain(..self.tail.len().saturating_sub(self.bytes_max / 2));
    }

    /// Takes a prefix away, if the output begins with it.
    pub(crate) fn strip_prefix(&mut self, prefix: &[u8]) -> bool {
        let is_there = self.head.starts_with(prefix);
        if is_there {
            self.head.drain(..prefix.len());
            self.total -= prefix.len() as u64;
        }
        is_there
    }

    /// Returns the number of bytes that are left out.
    pub(crate) fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the output as text, with a line in place of what is left out. Wrong bytes become
    /// U+FFFD.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.omitted() == 0 {
            return String::from_utf8_lossy(&[&self.head[..], &tail].concat()).into_owned();
        }
        let [head, tail] = [&self.head[..], &tail].map(String::from_utf8_lossy);
        format!("{head}\n[{} bytes left out]\n{tail}", self.omitted())
    }
}

/// The way in which a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or by a signal of somebody else.
    Itself,
    /// The time was over.
    Late,
    /// The call was cancelled.
    Stopped,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) end: End,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
    pub(crate) took: Duration,
}

impl Finished {
    /// Returns the exit status, or 128 plus the number of the signal that ended the process.
    pub(crate) fn code(&self) -> i32 {
        let signal = || self.status.signal().map_or(255, |signal| 128 + signal);
        self.status.code().unwrap_or_else(signal)
    }
}

/// The limits of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    /// Bytes of the standard output that are kept, and of the standard error.
    pub(crate) bytes: usize,
}

enum Event {
    Closed,
    Ended(io::Result<ExitStatus>),
}

/// Runs a command in a process group of its own, with `input` or nothing on its standard input, and
/// waits for its end. The group is ended if that does not come in time, or the call is to end.
///
/// # Errors
/// Errors of the start.
pub(crate) fn finish(
    mut command: Command,
    input: Option<Vec<u8>>,
    limits: Limits,
    stop: &Stop,
) -> io::Result<Finished> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (began, mut child) = (Instant::now(), command.spawn()?);
    let group = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A process that ends early reads no more.
        thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
    }
    let kept = [
        child.stdout.take().map(|pipe| collect(pipe, limits.bytes, sender.clone())),
        child.stderr.take().map(|pipe| collect(pipe, limits.bytes, sender.clone())),
    ];
    thread::spawn(move || sender.send(Event::Ended(child.wait())));
    let (status, end) = awaited(&receiver, group, began + limits.time, stop)?;
    let [stdout, stderr] = kept.map(|kept| {
        let kept = kept.unwrap_or_default();
        kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    });
    Ok(Finished { status, end, stdout, stderr, took: began.elapsed() })
}

/// Reads a pipe to its end.
fn collect(
    mut pipe: impl Read + Send + 'static,
    bytes_max: usize,
    sender: Sender<Event>,
) -> Arc<Mutex<Kept>> {
    let kept = Arc::new(Mutex::new(Kept::new(bytes_max)));
    let filled = kept.clone();
    thread::spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(n @ 1..) = pipe.read(&mut piece) {
            filled.lock().unwrap_or_else(PoisonError::into_inner).add(&piece[..n]);
        }
        let _ = sender.send(Event::Closed);
    });
    kept
}

/// Waits until the process has ended and its output is closed.
fn awaited(
    receiver: &Receiver<Event>,
    group: Pid,
    deadline: Instant,
    stop: &Stop,
) -> io::Result<(ExitStatus, End)> {
    let (mut end, mut status, mut open) = (End::Itself, None, 2);
    let mut next = deadline;
    loop {
        match receiver.recv_timeout(STEP) {
            Ok(Event::Closed) => open -= 1,
            Ok(Event::Ended(ended)) => {
                status = Some(ended?);
                next = Instant::now() + REST;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => open = 0,
        }
        let is_over = Instant::now() >= next;
        if let Some(status) = status
            && (open == 0 || is_over)
        {
            return Ok((status, end));
        }
        if status.is_none() && (is_over || end == End::Itself && stop.is_set()) {
            let signal = if end == End::Itself { Signal::TERM } else { Signal::KILL };
            if end == End::Itself {
                end = if stop.is_set() { End::Stopped } else { End::Late };
            }
            // Its processes may have ended meanwhile.
            let _ = kill_process_group(group, signal);
            next = Instant::now() + PATIENCE;
        }
    }
}

#[cfg(test)]
mod tests;
