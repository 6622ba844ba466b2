//! A growing list of groups, each of which is made when it is used first.

use std::iter::once;
use std::sync::OnceLock;

use super::alloc_group::Group;
use crate::Geometry;

/// Number of times that a volume can grow while it is open.
const GROWTHS: usize = 63;

/// The groups of a volume, by number. Groups never move when others are added, so finding one takes
/// no lock: a segment is written once, before it is published.
pub(super) struct GroupList {
    first: Segment,
    /// The groups by which the volume has grown.
    others: OnceLock<Box<[OnceLock<Segment>]>>,
}

/// Groups that were added at the same time.
struct Segment {
    first: u32,
    /// The geometry of the volume then.
    geometry: Geometry,
    /// A place for each group, empty until the group is used.
    groups: Box<[OnceLock<Box<Group>>]>,
}

impl Segment {
    /// Creates the places of all groups of a volume from number `first` on.
    fn new(geometry: Geometry, first: u32) -> Self {
        let groups = (first..geometry.groups()).map(|_| OnceLock::new()).collect();
        Self { first, geometry, groups }
    }

    /// Returns the place of a group, if it is one of this segment.
    #[inline]
    fn place(&self, number: u32) -> Option<&OnceLock<Box<Group>>> {
        self.groups.get(number.checked_sub(self.first)? as usize)
    }
}

impl GroupList {
    /// Creates a list of all groups of a volume. No group is made.
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { first: Segment::new(geometry, 0), others: OnceLock::new() }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        let others = self.others.get().into_iter().flatten();
        once(&self.first).chain(others.map_while(OnceLock::get))
    }

    /// Returns whether groups can be added: the volume has not grown too often.
    pub(super) fn has_room(&self) -> bool {
        self.others.get().is_none_or(|others| others.iter().any(|other| other.get().is_none()))
    }

    /// Adds the groups by which a volume has grown; one thread at a time does so. Returns false,
    /// and adds nothing, if it has grown too often.
    pub(super) fn push(&self, geometry: Geometry) -> bool {
        let first = self.segments().map(|segment| segment.groups.len() as u32).sum();
        let make = || (0..GROWTHS).map(|_| OnceLock::new()).collect();
        let free = self.others.get_or_init(make).iter().find(|segment| segment.get().is_none());
        free.is_some_and(|free| free.set(Segment::new(geometry, first)).is_ok())
    }

    /// Returns the segment of a group.
    fn segment(&self, number: u32) -> Option<&Segment> {
        self.segments().find(|segment| segment.place(number).is_some())
    }

    /// Returns the group with this number, which `make` makes if it was not used before.
    #[inline]
    pub(super) fn at(
        &self,
        number: u32,
        make: impl FnOnce(Geometry) -> Option<Group>,
    ) -> Option<&Group> {
        if let Some(group) = self.first.place(number).and_then(OnceLock::get) {
            return Some(group);
        }
        let segment = self.segment(number)?;
        let place = segment.place(number)?;
        if place.get().is_none() {
            // Of several threads, one stores its group, and the others drop theirs.
            let _ = place.set(Box::new(make(segment.geometry)?));
        }
        place.get().map(|group| &**group)
    }

    /// Returns the group with this number, if it was used before.
    pub(super) fn made(&self, number: u32) -> Option<&Group> {
        self.segment(number)?.place(number)?.get().map(|group| &**group)
    }

    /// Iterates over all groups that were used before.
    pub(super) fn all_made(&self) -> impl Iterator<Item = &Group> {
        let places = self.segments().flat_map(|segment| &segment.groups);
        places.filter_map(|place| place.get().map(|group| &**group))
    }
}
