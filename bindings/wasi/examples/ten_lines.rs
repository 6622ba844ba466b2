//! Runs a program whose files are in memory, and lists what it leaves there.
//!
//! ```sh
//! cargo run --release --example ten_lines -- [program.wasm]
//! ```

use std::sync::Arc;

use vfscale_wasi::{Access, Filesystem, p1};
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::WasiCtxBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::default();
    let module = match std::env::args().nth(1) {
        Some(path) => Module::from_file(&engine, path)?,
        None => Module::new(&engine, include_str!("word.wat"))?,
    };

    let tree = vfscale::memory().size(64 << 20).build()?;
    let mut files = Filesystem::new();
    files.preopen(Arc::new(tree.task()), "/", "/", Access::ReadWrite)?;
    let mut linker = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |guest: &mut p1::Guest| guest)?;
    let wasi = WasiCtxBuilder::new().inherit_stdio().args(&["program", "hello"]).build_p1();
    let mut store = Store::new(&engine, p1::Guest::new(wasi, files));
    let instance = linker.instantiate(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&mut store, "_start")?.call(&mut store, ())?;

    for entry in tree.task().walk_dir("/") {
        let entry = entry?;
        println!("{} {}", entry.metadata.len(), entry.path.display());
    }
    Ok(())
}
