//! Limits of time for the tests of a program, from what it prints.
//!
//! A program of several test threads tells after a minute which test still runs; one with a single
//! thread prints the name of a test before it begins. So the time of each test is known without a
//! process for each.

use std::io::{self, Read, Write};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The time after which the standard test runner tells that a test still runs.
const TOLD_AFTER: Duration = Duration::from_secs(60);

/// How often silence is looked into.
const TICK: Duration = Duration::from_millis(100);

/// The time for the last output of a program that has ended: another process may print on.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The tests that may hang, and since when.
#[derive(Debug, Default)]
pub struct Running {
    line: String,
    tests: Vec<(String, Instant)>,
}

impl Running {
    /// Notes a piece of output, which may end within a line: so begins a test that runs alone.
    pub fn note(&mut self, piece: &str, now: Instant) {
        for part in piece.split_inclusive('\n') {
            self.line.push_str(part);
            let is_whole = part.ends_with('\n');
            if let Some(rest) = self.line.strip_prefix("test ") {
                if let Some((name, _)) = rest.split_once(" has been running for over ") {
                    self.tests.push((name.into(), now.checked_sub(TOLD_AFTER).unwrap_or(now)));
                } else if let Some((name, result)) = rest.split_once(" ... ") {
                    let name = name.trim_end_matches(" - should panic");
                    self.tests.retain(|(running, _)| running != name);
                    if !is_whole && result.is_empty() {
                        self.tests.push((name.into(), now));
                    }
                }
            }
            if is_whole {
                self.line.clear();
            }
        }
    }

    /// Returns the test that has run for longest, and since when.
    pub fn longest(&self) -> Option<&(String, Instant)> {
        self.tests.iter().min_by_key(|(_, since)| *since)
    }
}

/// Runs a test program, and passes on what it prints to `out`. Ends it if one of its tests takes
/// longer than `limit`, at least a minute where tests run beside each other, with a line that names
/// the test. Returns the exit status: 124 if it was ended, as of `timeout`.
///
/// # Errors
/// If the program can't be started, or its output can't be passed on.
pub fn run(mut program: Command, limit: Duration, out: &mut impl Write) -> io::Result<i32> {
    let mut child = program.stdout(Stdio::piped()).spawn()?;
    let pieces = child.stdout.take().map(pieces);
    let pieces = pieces.ok_or_else(|| io::Error::other("no output"))?;
    let mut running = Running::default();
    loop {
        match pieces.recv_timeout(TICK) {
            Ok(piece) => {
                out.write_all(&piece)?;
                out.flush()?;
                running.note(&String::from_utf8_lossy(&piece), Instant::now());
                continue;
            }
            // The end of the output, or silence, as of a program that has ended and left a process
            // behind with its output.
            Err(RecvTimeoutError::Disconnected) => return told(child.wait()?, out),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    // Its last words may have come since the last look.
                    let begun = Instant::now();
                    while begun.elapsed() < LAST_WORDS
                        && let Ok(piece) = pieces.recv_timeout(LAST_WORDS / 10)
                    {
                        out.write_all(&piece)?;
                    }
                    return told(status, out);
                }
            }
        }
        if let Some((name, since)) = running.longest()
            && since.elapsed() >= limit
        {
            let seconds = since.elapsed().as_secs();
            writeln!(out, "\ntest {name} ... FAILED")?;
            writeln!(out, "######## HANGS: {name}, for {seconds} s; its program is ended")?;
            // Not the processes that it has started.
            child.kill()?;
            child.wait()?;
            return Ok(124);
        }
    }
}

/// Returns the exit status of a program; one that a signal ended is told.
fn told(status: ExitStatus, out: &mut impl Write) -> io::Result<i32> {
    if let Some(code) = status.code() {
        return Ok(code);
    }
    writeln!(out, "\n######## the program ended: {status}")?;
    Ok(101)
}

/// Reads output in a thread of its own, in pieces as they come.
fn pieces(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = output.read(&mut piece) {
            if sender.send(piece[..bytes].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests;
