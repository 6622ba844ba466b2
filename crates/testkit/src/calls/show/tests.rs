use crate::calls::op::{CWD, Data, Op, PathArg, Probe, Step};

fn shown(op: Op) -> String {
    op.to_string()
}

#[test]
fn calls_are_short_lines_with_flags_by_name() {
    let flags = (libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | 0x4000_0000) as u32;
    let open = Op::Open { at: CWD, path: "a/b".into(), flags, mode: 0o644 };
    assert_eq!(shown(open), "openat(CWD, \"a/b\", RDWR|CREAT|TRUNC|0x40000000, 0o644)");
    let flags = (libc::O_TMPFILE | libc::O_WRONLY) as u32;
    let tmpfile = Op::Open { at: 3, path: ".".into(), flags, mode: 0 };
    assert_eq!(shown(tmpfile), "openat(3, \".\", WRONLY|TMPFILE, 0o0)");
    let write = Op::Pwrite { fd: 1, data: Data::Run { seed: 7, len: 20 }, off: u64::MAX };
    assert_eq!(shown(write), "pwrite(1, 7x20, @18446744073709551615)");
    let rename = Op::Rename { at: CWD, path: "a".into(), to_at: 5, to: "b".into(), flags: 3 };
    assert_eq!(shown(rename), "renameat2(CWD, \"a\", 5, \"b\", NOREPLACE|EXCHANGE)");
    let step = Step { task: 2, op: Op::Close { fd: -1 }, probe: Some(Probe::Past) };
    assert_eq!(step.to_string(), "t2 close(-1)  [probe Past]");
}

#[test]
fn long_names_and_paths_are_shortened_and_odd_bytes_escaped() {
    assert_eq!(PathArg("l".repeat(255).into_bytes()).to_string(), "\"l*255\"");
    assert_eq!(PathArg(format!("{}f", "./".repeat(2047)).into()).to_string(), "\"(./)*2047f\"");
    assert_eq!(PathArg(b"a\xff\n".to_vec()).to_string(), "\"a\\xff\\n\"");
}

#[test]
fn numbers_of_files_without_a_name_are_left_out() {
    let plain = |text: &str| PathArg::from(text).without_numbers();
    assert_eq!(plain("/d/#123 (deleted)"), PathArg::from("/d/#N (deleted)"));
    assert_eq!(plain("/d/f"), PathArg::from("/d/f"));
}
