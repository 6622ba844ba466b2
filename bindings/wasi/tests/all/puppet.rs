//! A guest that makes the calls that a test tells it: as a module, and as a component, by the
//! adapter from preview 1 to preview 2 that ordinary programs of preview 2 contain.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use vfscale_wasi::{Access, Filesystem, p1, p2};
use wasi_preview1_component_adapter_provider as adapters;
use wasmtime::component::{self, Component};
use wasmtime::{Engine, Instance, Linker, Module, Store, Val};
use wasmtime_wasi::WasiCtxBuilder;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::trees::Tree;

/// The functions of preview 1, with the types of their parameters: `i` has 32 bits, `I` 64.
const FUNCTIONS: &[(&str, &str)] = &[
    ("fd_advise", "iIIi"),
    ("fd_allocate", "iII"),
    ("fd_close", "i"),
    ("fd_datasync", "i"),
    ("fd_fdstat_get", "ii"),
    ("fd_fdstat_set_flags", "ii"),
    ("fd_filestat_get", "ii"),
    ("fd_filestat_set_size", "iI"),
    ("fd_filestat_set_times", "iIIi"),
    ("fd_pread", "iiiIi"),
    ("fd_prestat_get", "ii"),
    ("fd_prestat_dir_name", "iii"),
    ("fd_pwrite", "iiiIi"),
    ("fd_read", "iiii"),
    ("fd_readdir", "iiiIi"),
    ("fd_renumber", "ii"),
    ("fd_seek", "iIii"),
    ("fd_sync", "i"),
    ("fd_tell", "ii"),
    ("fd_write", "iiii"),
    ("path_create_directory", "iii"),
    ("path_filestat_get", "iiiii"),
    ("path_filestat_set_times", "iiiiIIi"),
    ("path_link", "iiiiiii"),
    ("path_open", "iiiiiIIii"),
    ("path_readlink", "iiiiii"),
    ("path_remove_directory", "iii"),
    ("path_rename", "iiiiii"),
    ("path_symlink", "iiiii"),
    ("path_unlink_file", "iii"),
    ("poll_oneoff", "iiii"),
];

pub const OUT: u32 = 0x100;
pub const IOVS: u32 = 0x200;
pub const PATH: u32 = 0x1000;
pub const PATH2: u32 = 0x3000;
pub const DATA: u32 = 0x10000;

pub const CREAT: u32 = 1;
pub const DIRECTORY: u32 = 2;
pub const EXCL: u32 = 4;
pub const TRUNC: u32 = 8;
pub const APPEND: u32 = 1;
pub const READ: u64 = 1 << 1;
pub const WRITE: u64 = 1 << 6;
pub const FOLLOW: u32 = 1;

pub const ACCES: i32 = 2;
pub const BADF: i32 = 8;
pub const EXIST: i32 = 20;
pub const INVAL: i32 = 28;
pub const ISDIR: i32 = 31;
pub const LOOP: i32 = 32;
pub const NOENT: i32 = 44;
pub const NOTDIR: i32 = 54;
pub const NOTEMPTY: i32 = 55;
pub const PERM: i32 = 63;
pub const ROFS: i32 = 69;

/// The first preopened directory.
pub const ROOT: u32 = 3;

pub fn engine() -> &'static Engine {
    static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::default);
    &ENGINE
}

