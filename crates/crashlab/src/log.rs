//! The changes of a program, as they come.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vfscale_fuse::recording::{Change, Recorder};

use crate::event::Event;

/// The data that a log keeps in memory, in bytes.
const DATA_MAX: usize = 1 << 30;

/// The steps of a program, in their order.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(crate) events: Vec<Event>,
}

impl Log {
    /// Returns the steps.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns what was said before a step.
    pub(crate) fn said(&self, cut: usize) -> Vec<u8> {
        let said = self.events[..cut].iter().filter_map(|event| match event {
            Event::Said(bytes) => Some(bytes.as_slice()),
            Event::Change(_) => None,
        });
        said.collect::<Vec<_>>().concat()
    }
}

impl FromIterator<Event> for Log {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        Self { events: events.into_iter().collect() }
    }
}

/// Collects a log: the changes of a mount, and between them what the program says, which comes
/// through a pipe.
///
/// Before each change it reads what the pipe has, so what a program says before a call is before
/// the change of that call.
pub struct Sink {
    state: Mutex<Collected>,
}

/// Passes on what a program says.
type Say = Box<dyn FnMut(&[u8]) + Send>;

struct Collected {
    log: Log,
    output: std::fs::File,
    bytes: usize,
    say: Say,
}

impl Sink {
    /// Makes an empty log. `output` is the end of the pipe to read from; `say` gets what comes
    /// there.
    ///
    /// # Errors
    /// Returns the error of making `output` one that does not block.
    pub fn new(output: OwnedFd, say: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Self> {
        let flags = fcntl_getfl(&output)?;
        fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
        let (log, output) = (Log::default(), output.into());
        Ok(Self { state: Mutex::new(Collected { log, output, bytes: 0, say: Box::new(say) }) })
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the program has said meanwhile. To be called from time to time, since a pipe that
    /// is full stops a program.
    pub fn listen(&self) {
        self.lock().listen();
    }

    /// Returns the log, which is empty afterwards; `None` if the program has written more than a
    /// log can keep, 1 GiB.
    pub fn take(&self) -> Option<Log> {
        let mut state = self.lock();
        state.listen();
        let log = std::mem::take(&mut state.log);
        (state.bytes <= DATA_MAX).then_some(log)
    }
}

impl Collected {
    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = self.output.read(&mut bytes) {
            let said = &bytes[..read];
            (self.say)(said);
            match self.log.events.last_mut() {
                Some(Event::Said(before)) => before.extend_from_slice(said),
                _ => self.log.events.push(Event::Said(said.to_vec())),
            }
        }
    }
}

impl Recorder for Sink {
    fn record(&self, change: Change) {
        let mut state = self.lock();
        state.listen();
        if let Change::Written { data, .. } = &change {
            state.bytes += data.len();
        }
        if state.bytes <= DATA_MAX {
            state.log.events.push(Event::Change(change));
        }
    }
}
