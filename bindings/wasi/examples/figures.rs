//! Measures file calls of guests, and how long a guest's branch takes.
//!
//! ```sh
//! cargo run --release --example figures -- [ROUNDS [INSTANCES [FILES]]]
//! ```
//!
//! * Calls: nanoseconds of each, median of the rounds, in which the file systems take turns. Beside
//!   those of vfscale are files of `wasmtime_wasi` in /dev/shm: as they are by default, and with
//!   leave to block the guest's thread.
//! * Threads: the calls of two guests on two threads over those of one guest.
//! * Instances: microseconds of each, on a branch of its own of a base of many files; memory.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use tempfile::TempDir;
use vfscale::block::MemoryDevice;
use vfscale::{ForkOptions, Pool, Task};
use vfscale_wasi::{Access, Filesystem, p1, p2};
use wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER;
use wasmtime::component::{self, Component, ResourceTable};
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The work of a guest, and how often it does it in a round. Reads and writes are of 4 KiB.
const WORK: &[(&str, u32)] = &[
    ("stat", 20_000),
    ("open-close", 20_000),
    ("open-read-close", 20_000),
    ("create-write-remove", 10_000),
    ("pread", 20_000),
    ("pwrite", 20_000),
    ("list-many", 100),
];

const GUEST: &str = include_str!("figures.wat");

/// The files of the directory that `list-many` lists.
const MANY: u32 = 1000;

/// A guest that does the work of a name as often as it is told.
type Run = Box<dyn FnMut(&str, u32) -> wasmtime::Result<()> + Send>;

/// The state of a component with files of the host.
struct OfHost(WasiCtx, ResourceTable);

impl WasiView for OfHost {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.0, table: &mut self.1 }
    }
}

fn component(engine: &Engine) -> Outcome<Component> {
    let mut text = String::from("package test:figures;\nworld figures {\n");
    for (name, _) in WORK {
        writeln!(text, "export {name}: func(n: u32);")?;
    }
    text.push('}');
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_source("figures.wit", &text)?;
    let world = resolve.select_world(&[package], None)?;
    let mut bytes = wat::parse_str(GUEST)?;
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)?;
    let encoder = ComponentEncoder::default().module(&bytes)?;
    let bytes = encoder.adapter("wasi_snapshot_preview1", ADAPTER)?.encode()?;
    Ok(Component::new(engine, bytes)?)
}

fn memory() -> Outcome<Task> {
    Ok(vfscale::memory().size(64 << 20).build()?.task())
}

/// Makes a pool in memory, of a base that `fill` fills.
fn pool(size: u64, fill: impl FnOnce(&Task) -> vfscale::Result<()>) -> Outcome<Pool> {
    let device = Arc::new(MemoryDevice::new(size)?);
    let volume = vfscale::volume_on(device.clone()).create(size).open()?;
    fill(&volume.task())?;
    volume.close()?;
    Ok(vfscale::pool_on(device).convert(true).open()?)
}

/// Makes a new branch and returns a task on it.
fn branch(pool: &Pool, name: &str) -> Outcome<Task> {
    pool.fork("main", name)?;
    Ok(pool.open(name)?.task())
}

/// Makes the files of a guest in a directory of `task`.
fn files(task: &Arc<Task>, dir: &str) -> Outcome<Filesystem> {
    task.create_dir_all(format!("{dir}/many"))?;
    task.write(format!("{dir}/file"), [1; 4096])?;
    (0..MANY).try_for_each(|n| task.write(format!("{dir}/many/name {n}"), ""))?;
    let mut files = Filesystem::new();
    files.preopen(Arc::clone(task), dir, "/", Access::ReadWrite)?;
    Ok(files)
}

/// Makes the files of a guest of the host in a directory below `folder`.
fn host_files(folder: &Path, name: &str, blocks: bool) -> Outcome<WasiCtxBuilder> {
    let folder = folder.join(name);
    std::fs::create_dir_all(folder.join("many"))?;
    std::fs::write(folder.join("file"), [1; 4096])?;
    (0..MANY).try_for_each(|n| std::fs::write(folder.join(format!("many/name {n}")), ""))?;
    let mut wasi = WasiCtxBuilder::new();
    wasi.allow_blocking_current_thread(blocks);
    wasi.preopened_dir(&folder, "/", FsPerms::ReadWrite)?;
    Ok(wasi)
}

