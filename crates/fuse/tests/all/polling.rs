//! Workers that look for the next request before they sleep.

use std::fs;

use crate::common::TestMount;
use vfscale_fuse::{Polling, PollingChoice, Sharing};

/// Makes and removes files, by one client; returns the statistics then.
fn used(polling: Polling) -> Option<vfscale_fuse::Stats> {
    let m = TestMount::with(Sharing::Exclusive, |builder| builder.polling(polling))?;
    for _ in 0..500 {
        fs::write(m.path("f"), "some").unwrap();
        fs::remove_file(m.path("f")).unwrap();
    }
    Some(m.mounted().stats())
}

#[test]
fn workers_poll_for_a_single_client_unless_forbidden() {
    let Some(never) = used(Polling::Never) else { return };
    assert_eq!((never.polling, never.polls), (PollingChoice::Never, 0));
    let Some(auto) = used(Polling::Auto) else { return };
    assert_ne!(auto.polling, PollingChoice::Never);
    let polls = auto.polling == PollingChoice::Polls;
    assert_eq!(auto.polls > 0, polls, "{auto:?}");
    assert!(auto.polls_found <= auto.polls && auto.polls <= auto.requests, "{auto:?}");
}
