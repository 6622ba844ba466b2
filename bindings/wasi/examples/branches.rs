//! Runs a program once for each word, each time on a branch of its own of one base; says what each
//! has changed, and merges all of it into the base.
//!
//! ```sh
//! cargo run --release --example branches -- [program.wasm [WORD...]]
//! ```
//!
//! Without a program, one that writes its word to a file.

use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::{ForkOptions, MergeOptions, Pool};
use vfscale_wasi::{Access, Filesystem, p1};
use wasmtime::{Engine, InstancePre, Linker, Module, Store};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Makes a pool whose branch `main` has one file. In memory here; an image file as well, by
/// `vfscale::volume(path)` and `vfscale::pool(path)`.
fn pool() -> Outcome<Pool> {
    let device = Arc::new(MemoryDevice::new(256 << 20)?);
    let volume = vfscale::volume_on(device.clone()).create(256 << 20).open()?;
    volume.task().write("/base", "common to all")?;
    volume.close()?;
    Ok(vfscale::pool_on(device).convert(true).open()?)
}

/// Runs the program on branch `word`, with `word` as its argument. Returns its status.
fn run(program: &InstancePre<p1::Guest>, pool: &Pool, word: &str) -> Outcome<i32> {
    let branch = pool.open(word)?;
    let mut files = Filesystem::new();
    files.preopen(Arc::new(branch.task()), "/", "/", Access::ReadWrite)?;
    let wasi = WasiCtxBuilder::new().inherit_stdio().args(&["program", word]).build_p1();
    let mut store = Store::new(program.module().engine(), p1::Guest::new(wasi, files));
    let instance = program.instantiate(&mut store)?;
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
    let ended = start.call(&mut store, ());
    // The guest's files are files of the branch, which is in use as long as they are.
    drop(store);
    branch.close()?;
    match ended.map_err(|error| error.downcast::<I32Exit>()) {
        Ok(()) => Ok(0),
        Err(Ok(I32Exit(status))) => Ok(status),
        Err(Err(trap)) => Err(trap.into()),
    }
}

fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    let engine = Engine::default();
    let module = match args.next() {
        Some(path) => Module::from_file(&engine, path)?,
        None => Module::new(&engine, include_str!("word.wat"))?,
    };
    let mut words: Vec<_> = args.collect();
    if words.is_empty() {
        words = vec!["left".into(), "right".into()];
    }

    let pool = pool()?;
    let mut linker = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |guest: &mut p1::Guest| guest)?;
    let program = linker.instantiate_pre(&module)?;
    for word in &words {
        pool.fork_with("main", word, ForkOptions::new().temporary(true))?;
        let status = run(&program, &pool, word)?;
        println!("{word}: status {status}");
        for difference in pool.diff("main", word)? {
            println!("{word}: {:?} {}", difference.kind, difference.path.display());
        }
    }
    for word in &words {
        let merged = pool.merge(word, "main", MergeOptions::new())?;
        println!("{word}: {} added, {} conflicts", merged.added, merged.conflicts.len());
        pool.delete(word)?;
    }
    let main = pool.open("main")?;
    for entry in main.task().walk_dir("/") {
        println!("main: {}", entry?.path.display());
    }
    main.close()?;
    pool.close()?;
    Ok(())
}
