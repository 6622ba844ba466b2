//! How code is laid out: lengths, pages, where tests and `unsafe` live.
//!
//! Rust files are parsed, so that a brace in a string or a word in a comment deceives nobody.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The most lines of a Rust file.
pub const FILE_LINES_MAX: usize = 800;
/// The most lines of any other file.
pub const TEXT_LINES_MAX: usize = 1_000;
/// The most lines of a function's body; blank lines and lines of nothing but a comment are free.
pub const FUNCTION_LINES_MAX: usize = 70;
/// The most columns of a line of comment, rows of tables apart; the formatter looks after the code.
pub const COMMENT_COLUMNS_MAX: usize = 100;
/// The fewest lines of the page that a crate opens with.
pub const PAGE_LINES_MIN: usize = 5;

/// Folders whose files may all have `unsafe`, and why.
pub const UNSAFE_FOLDERS: &[(&str, &str)] = &[
    ("crates/sync/", "locks and structures without locks"),
    ("crates/capi/src/", "the border to C: exported names and pointers"),
];

/// Where else `unsafe` may stand, and why.
pub const UNSAFE_FILES: &[(&str, &str)] = &[
    ("crates/vfs/src/objects/dcache/dentry.rs", "dentry memory"),
    ("crates/vfs/src/objects/dcache/dentry/make.rs", "dentry memory"),
    ("crates/vfs/src/objects/dcache/dentry/inline_name.rs", "dentry memory"),
    ("crates/vfs/src/objects/dcache/dentry/inline_name/tests.rs", "dentry memory"),
    ("crates/vfs/src/objects/dcache/aliases.rs", "dentries on the list of an inode"),
    ("crates/vfs/src/objects/inode.rs", "inode memory"),
    ("crates/vfs/src/objects/inode/inode_ref.rs", "inode memory"),
    ("crates/vfs/src/objects/inode/private.rs", "inode memory"),
    ("crates/vfs/src/objects/icache.rs", "inodes on the lists of a superblock"),
    ("crates/vfs/src/objects/super_block.rs", "dentry and inode memory belong to a superblock"),
    ("crates/vfs/src/objects/super_block/inodes.rs", "inode memory belongs to a superblock"),
    ("crates/vfs/src/objects/super_block/remounts.rs", "mounts are listed by their superblock"),
    (
        "crates/vfs/src/objects/super_ref.rs",
        "the memory of a superblock, which dentries and inodes belong to",
    ),
    ("crates/vfs/src/objects/take_down.rs", "dentries and inodes that go with their superblock"),
    ("crates/vfs/src/objects/vfsmount.rs", "mount memory"),
    ("crates/vfs/src/mount/change.rs", "mounts in the mount hash"),
    ("crates/vfs/src/mount/vfs_shared.rs", "mounts in the mount hash"),
    ("crates/vfs/src/syscalls/create.rs", "dentries in children tables"),
    ("crates/vfs/src/objects/dcache/children.rs", "dentries in children tables"),
    ("crates/vfs/tests/all/linux_locks.rs", "system calls: fcntl"),
    ("crates/cli/tests/all/live.rs", "system calls: mmap, write"),
    ("crates/cli/tests/common/network.rs", "system calls: unshare, setns, shutdown"),
    ("crates/fuse/tests/all/idmap.rs", "system calls: mount_setattr"),
    ("bindings/python/src/buffer.rs", "the border to Python: the memory of its objects"),
    ("crates/block/src/file/sys.rs", "system calls: ioctl, fcntl"),
    ("crates/block/src/file/ring.rs", "system calls: io_uring"),
    ("crates/block/src/rbd/library.rs", "the border to Ceph: functions found at run time"),
    ("crates/block/src/rbd/image.rs", "the border to Ceph: clusters, pools and images"),
    ("crates/block/src/rbd/requests.rs", "the border to Ceph: memory of requests in flight"),
    ("lab/commute/src/trace/arena.rs", "an allocator"),
    ("lab/commute/src/trace/arena/tests.rs", "an allocator"),
    ("lab/commute/src/trace/memory.rs", "system calls: mappings"),
    ("lab/commute/src/trace/record/code.rs", "copies of code"),
    ("lab/commute/src/trace/record/context.rs", "registers of copied code"),
    ("lab/commute/src/trace/record/recorder.rs", "registers of copied code"),
    ("lab/commute/src/trace/record/tests.rs", "a system call to be recorded"),
    ("lab/commute/src/runner.rs", "system calls: the clock"),
    ("lab/commute/src/trace/symbols.rs", "system calls: where the program lies"),
    ("crates/testkit/src/world/sys.rs", "system calls"),
    ("lab/bench/src/base/sys.rs", "system calls: working directories, handles"),
    ("crates/vfscale/tests/forks.rs", "system calls: fork"),
    ("crates/vfscale/tests/sandbox.rs", "system calls: prctl, seccomp"),
    ("crates/fuse/src/control.rs", "system calls: ioctl"),
    ("crates/fuse/src/base/device.rs", "system calls: the device"),
    ("crates/fuse/src/uring/queue.rs", "system calls: io_uring"),
    ("crates/cli/src/run/front.rs", "system calls: fork"),
    ("crates/cli/src/elsewhere.rs", "system calls: fork"),
    ("crates/cli/src/native/mounts.rs", "system calls: unshare"),
    ("crates/command/src/signals.rs", "system calls: signal masks"),
    ("crates/command/src/views.rs", "system calls: fcntl"),
    ("crates/fuse/tests/common/mod.rs", "system calls: credentials of a child"),
    ("crates/memfs/tests/idle_cpu.rs", "an allocator that counts"),
    ("crates/fuse/tests/all/data.rs", "system calls: shared mappings"),
    ("crates/fuse/tests/all/direct.rs", "system calls: asynchronous I/O"),
    ("crates/fuse/tests/all/locks.rs", "system calls: fcntl, fork"),
    ("crates/fuse/tests/all/permissions.rs", "system calls: credentials of a child"),
];

