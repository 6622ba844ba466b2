//! Tests of sizes.

use super::*;

#[test]
fn sizes_as_people_write_them() {
    for (text, bytes) in [
        ("4096", 4096),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("2g", 2 << 30),
        ("1T", 1 << 40),
        ("16k", 16 << 10),
        ("7b", 7),
        ("1.5G", 3 << 29),
        ("0.25k", 256),
        ("2.0T", 2 << 40),
        ("1.000000001M", 1 << 20),
    ] {
        assert_eq!(text.parse(), Ok(Size::Bytes(bytes)), "{text}");
    }
    assert_eq!("50%".parse(), Ok(Size::Percent(50)));
}

#[test]
fn what_is_no_size_is_refused_by_name() {
    for text in [
        "",
        "M",
        "-1",
        "+1",
        "1.G",
        ".5G",
        "1.5.5G",
        "1,5G",
        "0.0G",
        "1.5e3",
        "64X",
        "0",
        "0G",
        "0%",
        "101%",
        "%",
        "99999999999T",
        "１",
    ] {
        let refused = text.parse::<Size>().unwrap_err();
        assert!(!refused.is_empty(), "{text}");
    }
    assert!("64X".parse::<Size>().unwrap_err().contains("`64X`"));
}

#[test]
fn shares_are_of_the_memory() {
    assert_eq!(Size::Percent(50).in_bytes(1000), 500);
    assert_eq!(Size::Percent(100).in_bytes(u64::MAX), u64::MAX);
    assert_eq!(Size::Bytes(7).in_bytes(1), 7);
    assert!(Size::Percent(100).on_this_machine() > 1 << 20);
}