fn module_run<T: Send + 'static>(engine: &Engine, linker: &Linker<T>, data: T) -> Outcome<Run> {
    let mut store = Store::new(engine, data);
    let instance = linker.instantiate(&mut store, &Module::new(engine, GUEST)?)?;
    Ok(Box::new(move |name, n| {
        instance.get_typed_func::<u32, ()>(&mut store, name)?.call(&mut store, n)
    }))
}

fn component_run<T: Send + 'static>(
    engine: &Engine,
    linker: &component::Linker<T>,
    data: T,
) -> Outcome<Run> {
    let mut store = Store::new(engine, data);
    let instance = linker.instantiate(&mut store, &component(engine)?)?;
    Ok(Box::new(move |name, n| {
        instance.get_typed_func::<(u32,), ()>(&mut store, name)?.call(&mut store, (n,))
    }))
}

fn modules(engine: &Engine) -> Outcome<Linker<p1::Guest>> {
    let mut linker = Linker::new(engine);
    p1::add_to_linker_sync(&mut linker, |guest: &mut p1::Guest| guest)?;
    Ok(linker)
}

fn guest(files: Filesystem) -> p1::Guest {
    p1::Guest::new(WasiCtxBuilder::new().build_p1(), files)
}

fn runs(engine: &Engine, folder: &Path) -> Outcome<Vec<(&'static str, Run)>> {
    let mut runs = Vec::new();
    let linker = modules(engine)?;
    let files_in_memory = || files(&Arc::new(memory()?), "/d");
    runs.push(("p1 memory", module_run(engine, &linker, guest(files_in_memory()?))?));
    let on_branch = files(&Arc::new(branch(&pool(1 << 30, |_| Ok(()))?, "b")?), "/d")?;
    runs.push(("p1 branch", module_run(engine, &linker, guest(on_branch))?));
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_sync(&mut linker, |wasi: &mut WasiP1Ctx| wasi)?;
    for (name, blocks) in [("p1 tmpfs", false), ("p1 tmpfs, blocking", true)] {
        let wasi = host_files(folder, name, blocks)?.build_p1();
        runs.push((name, module_run(engine, &linker, wasi)?));
    }

    let mut linker = component::Linker::new(engine);
    p2::add_to_linker_sync(&mut linker)?;
    let guest = p2::Guest::new(WasiCtxBuilder::new().build(), files_in_memory()?);
    runs.push(("p2 memory", component_run(engine, &linker, guest)?));
    let mut linker = component::Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    for (name, blocks) in [("p2 tmpfs", false), ("p2 tmpfs, blocking", true)] {
        let data = OfHost(host_files(folder, name, blocks)?.build(), ResourceTable::new());
        runs.push((name, component_run(engine, &linker, data)?));
    }
    Ok(runs)
}

/// Returns the time of which a share of all is not greater.
fn quantile(times: &[f64], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * share).round() as usize]
}

fn median(times: &[f64]) -> f64 {
    quantile(times, 0.5)
}

/// Prints the names of the columns of a table.
fn head<'a>(unit: &str, columns: impl Iterator<Item = &'a str>) {
    let columns: Vec<_> = columns.collect();
    println!("\n| {unit} | {} |", columns.join(" | "));
    println!("| --- |{}", " ---: |".repeat(columns.len()));
}

fn calls(engine: &Engine, rounds: usize) -> Outcome {
    let folder = TempDir::new_in("/dev/shm")?;
    let mut runs = runs(engine, folder.path())?;
    head("ns", runs.iter().map(|(name, _)| *name));
    for (work, n) in WORK {
        let mut times = vec![Vec::new(); runs.len()];
        // The first round warms up.
        for round in 0..=rounds {
            for (times, (_, run)) in times.iter_mut().zip(&mut runs) {
                let begun = Instant::now();
                run(work, *n)?;
                if round > 0 {
                    times.push(begun.elapsed().as_nanos() as f64 / f64::from(*n));
                }
            }
        }
        print!("| {work} |");
        for times in times {
            print!(" {:.0} |", median(&times));
        }
        println!();
    }
    Ok(())
}

