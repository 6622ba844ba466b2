#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::record::FEATURE_SHORT;
use crate::support_tests::{LOG, Thing, VOLUME, device, open};
use crate::{Image, Inspection, LogItem, Reservation, Result};

struct Text(&'static [u8]);

impl Image for Text {
    fn log_bytes(&self) -> usize {
        self.0.len()
    }

    fn bytes_used(&self) -> usize {
        self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
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

/// A checkpoint does not write the zeros at the end of an image: its records say so, and it gives
/// the log space back that was reserved for them.
#[test]
fn zeros_at_the_end_of_an_image_are_not_logged() {
    static LONG: [u8; 9000] = {
        let mut long = [0; 9000];
        (long[0], long[20]) = (1, 2);
        long
    };
    let device = device();
    let (journal, ..) = open(&device);
    for (id, image) in [(0, &LONG[..]), (1, b"image")] {
        let mut transaction = journal.begin(Reservation::new(10_000)).unwrap();
        transaction.changes().add_image(Thing::new(id, b""), Arc::new(Text(image)), |_| ());
        journal.force(transaction.commit().unwrap().sequence).unwrap();
    }
    let tickets: Vec<_> = journal.stats().tickets;
    let space: Vec<_> = tickets.iter().map(|ticket| (ticket.used, ticket.spared)).collect();
    assert_eq!(space, [(4096, 8192), (4096, 0)]);
    assert!(tickets.iter().all(|ticket| ticket.returned <= 8192), "{tickets:?}");
    assert_eq!(journal.stats().grant_used, 2 * 4096, "the rest is free again");
    let inspection = Inspection::new(&*device, LOG, VOLUME).unwrap();
    let features: Vec<_> = inspection.records().iter().map(|record| record.features).collect();
    assert_eq!(features[features.len() - 2..], [FEATURE_SHORT, 0]);
    drop(journal);
    let (_journal, _, sink) = open(&device);
    assert_eq!(sink.last()[&0], LONG[..21]);
    assert_eq!(sink.last()[&1], b"image");
}
