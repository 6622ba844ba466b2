#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support_tests::{Thing, device, open};
use crate::{Image, LogItem, Reservation, Result};

struct Text(&'static [u8]);

impl Image for Text {
    fn log_bytes(&self) -> usize {
        self.0.len()
    }

    fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        write(self.0)
    }
}

/// An item is logged with its image, and with its contents at the commit if it was added without
/// one, also later.
#[test]
fn an_image_is_logged_unless_the_item_is_added_again_without() {
    let device = device();
    let (journal, ..) = open(&device);
    let things: Vec<_> = (0..4).map(|id| Thing::new(id, b"formatted")).collect();
    let mut transaction = journal.begin(Reservation::new(4000)).unwrap();
    let image = || Arc::new(Text(b"image"));
    // Otherwise the item could be written back with the change before that is in the log.
    let change = |thing: &Thing| assert!(thing.state().is_pinned(), "it is changed unpinned");
    let changes = transaction.changes();
    changes.add_image(Arc::clone(&things[0]), image(), change);
    changes.add(Arc::clone(&things[1]));
    changes.add_image(Arc::clone(&things[2]), image(), change);
    changes.add(Arc::clone(&things[2]));
    changes.add(Arc::clone(&things[3]));
    changes.add_image(Arc::clone(&things[3]), image(), change);
    let committed = transaction.commit().unwrap();
    journal.force(committed.sequence).unwrap();
    assert!(things.iter().all(|thing| !thing.state().is_pinned()), "one pin each");
    assert!(things.iter().all(|thing| thing.logged.load(Ordering::Relaxed) == committed.sequence));
    drop(journal);
    let (_journal, _, sink) = open(&device);
    let bytes: Vec<_> = sink.replayed.iter().map(|(_, bytes, _)| &bytes[..]).collect();
    assert_eq!(bytes, [&b"image"[..], b"formatted", b"formatted", b"image"]);
}
