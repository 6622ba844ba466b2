use std::path::Path;

use super::leads_out;

#[test]
fn links_that_lead_out() {
    let cases = [
        ("file", 0, false),
        ("./sub/file", 0, false),
        ("..", 0, true),
        ("../file", 0, true),
        ("../file", 1, false),
        ("../../file", 1, true),
        ("./../file", 1, false),
        ("/etc/passwd", 5, true),
        // `sub` may be a link to `.`.
        ("sub/../file", 0, true),
        ("../sub/../file", 9, true),
    ];
    for (target, depth, is_out) in cases {
        assert_eq!(leads_out(Path::new(target), depth), is_out, "{target} at {depth}");
    }
}
