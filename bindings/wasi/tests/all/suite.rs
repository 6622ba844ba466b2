//! The test-suite of WASI, if there is one: `VFSCALE_WASI_TESTSUITE` is the folder `tests` of its
//! branch of compiled tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vfscale::Transfer;
use vfscale_wasi::{Access, Filesystem, p1, p2};
use wasi_preview1_component_adapter_provider as adapters;
use wasmtime::component;
use wasmtime::{Linker, Module, Store};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

use crate::puppet::{adapted, engine};
use crate::trees::Tree;

/// One test of the suite.
struct Case {
    program: PathBuf,
    spec: Value,
}

impl Case {
    fn strings(&self, key: &str) -> Vec<String> {
        let list = self.spec[key].as_array().cloned().unwrap_or_default();
        list.iter().map(|value| value.as_str().unwrap().to_string()).collect()
    }

    fn wasi(&self, stdout: &MemoryOutputPipe) -> WasiCtxBuilder {
        let mut wasi = WasiCtxBuilder::new();
        wasi.arg("test.wasm").args(&self.strings("args")).stdout(stdout.clone()).inherit_stderr();
        for (name, value) in self.spec["env"].as_object().into_iter().flatten() {
            wasi.env(name, value.as_str().unwrap());
        }
        wasi
    }

    fn files(&self, tree: &Tree) -> Filesystem {
        let mut files = Filesystem::new();
        if let Some(root) = self.spec["root"].as_str() {
            let task = Arc::new(tree.task());
            let from = self.program.with_file_name(root);
            Transfer::new().import(&task, from, "/root").unwrap();
            files.preopen(task, "/root", "/", Access::ReadWrite).unwrap();
        }
        files
    }

    /// Returns what is wrong, if anything.
    fn outcome(
        &self,
        ended: wasmtime::Result<()>,
        stdout: &MemoryOutputPipe,
    ) -> Result<(), String> {
        let status = match ended {
            Ok(()) => 0,
            Err(error) => match error.downcast::<I32Exit>() {
                Ok(I32Exit(status)) => status.into(),
                Err(error) => return Err(format!("{error:?}")),
            },
        };
        if status != self.spec["exit_code"].as_i64().unwrap_or(0) {
            return Err(format!("status {status}"));
        }
        let printed = stdout.contents();
        match self.spec["stdout"].as_str() {
            Some(text) if printed != text => Err(format!("printed {printed:?}")),
            _ => Ok(()),
        }
    }

    fn run_module(&self, module: &Module, tree: &Tree) -> Result<(), String> {
        let stdout = MemoryOutputPipe::new(1 << 20);
        let guest = p1::Guest::new(self.wasi(&stdout).build_p1(), self.files(tree));
        let mut linker = Linker::new(engine());
        p1::add_to_linker_sync(&mut linker, |guest: &mut p1::Guest| guest).unwrap();
        let mut store = Store::new(engine(), guest);
        let instance = linker.instantiate(&mut store, module).unwrap();
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start").unwrap();
        self.outcome(start.call(&mut store, ()), &stdout)
    }

    fn run_component(&self, tree: &Tree) -> Result<(), String> {
        let stdout = MemoryOutputPipe::new(1 << 20);
        let guest = p2::Guest::new(self.wasi(&stdout).build(), self.files(tree));
        let mut linker = component::Linker::new(engine());
        p2::add_to_linker_sync(&mut linker).unwrap();
        let mut store = Store::new(engine(), guest);
        let module = std::fs::read(&self.program).unwrap();
        let component = adapted(&module, adapters::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER);
        let command = Command::instantiate(&mut store, &component, &linker).unwrap();
        let ended = command.wasi_cli_run().call_run(&mut store);
        let ended = ended.and_then(|ended| ended.map_err(|()| I32Exit(1).into()));
        self.outcome(ended, &stdout)
    }
}

fn cases(folder: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for language in ["assemblyscript", "c", "rust"] {
        let folder = folder.join(language).join("testsuite/wasm32-wasip1");
        for entry in std::fs::read_dir(&folder).unwrap() {
            let program = entry.unwrap().path();
            if program.extension().is_none_or(|extension| extension != "wasm") {
                continue;
            }
            let spec = std::fs::read_to_string(program.with_extension("json"));
            let spec = spec.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
            cases.push(Case { program, spec });
        }
    }
    cases.sort_by(|a, b| a.program.cmp(&b.program));
    assert!(!cases.is_empty(), "no tests below {}", folder.display());
    cases
}

/// Programs that the adapter from preview 1 to preview 2 fails, whatever the file system.
const NOT_ADAPTED: &[&str] = &[];

#[test]
fn the_suite_passes() {
    let Some(folder) = std::env::var_os("VFSCALE_WASI_TESTSUITE") else {
        println!(
            "######## SKIPPED: the test-suite of WASI: VFSCALE_WASI_TESTSUITE names no folder"
        );
        return;
    };
    let cases = cases(Path::new(&folder));
    let mut failed = Vec::new();
    for case in &cases {
        let name = case.program.file_stem().unwrap().to_str().unwrap();
        let module = Module::from_file(engine(), &case.program).unwrap();
        for (kind, tree) in ["memory", "volume", "branch"].into_iter().zip(Tree::all()) {
            if let Err(why) = case.run_module(&module, &tree) {
                failed.push(format!("{name} as a module, {kind}: {why}"));
            }
        }
        if NOT_ADAPTED.contains(&name) {
            continue;
        }
        if let Err(why) = case.run_component(&Tree::memory()) {
            failed.push(format!("{name} as a component: {why}"));
        }
    }
    println!("{} tests of the suite, {} failures", cases.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
