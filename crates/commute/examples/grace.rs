//! Prints the cache lines that RCU sections touch when many threads have used RCU: those that one
//! thread touches in as many sections as lie between two checks of the epoch, and those that two
//! threads share in them, of which at least one writes them.
//!
//! ```sh
//! cargo run --release -p vfscale-commute --example grace
//! ```

#[macro_use]
mod common;

recording_main!(grace::print);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod grace {
    use std::collections::HashMap;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{self, JoinHandle};

    use vfscale_commute::trace::arena::{Arena, LINE};
    use vfscale_commute::trace::record::{CodeCache, Recorder, Trace};
    use vfscale_sync::rcu;

    /// Numbers of threads of the rows.
    const THREADS: [usize; 6] = [2, 8, 32, 64, 128, 512];

    /// Number of outermost sections of a thread between two checks of the epoch.
    const BETWEEN_CHECKS: usize = 128;

    /// The lines that were touched, each with whether it was written.
    type Lines = HashMap<u64, bool>;

    pub fn print() -> io::Result<()> {
        let _arena = Arena::new()?;
        println!("Left out: the work in the sections, and what it defers.\n");
        println!("| threads | lines touched in {BETWEEN_CHECKS} sections | lines shared by two |");
        println!("| ---: | ---: | ---: |");
        for threads in THREADS {
            let (first, second) = recorded(threads)?;
            let is_shared = |(line, writes): &(&u64, &bool)| {
                second.get(line).is_some_and(|others| **writes || *others)
            };
            let shared = first.iter().filter(is_shared).count();
            println!("| {threads} | {} | {shared} |", first.len());
        }
        Ok(())
    }

    /// Returns the lines of the sections of two threads, recorded one after the other, beside other
    /// threads that have been in sections before.
    fn recorded(threads: usize) -> io::Result<(Lines, Lines)> {
        let idle: Vec<Stopped> = (2..threads).map(|_| Stopped::new(false)).collect();
        let (first, second) = (Stopped::new(true), Stopped::new(true));
        // All have been in sections before the first recording.
        for thread in idle.iter().chain([&first, &second]) {
            thread.lines()?;
        }
        let both = [&first, &second].map(|thread| {
            thread.go_on.send(()).map_err(io::Error::other)?;
            thread.lines()
        });
        let [first_lines, second_lines] = both;
        for thread in idle.into_iter().chain([first, second]) {
            drop(thread.go_on);
            thread.thread.join().map_err(|_| io::Error::other("a thread has panicked"))??;
        }
        Ok((first_lines?, second_lines?))
    }

    /// A thread that has used RCU and waits. It reports an empty set of lines when it waits first,
    /// and after that one set of lines of its sections for each message.
    struct Stopped {
        thread: JoinHandle<io::Result<()>>,
        go_on: Sender<()>,
        lines: Receiver<Lines>,
    }

    impl Stopped {
        fn new(records: bool) -> Self {
            let ((go_on, next), (done, lines)) = (channel(), channel());
            let thread = thread::spawn(move || live(records, &next, &done));
            Self { thread, go_on, lines }
        }

        /// Waits for the next report.
        fn lines(&self) -> io::Result<Lines> {
            self.lines.recv().map_err(io::Error::other)
        }
    }

    fn live(records: bool, next: &Receiver<()>, done: &Sender<Lines>) -> io::Result<()> {
        for _ in 0..2 * BETWEEN_CHECKS {
            drop(rcu::pin());
        }
        // Only threads that record have an arena, since there are few.
        let arena = if records { Some(Arena::new()?) } else { None };
        let mut recorder = arena.as_ref().map(Recorder::new).transpose()?;
        done.send(Lines::new()).map_err(io::Error::other)?;
        while next.recv().is_ok() {
            let lines = recorder.as_mut().map(sections).unwrap_or_default();
            done.send(lines).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Enters and leaves sections. Returns the lines that they touch.
    fn sections(recorder: &mut Recorder) -> Lines {
        let sections = || (0..BETWEEN_CHECKS).for_each(|_| drop(rcu::pin()));
        let ((), trace): ((), Trace) = recorder.record(&mut CodeCache::new(), sections);
        let mut lines = Lines::new();
        for access in trace.accesses() {
            for line in
                access.address / LINE as u64..=(access.address + access.size - 1) / LINE as u64
            {
                *lines.entry(line).or_default() |= access.write;
            }
        }
        lines
    }
}