/// Runs guests at once. Returns the seconds of the last that ends.
fn seconds(guests: &mut [Run], work: &str, n: u32) -> Outcome<f64> {
    let barrier = Barrier::new(guests.len());
    let ended: Vec<_> = std::thread::scope(|scope| {
        let run_one = |run: &mut Run| {
            barrier.wait();
            let begun = Instant::now();
            run(work, n).map(|()| begun.elapsed().as_secs_f64())
        };
        let threads = guests.iter_mut().map(|run| scope.spawn(move || run_one(run)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    ended.into_iter().try_fold(0f64, |longest, ended| {
        let ended = ended.map_err(|_| "a thread has panicked")?;
        Ok(longest.max(ended?))
    })
}

fn threads(engine: &Engine, rounds: usize) -> Outcome {
    let linker = modules(engine)?;
    let run = |task: &Arc<Task>, dir: &str| module_run(engine, &linker, guest(files(task, dir)?));
    let tree = Arc::new(memory()?);
    let pool = pool(1 << 30, |_| Ok(()))?;
    let branches = [Arc::new(branch(&pool, "a")?), Arc::new(branch(&pool, "b")?)];
    let mut pairs = [
        ("one tree", [run(&tree, "/a")?, run(&tree, "/b")?]),
        ("a tree each", [run(&Arc::new(memory()?), "/d")?, run(&Arc::new(memory()?), "/d")?]),
        ("a branch each", [run(&branches[0], "/d")?, run(&branches[1], "/d")?]),
    ];
    head("two threads over one", pairs.iter().map(|(name, _)| *name));
    for (work, n) in WORK {
        print!("| {work} |");
        for (_, guests) in &mut pairs {
            let mut ratios = Vec::new();
            // The first round warms up.
            for round in 0..=rounds {
                let alone = seconds(&mut guests[..1], work, *n)?;
                let both = seconds(guests, work, *n)?;
                if round > 0 {
                    ratios.push(2.0 * alone / both);
                }
            }
            print!(" {:.2} |", median(&ratios));
        }
        println!();
    }
    Ok(())
}

/// Makes a base with so many files, in directories of a thousand.
fn fill(task: &Task, files: usize) -> vfscale::Result<()> {
    for n in 0..files {
        if n % 1000 == 0 {
            task.create_dir_all(format!("/{}", n / 1000))?;
        }
        task.write(format!("/{}/{n}", n / 1000), format!("file {n}\n"))?;
    }
    Ok(())
}

/// Returns the memory of this process, in KiB.
fn resident() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmRSS")?.parse()?)
}

/// Makes instances, each on a branch of its own, and keeps all of them until the last is ready.
fn instances(engine: &Engine, instances: usize, base: usize) -> Outcome {
    let program = modules(engine)?.instantiate_pre(&Module::new(engine, GUEST)?)?;
    let pool = pool((1 << 30) + ((instances as u64) << 20), |task| fill(task, base))?;
    let steps = ["fork", "open", "preopen", "all three", "instance"];
    let mut times = vec![Vec::new(); steps.len()];
    let mut kept = Vec::new();
    let before = resident()?;
    for n in 0..instances {
        let name = format!("guest {n}");
        let begun = Instant::now();
        pool.fork_with("main", &name, ForkOptions::new().temporary(true))?;
        let forked = begun.elapsed();
        let branch = pool.open(&name)?;
        let opened = begun.elapsed();
        let mut files = Filesystem::new();
        files.preopen(Arc::new(branch.task()), "/", "/", Access::ReadWrite)?;
        let ready = begun.elapsed();
        let mut store = Store::new(engine, guest(files));
        program.instantiate(&mut store)?;
        let ended = begun.elapsed();
        kept.push((store, branch));
        let steps = [forked, opened - forked, ready - opened, ready, ended - ready];
        for (times, time) in times.iter_mut().zip(steps) {
            times.push(time.as_nanos() as f64 / 1000.0);
        }
    }
    let each = (resident()? - before) / instances as f64;
    println!("\n{instances} instances on branches of a base of {base} files: {each:.0} KiB each");
    head("us", ["median", "90 %", "99 %"].into_iter());
    for (step, times) in steps.iter().zip(&times) {
        let [half, most, all] = [0.5, 0.9, 0.99].map(|share| quantile(times, share));
        println!("| {step} | {half:.1} | {most:.1} | {all:.1} |");
    }
    for (store, branch) in kept {
        drop(store);
        branch.abandon();
    }
    Ok(pool.close()?)
}

fn main() -> Outcome {
    let args: Vec<usize> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let number = |n: usize, default| args.get(n).copied().unwrap_or(default);
    let engine = Engine::default();
    let rounds = number(0, 9).max(1);
    calls(&engine, rounds)?;
    threads(&engine, rounds)?;
    instances(&engine, number(1, 10_000).max(1), number(2, 100_000))
}
