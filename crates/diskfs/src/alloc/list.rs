//! A growing list of groups.

use std::sync::OnceLock;

use super::alloc_group::Group;

/// Number of times that a volume can grow while it is open, plus one.
const SEGMENTS: usize = 64;

/// The groups of a volume, by number. Groups never move when others are added, so finding one takes
/// no lock: a segment is written once, before it is published.
pub(super) struct GroupList {
    segments: [OnceLock<Segment>; SEGMENTS],
}

struct Segment {
    first: u32,
    groups: Box<[Group]>,
}

impl GroupList {
    /// Creates a list of these groups, from number 0 on.
    pub(super) fn new(groups: Box<[Group]>) -> Self {
        let list = Self { segments: [const { OnceLock::new() }; SEGMENTS] };
        list.push(groups);
        list
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().map_while(OnceLock::get)
    }

    /// Adds groups behind the existing ones; one thread at a time does so. Returns false, and adds
    /// nothing, if no segment is left.
    pub(super) fn push(&self, groups: Box<[Group]>) -> bool {
        let first = self.segments().map(|segment| segment.groups.len() as u32).sum();
        let free = self.segments.iter().find(|segment| segment.get().is_none());
        free.is_some_and(|free| free.set(Segment { first, groups }).is_ok())
    }

    /// Returns the group with this number.
    pub(super) fn at(&self, number: u32) -> Option<&Group> {
        self.segments()
            .find_map(|segment| segment.groups.get(number.checked_sub(segment.first)? as usize))
    }

    /// Iterates over all groups.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.segments().flat_map(|segment| &segment.groups)
    }
}