fn text() -> String {
    let mut text = String::from("(module\n");
    let kinds = |params: &str| -> String {
        params.chars().map(|kind| if kind == 'i' { " i32" } else { " i64" }).collect()
    };
    for (name, params) in FUNCTIONS {
        let kinds = kinds(params);
        let module = "wasi_snapshot_preview1";
        writeln!(
            text,
            "(import \"{module}\" \"{name}\" (func ${name} (param{kinds}) (result i32)))"
        )
        .unwrap();
    }
    for (name, params) in FUNCTIONS {
        let (export, kinds) = (name.replace('_', "-"), kinds(params));
        let gets: String = (0..params.len()).map(|n| format!(" local.get {n}")).collect();
        writeln!(
            text,
            "(func (export \"{export}\") (param{kinds}) (result i32){gets} call ${name})"
        )
        .unwrap();
    }
    text + "(memory (export \"memory\") 8)
        (func (export \"peek\") (param i32) (result i64) local.get 0 i64.load)
        (func (export \"poke\") (param i32 i64) local.get 0 local.get 1 i64.store))"
}

fn world() -> String {
    let mut text = String::from("package test:puppet;\nworld puppet {\n");
    for (name, params) in FUNCTIONS {
        let kind = |(n, kind)| format!("p{n}: {}", if kind == 'i' { "u32" } else { "u64" });
        let params: Vec<_> = params.chars().enumerate().map(kind).collect();
        writeln!(text, "export {}: func({}) -> u32;", name.replace('_', "-"), params.join(", "))
            .unwrap();
    }
    text + "export peek: func(at: u32) -> u64;\nexport poke: func(at: u32, value: u64);\n}"
}

fn module() -> &'static Module {
    static MODULE: LazyLock<Module> = LazyLock::new(|| Module::new(engine(), text()).unwrap());
    &MODULE
}

/// Makes a component of a module that has its metadata, or of a command, which needs none.
pub fn adapted(module: &[u8], adapter: &[u8]) -> Component {
    let mut encoder = ComponentEncoder::default().module(module).unwrap();
    encoder = encoder.adapter("wasi_snapshot_preview1", adapter).unwrap();
    Component::new(engine(), encoder.encode().unwrap()).unwrap()
}

fn component() -> &'static Component {
    static COMPONENT: LazyLock<Component> = LazyLock::new(|| {
        let mut resolve = wit_parser::Resolve::default();
        let package = resolve.push_source("puppet.wit", &world()).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        let mut bytes = wat::parse_str(text()).unwrap();
        embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).unwrap();
        adapted(&bytes, adapters::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)
    });
    &COMPONENT
}

/// A guest, in one of the hosts.
pub enum Puppet {
    Module(Store<p1::Guest>, Instance),
    Component(Store<p2::Guest>, component::Instance),
}

impl Puppet {
    pub fn module(files: Filesystem) -> Puppet {
        let mut linker = Linker::new(engine());
        p1::add_to_linker_sync(&mut linker, |guest: &mut p1::Guest| guest).unwrap();
        let wasi = WasiCtxBuilder::new().build_p1();
        let mut store = Store::new(engine(), p1::Guest::new(wasi, files));
        let instance = linker.instantiate(&mut store, module()).unwrap();
        Puppet::Module(store, instance)
    }

    pub fn component(files: Filesystem) -> Puppet {
        let mut linker = component::Linker::new(engine());
        p2::add_to_linker_sync(&mut linker).unwrap();
        let wasi = WasiCtxBuilder::new().build();
        let mut store = Store::new(engine(), p2::Guest::new(wasi, files));
        let instance = linker.instantiate(&mut store, component()).unwrap();
        Puppet::Component(store, instance)
    }

    /// Returns both guests, each with the directories of one call of `files`.
    pub fn both(files: impl Fn() -> Filesystem) -> [Puppet; 2] {
        [Puppet::module(files()), Puppet::component(files())]
    }

    pub fn is_module(&self) -> bool {
        matches!(self, Puppet::Module(..))
    }

    /// Makes a call; an error is that the guest has ended.
    pub fn try_call(&mut self, name: &str, args: &[u64]) -> wasmtime::Result<i32> {
        let (_, params) = FUNCTIONS.iter().find(|(function, _)| *function == name).unwrap();
        assert_eq!(params.len(), args.len(), "{name}");
        let name = name.replace('_', "-");
        let args = params.chars().zip(args);
        match self {
            Puppet::Module(store, instance) => {
                let value = |(kind, &arg): (char, &u64)| match kind {
                    'i' => Val::I32(arg as i32),
                    _ => Val::I64(arg as i64),
                };
                let args: Vec<_> = args.map(value).collect();
                let mut results = [Val::I32(-1)];
                let function = instance.get_func(&mut *store, &name).unwrap();
                function.call(store, &args, &mut results)?;
                Ok(results[0].unwrap_i32())
            }
            Puppet::Component(store, instance) => {
                let value = |(kind, &arg): (char, &u64)| match kind {
                    'i' => component::Val::U32(arg as u32),
                    _ => component::Val::U64(arg),
                };
                let args: Vec<_> = args.map(value).collect();
                let mut results = [component::Val::U32(0)];
                let function = instance.get_func(&mut *store, &name).unwrap();
                function.call(store, &args, &mut results)?;
                let component::Val::U32(number) = results[0] else { unreachable!() };
                Ok(number as i32)
            }
        }
    }

    pub fn call(&mut self, name: &str, args: &[u64]) -> i32 {
        self.try_call(name, args).unwrap()
    }

    pub fn peek(&mut self, at: u32) -> u64 {
        match self {
            Puppet::Module(store, instance) => {
                let peek = instance.get_typed_func::<u32, u64>(&mut *store, "peek").unwrap();
                peek.call(store, at).unwrap()
            }
            Puppet::Component(store, instance) => {
                let peek = instance.get_typed_func::<(u32,), (u64,)>(&mut *store, "peek").unwrap();
                peek.call(store, (at,)).unwrap().0
            }
        }
    }

    pub fn poke(&mut self, at: u32, value: u64) {
        match self {
            Puppet::Module(store, instance) => {
                let poke = instance.get_typed_func::<(u32, u64), ()>(&mut *store, "poke").unwrap();
                poke.call(store, (at, value)).unwrap();
            }
            Puppet::Component(store, instance) => {
                let poke = instance.get_typed_func::<(u32, u64), ()>(&mut *store, "poke").unwrap();
                poke.call(store, (at, value)).unwrap();
            }
        }
    }

    pub fn put(&mut self, at: u32, bytes: &[u8]) {
        for (n, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.poke(at + 8 * n as u32, u64::from_le_bytes(word));
        }
    }

    pub fn get(&mut self, at: u32, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).map(|n| self.peek(at + 8 * n as u32).to_le_bytes());
        let mut bytes: Vec<_> = words.flatten().collect();
        bytes.truncate(len);
        bytes
    }

    /// Calls a function on a path: the descriptor, the path, and more arguments.
    pub fn on_path(&mut self, name: &str, dir: u32, path: &str, more: &[u64]) -> i32 {
        self.put(PATH, path.as_bytes());
        let mut args = vec![dir.into(), PATH.into(), path.len() as u64];
        args.extend(more);
        self.call(name, &args)
    }

    pub fn make_dir(&mut self, dir: u32, path: &str) -> i32 {
        self.on_path("path_create_directory", dir, path, &[])
    }

    pub fn remove_dir(&mut self, dir: u32, path: &str) -> i32 {
        self.on_path("path_remove_directory", dir, path, &[])
    }

    pub fn unlink(&mut self, dir: u32, path: &str) -> i32 {
        self.on_path("path_unlink_file", dir, path, &[])
    }

    pub fn rename(&mut self, old: &str, new: &str) -> i32 {
        self.put(PATH2, new.as_bytes());
        let more = [ROOT.into(), PATH2.into(), new.len() as u64];
        self.on_path("path_rename", ROOT, old, &more)
    }

    pub fn link(&mut self, flags: u32, old: &str, new: &str) -> i32 {
        self.put(PATH, old.as_bytes());
        self.put(PATH2, new.as_bytes());
        let old = [PATH.into(), old.len() as u64];
        let new = [PATH2.into(), new.len() as u64];
        let (flags, root) = (flags.into(), ROOT.into());
        self.call("path_link", &[root, flags, old[0], old[1], root, new[0], new[1]])
    }

    pub fn symlink(&mut self, target: &str, path: &str) -> i32 {
        self.put(PATH, target.as_bytes());
        self.put(PATH2, path.as_bytes());
        let (target, path) = (target.len() as u64, path.len() as u64);
        self.call("path_symlink", &[PATH.into(), target, ROOT.into(), PATH2.into(), path])
    }

    pub fn read_link(&mut self, path: &str) -> Result<String, i32> {
        let more = [DATA.into(), 4096, OUT.into()];
        match self.on_path("path_readlink", ROOT, path, &more) {
            0 => {
                let len = self.peek(OUT) as u32 as usize;
                Ok(String::from_utf8(self.get(DATA, len)).unwrap())
            }
            number => Err(number),
        }
    }

    /// Returns size and type, or the number of the error.
    pub fn stat(&mut self, flags: u32, path: &str) -> Result<(u64, u8), i32> {
        self.put(PATH, path.as_bytes());
        let len = path.len() as u64;
        let args = [ROOT.into(), flags.into(), PATH.into(), len, OUT.into()];
        match self.call("path_filestat_get", &args) {
            0 => Ok((self.peek(OUT + 32), self.peek(OUT + 16) as u8)),
            number => Err(number),
        }
    }

    pub fn open(&mut self, path: &str, oflags: u32, rights: u64) -> Result<u32, i32> {
        self.open_at(ROOT, FOLLOW, path, oflags, rights, 0)
    }

    pub fn open_at(
        &mut self,
        dir: u32,
        lookup: u32,
        path: &str,
        oflags: u32,
        rights: u64,
        flags: u32,
    ) -> Result<u32, i32> {
        self.put(PATH, path.as_bytes());
        let [dir, lookup, oflags, flags] = [dir, lookup, oflags, flags].map(u64::from);
        let (at, len) = (PATH.into(), path.len() as u64);
        let args = [dir, lookup, at, len, oflags, rights, 0, flags, OUT.into()];
        match self.call("path_open", &args) {
            0 => Ok(self.peek(OUT) as u32),
            number => Err(number),
        }
    }

    pub fn close(&mut self, fd: u32) {
        assert_eq!(self.call("fd_close", &[fd.into()]), 0);
    }

    /// Writes at the descriptor's position, of which all has to be written.
    pub fn write(&mut self, fd: u32, bytes: &[u8]) -> i32 {
        self.put(DATA, bytes);
        self.poke(IOVS, u64::from(DATA) | (bytes.len() as u64) << 32);
        let number = self.call("fd_write", &[fd.into(), IOVS.into(), 1, OUT.into()]);
        if number == 0 {
            assert_eq!(self.peek(OUT) as u32 as usize, bytes.len());
        }
        number
    }

    pub fn read(&mut self, fd: u32, len: usize) -> Result<Vec<u8>, i32> {
        self.poke(IOVS, u64::from(DATA) | (len as u64) << 32);
        match self.call("fd_read", &[fd.into(), IOVS.into(), 1, OUT.into()]) {
            0 => {
                let len = self.peek(OUT) as u32 as usize;
                Ok(self.get(DATA, len))
            }
            number => Err(number),
        }
    }

    pub fn seek(&mut self, fd: u32, offset: i64, whence: u32) -> Result<u64, i32> {
        match self.call("fd_seek", &[fd.into(), offset as u64, whence.into(), OUT.into()]) {
            0 => Ok(self.peek(OUT)),
            number => Err(number),
        }
    }

    /// Returns the names in a directory, read by buffers of `len` bytes.
    pub fn names(&mut self, fd: u32, len: u32) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0u64);
        loop {
            let args = [fd.into(), DATA.into(), len.into(), cookie, OUT.into()];
            assert_eq!(self.call("fd_readdir", &args), 0);
            let used = self.peek(OUT) as u32 as usize;
            let bytes = self.get(DATA, used);
            let mut rest = &bytes[..];
            while rest.len() >= 24 {
                let name_len = u32::from_le_bytes(rest[16..20].try_into().unwrap()) as usize;
                let Some(name) = rest.get(24..24 + name_len) else { break };
                cookie = u64::from_le_bytes(rest[0..8].try_into().unwrap());
                names.push(String::from_utf8(name.to_vec()).unwrap());
                rest = &rest[24 + name_len..];
            }
            if used < len as usize {
                return names;
            }
        }
    }
}

/// Preopens the root of a tree, with all privileges.
pub fn root_of(tree: &Tree) -> Filesystem {
    let mut files = Filesystem::new();
    files.preopen(Arc::new(tree.task()), "/", "/", Access::ReadWrite).unwrap();
    files
}

/// Runs a test in both hosts on a tree of each kind.
pub fn everywhere(test: impl Fn(&mut Puppet, &Tree)) {
    for host in [Puppet::module, Puppet::component] {
        for tree in Tree::all() {
            test(&mut host(root_of(&tree)), &tree);
        }
    }
}
