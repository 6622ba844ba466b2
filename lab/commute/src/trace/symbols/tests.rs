use super::*;

#[inline(never)]
fn somewhere() -> u32 {
    std::hint::black_box(line!())
}

#[test]
fn an_instruction_has_its_line() {
    let line = somewhere();
    let ip = somewhere as *const () as u64;
    let mut symbols = Symbols::new();
    let frame = symbols.frames(ip).last().unwrap();
    assert!(frame.function.ends_with("somewhere"), "{frame:?}");
    assert_eq!(frame.file, "lab/commute/src/trace/symbols/tests.rs");
    assert!(frame.line.abs_diff(line) <= 1, "{frame:?}");
    let library = symbols.frames(libc::getpid as *const () as u64);
    assert!(library[0].function.contains("getpid"), "{library:?}");
}

#[test]
fn names_and_files_are_short() {
    assert_eq!(shorter("a::f::h0123456789abcdef"), "a::f");
    assert_eq!(shorter("f<a::b::C<d::E>, u8>"), "f<C<E>, u8>");
    assert_eq!(from_root("/x/crates/sync/src/rcu.rs"), "crates/sync/src/rcu.rs");
    assert_eq!(from_root("/x/lab/commute/src/lib.rs"), "lab/commute/src/lib.rs");
    assert_eq!(from_root("/rustc/1/library/core/src/a.rs"), "library/core/src/a.rs");
    let registry = "/home/x/.cargo/registry/src/index-1/crossbeam-epoch-0.9/src/guard.rs";
    assert_eq!(from_root(registry), "crossbeam-epoch-0.9/src/guard.rs");
}