/// Folders whose tests may sleep, and why. Elsewhere they wait by `vfscale-harness`, with a limit.
pub const SLEEP_FOLDERS: &[(&str, &str)] = &[
    ("crates/harness/", "the waits themselves"),
    ("crates/crashtest/", "its sleeps are moments of a crash"),
    ("lab/", "the bench measures time"),
];

/// A file of the repository.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its path from the root, with `/`.
    pub path: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl Source<'_> {
    /// Returns whether it is a sibling file of tests, a test of a whole crate, a benchmark, or an
    /// example.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || ["/tests/", "/benches/", "/examples/"].iter().any(|dir| self.path.contains(dir))
    }

    fn is_crate_root(&self) -> bool {
        self.path.ends_with("src/lib.rs") || self.path.ends_with("src/main.rs")
    }

    fn may_be_unsafe(&self) -> bool {
        UNSAFE_FOLDERS.iter().any(|(folder, _)| self.path.starts_with(folder))
            || UNSAFE_FILES.iter().any(|(path, _)| *path == self.path)
    }

    fn may_sleep(&self) -> bool {
        !self.is_test()
            || self.path.contains("/examples/")
            || SLEEP_FOLDERS.iter().any(|(folder, _)| self.path.starts_with(folder))
    }

    /// Returns whether line number `line`, from 1, is blank or only a comment.
    fn is_free_line(&self, line: usize) -> bool {
        let text = self.text.lines().nth(line - 1).unwrap_or_default().trim();
        text.is_empty() || text.starts_with("//")
    }
}

/// Returns a complaint if a file of any kind has too many lines.
pub fn length_complaint(source: Source<'_>) -> Option<String> {
    let lines = source.text.lines().count();
    let most = if source.path.ends_with(".rs") { FILE_LINES_MAX } else { TEXT_LINES_MAX };
    (lines > most).then(|| format!("{}: {lines} lines, {most} at most", source.path))
}

/// Returns the complaints about a Rust file, except its length.
pub fn complaints(source: Source<'_>) -> Vec<String> {
    let file = match syn::parse_file(source.text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{}: not Rust: {error}", source.path)],
    };
    let mut inspector = Inspector { source, found: Vec::new() };
    inspector.page(&file);
    inspector.lines();
    inspector.visit_file(&file);
    if let Ok(tokens) = source.text.parse::<TokenStream>() {
        inspector.unsafe_words(tokens);
    }
    inspector.found
}

