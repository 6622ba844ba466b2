//! Stores that are async.

use std::sync::Arc;

use vfscale_wasi::{p1, p2};
use wasmtime::{Linker, Module, Store, component};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p2::bindings::Command;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};

use crate::puppet::{adapted, engine, root_of};
use crate::trees::Tree;

/// Copies standard input to the file `in`, and prints it.
const COPY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read"
        (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "in")
    (data (i32.const 16) "\00\01\00\00\00\01\00\00")
    (func $check (param i32) local.get 0 if unreachable end)
    (func (export "_start")
        (call $check (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 2)
            (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 8)))
        (call $check (call $read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 20)))
        (call $check (call $write (i32.load (i32.const 8)) (i32.const 16) (i32.const 1)
            (i32.const 32)))
        (call $check (call $write (i32.const 1) (i32.const 16) (i32.const 1)
            (i32.const 32)))))"#;

fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future);
}

fn wasi(stdout: &MemoryOutputPipe) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.stdin(MemoryInputPipe::new("what was typed")).stdout(stdout.clone());
    wasi
}

#[test]
fn a_module_runs() {
    run(async {
        let tree = Tree::memory();
        let stdout = MemoryOutputPipe::new(1000);
        let guest = p1::Guest::new(wasi(&stdout).build_p1(), root_of(&tree));
        let mut linker = Linker::new(engine());
        p1::add_to_linker_async(&mut linker, |guest: &mut p1::Guest| guest).unwrap();
        let mut store = Store::new(engine(), guest);
        let module = Module::new(engine(), COPY).unwrap();
        let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start").unwrap();
        start.call_async(&mut store, ()).await.unwrap();
        assert_eq!(tree.task().read("/in").unwrap(), b"what was typed");
        assert_eq!(stdout.contents(), "what was typed");
    });
}

#[test]
fn a_component_runs() {
    run(async {
        let tree = Tree::memory();
        let stdout = MemoryOutputPipe::new(1000);
        let guest = p2::Guest::new(wasi(&stdout).build(), root_of(&tree));
        let mut linker = component::Linker::new(engine());
        p2::add_to_linker_async(&mut linker).unwrap();
        let mut store = Store::new(engine(), guest);
        let adapter =
            wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER;
        let component = adapted(&wat::parse_str(COPY).unwrap(), adapter);
        let command = Command::instantiate_async(&mut store, &component, &linker).await.unwrap();
        command.wasi_cli_run().call_run(&mut store).await.unwrap().unwrap();
        assert_eq!(tree.task().read("/in").unwrap(), b"what was typed");
        assert_eq!(stdout.contents(), "what was typed");
    });
}

#[test]
fn guests_share_a_task_between_threads() {
    let tree = Tree::memory();
    let task = Arc::new(tree.task());
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let task = Arc::clone(&task);
            std::thread::spawn(move || {
                let mut files = vfscale_wasi::Filesystem::new();
                files.preopen(task, "/", "/", vfscale_wasi::Access::ReadWrite).unwrap();
                let mut guest = crate::puppet::Puppet::module(files);
                for i in 0..50 {
                    let rights = crate::puppet::WRITE;
                    let fd = guest.open(&format!("{n} {i}"), crate::puppet::CREAT, rights).unwrap();
                    assert_eq!(guest.write(fd, b"x"), 0);
                    guest.close(fd);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(task.read_dir("/").unwrap().count(), 200);
}
