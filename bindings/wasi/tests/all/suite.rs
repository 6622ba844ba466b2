//! The test-suite of WASI, if there is one: `VFSCALE_WASI_TESTSUITE` is the folder `tests` of its
//! branch of compiled tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vfscale::Transfer;
use vfscale_wasi::{Access, Filesystem, p1, p2};
use wasi_preview1_component_adapter_provider as adapters;
use wasmtime::component::{self, Component, ResourceTable};
use wasmtime::{Linker, Module, Store};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::puppet::{adapted, engine};
use crate::trees::Tree;

/// Programs that fail as components in `wasmtime_wasi` too, with the reason. All pass as modules.
const NOT_ADAPTED: &[(&str, &str)] = &[
    ("args_get-multiple-arguments", "an assertion of the adapter fails (line 2858)"),
    ("environ_get-multiple-variables", "an assertion of the adapter fails (line 2858)"),
    ("fd_write-to-invalid-fd", "the adapter passes no write without buffers on"),
    ("proc_exit-failure", "a component has no other status than success and failure"),
];

/// One test of the suite.
struct Case {
    program: PathBuf,
    spec: Value,
}

/// The state of a component with files of the host.
struct OfHost(WasiCtx, ResourceTable);

impl WasiView for OfHost {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.0, table: &mut self.1 }
    }
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

    fn component(&self) -> Component {
        let module = std::fs::read(&self.program).unwrap();
        adapted(&module, adapters::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
    }

    fn run_component(&self, component: &Component, tree: &Tree) -> Result<(), String> {
        let stdout = MemoryOutputPipe::new(1 << 20);
        let guest = p2::Guest::new(self.wasi(&stdout).build(), self.files(tree));
        let mut linker = component::Linker::new(engine());
        p2::add_to_linker_sync(&mut linker).unwrap();
        self.command(component, &linker, guest, &stdout)
    }

    /// Runs the program with the files of the host that `wasmtime_wasi` gives it.
    fn run_component_of_host(&self, component: &Component) -> Result<(), String> {
        let stdout = MemoryOutputPipe::new(1 << 20);
        let mut wasi = self.wasi(&stdout);
        let folder = tempfile::tempdir().unwrap();
        if let Some(root) = self.spec["root"].as_str() {
            let tree = vfscale::memory().size(1 << 20).build().unwrap().task();
            Transfer::new().import(&tree, self.program.with_file_name(root), "/root").unwrap();
            Transfer::new().export(&tree, "/root", folder.path().join("root")).unwrap();
            wasi.preopened_dir(folder.path().join("root"), "/", FsPerms::ReadWrite).unwrap();
        }
        let data = OfHost(wasi.build(), ResourceTable::new());
        let mut linker = component::Linker::new(engine());
        wasmtime_wasi::p2::add_to_linker_sync(&mut linker).unwrap();
        self.command(component, &linker, data, &stdout)
    }

    fn command<T: Send + 'static>(
        &self,
        component: &Component,
        linker: &component::Linker<T>,
        data: T,
        stdout: &MemoryOutputPipe,
    ) -> Result<(), String> {
        let mut store = Store::new(engine(), data);
        let command = Command::instantiate(&mut store, component, linker).unwrap();
        let ended = command.wasi_cli_run().call_run(&mut store);
        let ended = ended.and_then(|ended| ended.map_err(|()| I32Exit(1).into()));
        self.outcome(ended, stdout)
    }

    /// Runs the program in both hosts. Returns what is wrong, if anything.
    fn failures(&self) -> Vec<String> {
        let name = self.name();
        let mut failed = Vec::new();
        let module = Module::from_file(engine(), &self.program).unwrap();
        for (kind, tree) in ["memory", "volume", "branch"].into_iter().zip(Tree::all()) {
            if let Err(why) = self.run_module(&module, &tree) {
                failed.push(format!("{name} as a module, {kind}: {why}"));
            }
        }
        let component = self.component();
        let ended = self.run_component(&component, &Tree::memory());
        match (ended, NOT_ADAPTED.iter().find(|(known, _)| *known == name)) {
            (Ok(()), None) => {}
            (Err(why), None) => failed.push(format!("{name} as a component: {why}")),
            (Ok(()), Some(_)) => failed.push(format!("{name} passes, and is in NOT_ADAPTED")),
            (Err(_), Some((_, reason))) => match self.run_component_of_host(&component) {
                Err(_) => println!("{name} as a component fails in wasmtime_wasi too: {reason}"),
                Ok(()) => failed.push(format!("{name} passes in wasmtime_wasi")),
            },
        }
        failed
    }

    fn name(&self) -> &str {
        self.program.file_stem().unwrap().to_str().unwrap()
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

#[test]
fn the_suite_passes() {
    let Some(folder) = std::env::var_os("VFSCALE_WASI_TESTSUITE") else {
        println!(
            "######## SKIPPED: the test-suite of WASI: VFSCALE_WASI_TESTSUITE names no folder"
        );
        return;
    };
    let cases = cases(Path::new(&folder));
    let failed: Vec<_> = cases.iter().flat_map(Case::failures).collect();
    println!("{} tests of the suite, {} failures", cases.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
