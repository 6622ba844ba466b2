use super::{normal, text};

#[test]
fn numbers_of_each_side_are_left_out() {
    let one = "\
        7 1 0:9 / / rw,relatime shared:5 - tmpfs t rw,size=1k\n\
        9 7 0:8 /d /e ro master:4 propagate_from:5 - tmpfs t ro\n\
        8 9 0:8 / /e rw unbindable - tmpfs t rw\n";
    let other = "\
        1 1 1:9 / / rw,relatime shared:1 - memfs memfs rw\n\
        2 3 1:7 / /e rw unbindable - memfs memfs rw\n\
        3 1 1:8 /d /e ro master:2 propagate_from:1 - memfs memfs ro\n";
    let expected = [
        "/ shows / rw,relatime on rw shared:1",
        "/ > /e shows /d ro on ro master:2 propagate_from:1",
        "/ > /e > /e shows / rw on rw unbindable",
    ];
    assert_eq!(normal(one).unwrap(), expected);
    assert_eq!(normal(other).unwrap(), expected);
    assert_ne!(normal(&one.replace("shared:5", "shared:4")).unwrap(), expected);
    assert!(normal("no mount").is_err());
}

#[test]
fn bytes_that_are_no_text_are_escaped() {
    assert_eq!(text(b"/a\xff\xfe/b \xc3\xa9"), "/a\\377\\376/b \u{e9}");
}
