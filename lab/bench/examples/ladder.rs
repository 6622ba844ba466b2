//! Shows where the time of a `pread` and of a `pwrite` of 4 KiB goes, in memory: each line does a
//! little more than the one before, and the last one is a plain copy of the same bytes.
//!
//! ```sh
//! cargo run --release --example ladder
//! ```
//!
//! All bytes stay in the processor's caches, except in the lines that say otherwise. A time is the
//! median of many rounds, in which all lines take turns, so other load of the machine affects all
//! of them. Run it on an otherwise idle machine.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use vfscale::posix::OFlags;
use vfscale::{File, Mode, Task, memory};
use vfscale_sync::page::{PAGE_SIZE, Page};

const ROUNDS: usize = 41;
/// Number of calls of a line in a round.
const CALLS: u64 = 4_096;
/// Pages of a large file: 16 MiB.
const PAGES: u64 = 4_096;
const PAGE: u64 = PAGE_SIZE as u64;

type Batch<'a> = Box<dyn FnMut(u64) -> vfscale::Result<()> + 'a>;

/// A line of a table: a call that is made many times.
struct Line<'a> {
    name: &'static str,
    calls: Batch<'a>,
    /// Whether the call does what that of the line before does, and more.
    adds: bool,
}

fn line<'a>(name: &'static str, mut call: impl FnMut() -> vfscale::Result<()> + 'a) -> Line<'a> {
    let calls = Box::new(move |times| (0..times).try_for_each(|_| call()));
    Line { name, calls, adds: name.starts_with("...") }
}

fn open(task: &Task, name: &str, pages: u64) -> vfscale::Result<File> {
    let file = task.posix().open(name, OFlags::CREATE | OFlags::RDWR, Mode::from(0o644))?;
    for page in 0..pages {
        file.pwrite(&[7; PAGE_SIZE], page * PAGE)?;
    }
    Ok(file)
}

/// Measures the lines in turn, and prints their medians in nanoseconds.
fn print(title: &str, mut lines: Vec<Line<'_>>) -> vfscale::Result<()> {
    let mut times = vec![Vec::with_capacity(ROUNDS); lines.len()];
    for _ in 0..ROUNDS {
        for (line, times) in lines.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (line.calls)(CALLS)?;
            times.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    println!("| {title} | ns | more than before |\n| --- | ---: | ---: |");
    let mut before = 0.0;
    for (line, times) in lines.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        let more = if line.adds { format!("{:.1}", median - before) } else { String::new() };
        println!("| {} | {median:.1} | {more} |", line.name);
        before = median;
    }
    println!();
    Ok(())
}

/// Returns a call that copies 4 KiB as the file system does, and one that copies them as the C
/// library does.
fn copies<'a>() -> [Line<'a>; 2] {
    let (page, mut buf) = (Page::zeroed(), vec![0; PAGE_SIZE]);
    let (from, mut to) = (vec![7_u8; PAGE_SIZE], vec![0_u8; PAGE_SIZE]);
    let copy = line("copy of a page alone, as in these calls", move || {
        page.read(0, black_box(&mut buf));
        Ok(())
    });
    let memcpy = line("memcpy of 4 KiB", move || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Ok(())
    });
    [copy, memcpy]
}

/// Which side of a copy has 16 MiB, of which each call uses the next page.
#[derive(Clone, Copy, PartialEq)]
enum Large {
    From,
    To,
}

/// Returns a call that copies 4 KiB as the C library does, out of the caches.
fn far_copy<'a>(large: Large) -> Line<'a> {
    let (mut bytes, mut page) = (vec![7_u8; (PAGES * PAGE) as usize], vec![9_u8; PAGE_SIZE]);
    let mut turn = 0;
    line("memcpy of 4 KiB, one page of 16 MiB after the other", move || {
        turn = (turn + 1) % PAGES as usize;
        let one = &mut bytes[turn * PAGE_SIZE..][..PAGE_SIZE];
        match large {
            Large::From => page.copy_from_slice(black_box(one)),
            Large::To => one.copy_from_slice(black_box(&page)),
        }
        black_box((one, &mut page));
        Ok(())
    })
}

fn reads(small: &File, large: &File) -> vfscale::Result<()> {
    let (last, mut turn) = ((PAGES - 1) * PAGE, 0);
    let (mut byte, mut buf) = ([0; 1], [0; PAGE_SIZE]);
    let mut pages = vec![0; PAGE_SIZE];
    let mut lines = vec![
        line("pread of no bytes: the call, its checks", || small.pread(&mut [], 0).map(drop)),
        line("... of a byte of a file of one page: RCU, the page", move || {
            small.pread(black_box(&mut byte), 0).map(drop)
        }),
        line("... of a byte of a file of 16 MiB: two nodes", move || {
            large.pread(black_box(&mut byte), last).map(drop)
        }),
        line("... of 4 KiB of it: the copy", move || {
            large.pread(black_box(&mut buf), last).map(drop)
        }),
    ];
    lines.extend(copies());
    lines.push(line("pread of 4 KiB, one page of the 16 MiB after the other", move || {
        turn = (turn + 1) % PAGES;
        large.pread(black_box(&mut pages), turn * PAGE).map(drop)
    }));
    lines.push(far_copy(Large::From));
    print("read", lines)
}

fn writes(small: &File, large: &File, growing: &File) -> vfscale::Result<()> {
    let (last, mut turn, mut end) = ((PAGES - 1) * PAGE, 0, 0);
    let buf = [9; PAGE_SIZE];
    let mut lines = vec![
        line("pwrite of no bytes: the call, its checks", || small.pwrite(&[], 0).map(drop)),
        line("... of a byte of a file of one page: lock, time, RCU, page", || {
            small.pwrite(black_box(&[1]), 0).map(drop)
        }),
        line("... of a byte of a file of 16 MiB: two nodes", || {
            large.pwrite(black_box(&[1]), last).map(drop)
        }),
        line("... of 4 KiB of it: the copy", || large.pwrite(black_box(&buf), last).map(drop)),
    ];
    lines.extend(copies());
    lines.push(line("pwrite of 4 KiB, one page of the 16 MiB after the other", || {
        turn = (turn + 1) % PAGES;
        large.pwrite(black_box(&buf), turn * PAGE).map(drop)
    }));
    lines.push(far_copy(Large::To));
    lines.push(line("append of 4 KiB, to 16 MiB and anew: a new page, freed later", || {
        if end == PAGES {
            end = 0;
            growing.truncate(0)?;
        }
        end += 1;
        growing.pwrite(black_box(&buf), (end - 1) * PAGE).map(drop)
    }));
    print("write", lines)
}

fn main() -> Result<(), Box<dyn Error>> {
    let vfs = memory().size(256 << 20).build()?;
    let task = vfs.task();
    let (small, large) = (open(&task, "small", 1)?, open(&task, "large", PAGES)?);
    let growing = open(&task, "growing", 0)?;
    reads(&small, &large)?;
    writes(&small, &large, &growing)?;
    Ok(())
}
