//! Prints the cache lines that RCU sections touch when many threads have used RCU: those that one
//! thread touches in some sections, and those that two threads share in them, of which at least one
//! writes them. The sections are empty, or each defers a call; then they include grace periods.
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

    /// Number of outermost sections of a recording: with a deferred call in each, two full bags.
    const SECTIONS: usize = 128;

    /// The lines that were touched, each with whether it was written.
    type Lines = HashMap<u64, bool>;

    pub fn print() -> io::Result<()> {
        let _arena = Arena::new()?;
        println!("Left out: the work in the sections.\n");
        println!(
            "| threads | lines of {SECTIONS} empty sections | shared by two | that defer | shared |"
        );
        println!("| ---: | ---: | ---: | ---: | ---: |");
        for threads in THREADS {
            let cells = [false, true].map(|defers| -> io::Result<String> {
                let (first, second) = recorded(threads, defers)?;
                let is_shared = |(line, writes): &(&u64, &bool)| {
                    second.get(line).is_some_and(|others| **writes || *others)
                };
                let shared = first.iter().filter(is_shared).count();
                Ok(format!("{} | {shared}", first.len()))
            });
            let [empty, defer] = cells;
            println!("| {threads} | {} | {} |", empty?, defer?);
        }
        Ok(())
    }

    /// Returns the lines of the sections of two threads, recorded one after the other, beside other
    /// threads that have been in sections before.
    fn recorded(threads: usize, defers: bool) -> io::Result<(Lines, Lines)> {
        let idle: Vec<Stopped> = (2..threads).map(|_| Stopped::new(false, defers)).collect();
        let (first, second) = (Stopped::new(true, defers), Stopped::new(true, defers));
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
        fn new(records: bool, defers: bool) -> Self {
            let ((go_on, next), (done, lines)) = (channel(), channel());
            let thread = thread::spawn(move || live(records, defers, &next, &done));
            Self { thread, go_on, lines }
        }

        /// Waits for the next report.
        fn lines(&self) -> io::Result<Lines> {
            self.lines.recv().map_err(io::Error::other)
        }
    }

    fn live(
        records: bool,
        defers: bool,
        next: &Receiver<()>,
        done: &Sender<Lines>,
    ) -> io::Result<()> {
        for _ in 0..2 * SECTIONS {
            drop(rcu::pin());
        }
        // Only threads that record have an arena, since there are few.
        let arena = if records { Some(Arena::new()?) } else { None };
        let mut recorder = arena.as_ref().map(Recorder::new).transpose()?;
        done.send(Lines::new()).map_err(io::Error::other)?;
        while next.recv().is_ok() {
            let lines =
                recorder.as_mut().map(|recorder| sections(recorder, defers)).unwrap_or_default();
            done.send(lines).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Enters and leaves sections. Returns the lines that they touch.
    fn sections(recorder: &mut Recorder, defers: bool) -> Lines {
        let section = |_| {
            let guard = rcu::pin();
            if defers {
                guard.defer(|| ());
            }
        };
        let sections = || (0..SECTIONS).for_each(section);
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
