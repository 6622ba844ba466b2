//! Tests of what a server says.

use super::*;

/// Clears the screen, and passes for another line.
const HOSTILE: &str = "no\u{1b}[2J\u{7}\nvfscale: it was \\x1b";
const SHOWN: &str = "no\\x1b[2J\\x07\\nvfscale: it was \\x1b";

#[test]
fn texts_of_a_server_steer_no_terminal() {
    let error = Error::new(Errno::BUSY, HOSTILE);
    let shown = refused(Path::new("disk.vfs"), &error).to_string();
    assert_eq!(shown, format!("disk.vfs: {SHOWN}"));
}

#[test]
fn a_call_that_hangs_is_waited_for_within_the_limit() {
    assert_eq!(within(AT_ONCE, || Ok(vec![7])), Ok(vec![7]));
    let refused = within(AT_ONCE, || Err(Errno::NOTTY.into()));
    assert_eq!(refused.unwrap_err().errno(), Errno::NOTTY);
    let hangs = within(Duration::from_millis(50), || {
        vfscale_harness::pause(AT_ONCE);
        Ok(Vec::new())
    });
    assert_eq!(hangs.unwrap_err().errno(), Errno::TIMEDOUT);
}