/// Returns whether one of the attributes is `#[name]`, or `#[....name]` such as `#[tokio::test]`.
fn has_attribute(attributes: &[syn::Attribute], name: &str) -> bool {
    attributes.iter().any(|a| a.path().segments.last().is_some_and(|s| s.ident == name))
}

/// Returns whether `#[cfg(...)]` names `test`.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let names_test = |list: &syn::MetaList| has_word(list.tokens.clone(), "test");
    attributes.iter().any(|a| {
        a.path().is_ident("cfg") && matches!(&a.meta, syn::Meta::List(list) if names_test(list))
    })
}

fn has_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Group(group) => has_word(group.stream(), word),
        TokenTree::Ident(ident) => ident == word,
        _ => false,
    })
}

struct Inspector<'a> {
    source: Source<'a>,
    found: Vec<String>,
}

impl Inspector<'_> {
    fn complain(&mut self, line: usize, what: &str) {
        self.found.push(format!("{}:{line}: {what}", self.source.path));
    }

    /// Checks that every file except tests begins with a page, and a crate with a longer one.
    fn page(&mut self, file: &syn::File) {
        let is_doc = |a: &&syn::Attribute| {
            a.path().is_ident("doc") && matches!(a.style, syn::AttrStyle::Inner(_))
        };
        let lines = file.attrs.iter().filter(is_doc).count();
        if self.source.is_crate_root() && lines < PAGE_LINES_MIN {
            self.complain(1, "a crate opens with a page: purpose, invariants, who holds what");
        } else if lines == 0 && !self.source.is_test() {
            self.complain(1, "a module opens with what it is (`//!`)");
        }
    }

    fn lines(&mut self) {
        for (index, line) in self.source.text.lines().enumerate() {
            if line.contains("thread::sleep") && !self.source.may_sleep() {
                let what = "tests wait by vfscale_harness: wait_until, stays, pause";
                self.complain(index + 1, what);
            }
            let is_prose = line.trim_start().starts_with("//") && !line.contains(" | ");
            let columns = line.chars().count();
            if is_prose && columns > COMMENT_COLUMNS_MAX {
                let what = format!("{columns} columns of comment, {COMMENT_COLUMNS_MAX} at most");
                self.complain(index + 1, &what);
            }
        }
    }

    fn unsafe_words(&mut self, tokens: TokenStream) {
        if self.source.may_be_unsafe() {
            return;
        }
        for tree in tokens {
            match tree {
                TokenTree::Group(group) => self.unsafe_words(group.stream()),
                TokenTree::Ident(ident) if ident == "unsafe" => self.complain(
                    ident.span().start().line,
                    "`unsafe` outside of the files that may have it (UNSAFE_FILES)",
                ),
                _ => {}
            }
        }
    }

    fn body(&mut self, name: &syn::Ident, body: &syn::Block) {
        let braces = body.brace_token.span;
        let (from, to) = (braces.open().start().line, braces.close().end().line);
        let lines = (from + 1..to).filter(|line| !self.source.is_free_line(*line)).count();
        if lines > FUNCTION_LINES_MAX {
            self.complain(from, &format!("{name} has {lines} lines, {FUNCTION_LINES_MAX} at most"));
        }
    }

    fn lint_levels(&mut self, attributes: &[syn::Attribute]) {
        for attribute in attributes {
            let loosens = attribute.path().is_ident("allow") || attribute.path().is_ident("expect");
            let syn::Meta::List(list) = &attribute.meta else { continue };
            let of_length = ["too_many_lines", "cognitive_complexity"]
                .iter()
                .any(|lint| has_word(list.tokens.clone(), lint));
            if loosens && of_length {
                let line = attribute.pound_token.span.start().line;
                self.complain(line, "split the function instead of allowing its length");
            }
        }
    }
}

impl<'ast> Visit<'ast> for Inspector<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        self.lint_levels(std::slice::from_ref(attribute));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig.ident, &item.block);
        if has_attribute(&item.attrs, "test") && !self.source.is_test() {
            self.complain(item.sig.ident.span().start().line, "tests live in a sibling file");
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.body(&item.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) && item.content.is_some() && !self.source.is_test() {
            self.complain(item.ident.span().start().line, "tests live in a sibling file");
        }
        visit::visit_item_mod(self, item);
    }
}

#[cfg(test)]
mod tests;
