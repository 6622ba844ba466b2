use std::collections::BTreeMap;

use proptest::prelude::*;
use vfscale_sync::page::PageBox;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put { at: u64, count: usize, mapped: u64, granted: u64 },
    Insert { at: u64 },
    Write { at: u64 },
    Begin { at: u64 },
    Land,
    GiveUp,
    Remove { at: u64, count: u64 },
    Evict { want: u64, scan: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..260_u64;
    prop_oneof![
        (at(), 1..20_usize, any::<u64>(), any::<u64>()).prop_map(|(at, count, mapped, granted)| {
            let count = count.min((CHUNK_PAGES - at % CHUNK_PAGES) as usize);
            // Mostly all of them can be put in.
            Step::Put { at, count, mapped, granted: granted | u64::MAX >> (mapped % 64) }
        }),
        at().prop_map(|at| Step::Insert { at }),
        at().prop_map(|at| Step::Write { at }),
        at().prop_map(|at| Step::Begin { at }),
        Just(Step::Land),
        Just(Step::GiveUp),
        (at(), 0..150_u64).prop_map(|(at, count)| Step::Remove { at, count }),
        (1..70_u64, 1..200_u64).prop_map(|(want, scan)| Step::Evict { want, scan }),
    ]
}

/// The state of a page in the model.
#[derive(Clone, Copy, Debug, Default)]
struct CachedMapping {
    stamp: u8,
    is_dirty: bool,
    is_writing: bool,
    is_mapped: bool,
    is_reserved: bool,
    /// Written to again while it was being written back.
    is_doubled: bool,
}

#[derive(Default)]
struct Both {
    pages: Pages,
    model: BTreeMap<u64, CachedMapping>,
    batch: Option<(u64, u64, WritebackBatch)>,
    stamp: u8,
}

fn page_of(stamp: u8) -> PageBox {
    Page::with(0, &[stamp; PAGE_SIZE])
}

impl Both {
    fn unstable(&self) -> u64 {
        self.model.values().filter(|page| page.is_dirty || page.is_writing).count() as u64
    }

    fn put(&mut self, at: u64, count: usize, mapped: u64, granted: u64) {
        let memory = (0..count).map(|n| page_of(self.stamp + n as u8)).collect();
        let stable = self.unstable();
        let put = self.pages.put_dirty(at, memory, mapped, granted);
        let (mut new, mut reserved, mut done) = (0, 0, 0);
        for n in 0..count as u64 {
            let has_block = mapped >> n & 1 == 1;
            let before = self.model.get(&(at + n)).copied();
            let is_paid = before.is_some_and(|page| page.is_mapped || page.is_reserved);
            if !is_paid && !has_block && granted >> n & 1 == 0 {
                break;
            }
            let page = self.model.entry(at + n).or_default();
            let is_new = before.is_none() || (page.is_writing && !page.is_doubled);
            page.is_doubled |= page.is_writing;
            new += u64::from(is_new);
            if !is_paid {
                (page.is_mapped, page.is_reserved) = (has_block, !has_block);
                reserved += u64::from(!has_block);
            }
            (page.stamp, page.is_dirty) = (self.stamp + n as u8, true);
            done += 1;
        }
        let stable = self.unstable() - stable;
        assert_eq!((put.count, put.pages, put.reserved, put.stable), (done, new, reserved, stable));
    }

    fn write(&mut self, at: u64) {
        let is_dirty = self.model.get(&at).is_some_and(|page| page.is_dirty);
        assert_eq!(self.pages.overwrite(at, 0, &[]), is_dirty);
        let stable = self.unstable();
        let found = self.pages.write(at, 5, &[self.stamp; 10]);
        let page = self.model.get_mut(&at);
        let ready = page.filter(|page| {
            (page.is_mapped || page.is_reserved) && (!page.is_writing || page.is_doubled)
        });
        assert_eq!(found.is_some(), ready.is_some());
        if let (Some((written, count)), Some(page)) = (found, ready) {
            page.is_dirty = true;
            assert_eq!((written, count), (10, self.unstable() - stable));
            // As it was, for the comparison: the page is dirty now.
            let stamp = self.model[&at].stamp;
            assert!(self.pages.overwrite(at, 5, &[stamp; 10]));
        }
    }

    fn begin(&mut self, at: u64) {
        let run = self.pages.dirty_run(at, 100);
        let expected = (at..at + 100).take_while(|n| self.model.get(n).is_some_and(|p| p.is_dirty));
        assert_eq!(run, expected.count() as u64);
        if run == 0 || self.batch.is_some() {
            return;
        }
        let batch = self.pages.begin(at, at + run);
        assert_eq!(batch.len() as u64, run);
        self.model.range_mut(at..at + run).for_each(|(_, page)| {
            (page.is_dirty, page.is_writing) = (false, true);
        });
        self.batch = Some((at, at + run, batch));
    }

    /// Ends what is in flight, well or not.
    fn end(&mut self, is_well: bool) {
        let Some((from, to, batch)) = self.batch.take() else { return };
        let unstable = self.unstable();
        let doubled = self.model.values().filter(|page| page.is_doubled).count() as u64;
        let flown: Vec<CachedMapping> = self.model.range(from..to).map(|(_, page)| *page).collect();
        self.model.range_mut(from..to).for_each(|(_, page)| {
            (page.is_writing, page.is_doubled) = (false, false);
        });
        if is_well {
            let completed = self.pages.complete(from, to, batch);
            let now = (completed.stable, completed.older.len() as u64);
            assert_eq!(now, (unstable - self.unstable(), doubled));
        } else {
            self.model.retain(|index, page| !(from..to).contains(index) || page.is_dirty);
            let gone = self.pages.give_up(from, to, Some(batch));
            let reserved = flown.iter().filter(|page| !page.is_dirty && page.is_reserved).count();
            let now = (gone.pages, gone.unstable, gone.reserved);
            assert_eq!(now, (to - from, unstable - self.unstable(), reserved as u64));
        }
    }

    fn remove(&mut self, from: u64, to: u64) {
        self.end(true);
        let unstable = self.unstable();
        let gone = self.pages.remove(from, to);
        let removed: Vec<CachedMapping> =
            self.model.extract_if(from..to, |_, _| true).map(|p| p.1).collect();
        let reserved = removed.iter().filter(|page| page.is_reserved).count() as u64;
        let now = (gone.pages, gone.unstable, gone.reserved);
        assert_eq!(now, (removed.len() as u64, unstable - self.unstable(), reserved));
    }

    fn evict(&mut self, want: u64, scan: u64) {
        let (before, unstable) = (self.pages.len(), self.pages.unstable_pages());
        let gone = self.pages.evict(want, scan);
        assert!(gone.pages <= want);
        assert_eq!(
            (self.pages.len(), self.pages.unstable_pages()),
            (before - gone.pages, unstable)
        );
        let pages = &self.pages;
        self.model.retain(|index, page| pages.contains(*index) || page.is_dirty || page.is_writing);
    }

    fn step(&mut self, step: &Step) {
        self.stamp = (self.stamp + 1) % 100;
        match *step {
            Step::Put { at, count, mapped, granted } => self.put(at, count, mapped, granted),
            Step::Insert { at } => {
                let is_new = !self.model.contains_key(&at);
                assert_eq!(self.pages.insert_clean(at, page_of(self.stamp), true), is_new);
                let cached = CachedMapping {
                    stamp: self.stamp,
                    is_mapped: true,
                    ..CachedMapping::default()
                };
                self.model.entry(at).or_insert(cached);
            }
            Step::Write { at } => self.write(at),
            Step::Begin { at } => self.begin(at),
            Step::Land => self.end(true),
            Step::GiveUp => self.end(false),
            Step::Remove { at, count } => self.remove(at, at + count),
            Step::Evict { want, scan } => self.evict(want, scan),
        }
    }

    fn check(&self) {
        let pages = &self.pages;
        let doubled = self.model.values().filter(|page| page.is_doubled).count();
        assert_eq!(pages.len(), (self.model.len() + doubled) as u64);
        assert_eq!(
            (pages.is_empty(), pages.unstable_pages()),
            (self.model.is_empty(), self.unstable())
        );
        let unstable = |page: &CachedMapping| page.is_dirty || page.is_writing;
        let last = self.model.iter().rfind(|(_, page)| unstable(page)).map(|(index, _)| *index);
        assert_eq!(pages.last_unstable(), last);
        for index in 0..300 {
            let first = |is: &dyn Fn(&CachedMapping) -> bool| {
                self.model.range(index..).find(|(_, page)| is(page)).map(|(index, _)| *index)
            };
            assert_eq!(pages.next(index), first(&|_| true));
            assert_eq!(pages.next_dirty(index), first(&|page| page.is_dirty));
            assert_eq!(pages.next_unstable(index), first(&unstable));
            let cached = self.model.get(&index).copied();
            let mark = |mark: fn(&Marks) -> u64| pages.has(index, mark);
            let marks = (mark(|m| m.mapped), mark(|m| m.reserved), mark(|m| m.dirty));
            let known_marks = cached.map(|page| (page.is_mapped, page.is_reserved, page.is_dirty));
            assert_eq!(marks, known_marks.unwrap_or_default(), "page {index}");
            let mut byte = [0];
            pages.page(index).into_iter().for_each(|page| page.read(4095, &mut byte));
            assert_eq!(
                (pages.contains(index), byte[0]),
                (cached.is_some(), cached.map_or(0, |p| p.stamp))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn pages_are_as_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let mut both = Both::default();
        for step in &steps {
            both.step(step);
            both.check();
        }
        both.end(true);
        both.remove(0, u64::MAX);
        both.check();
    }
}

#[test]
fn a_page_in_flight_stays_as_it_was() {
    let mut pages = Pages::default();
    pages.put_dirty(60, (0..4).map(|_| page_of(1)).collect(), 0, u64::MAX);
    pages.put_dirty(64, (0..4).map(|_| page_of(2)).collect(), 0, u64::MAX);
    let batch = pages.begin(61, 66);
    assert!(pages.write(62, 0, &[3]).is_none(), "there is no memory to be written to");
    pages.put_dirty(62, vec![page_of(3)], 0, 0);
    let bytes = |page: &Page| {
        let mut byte = [0];
        page.read(7, &mut byte);
        byte[0]
    };
    let flown: Vec<u8> = batch.iter().map(|page| bytes(page)).collect();
    assert_eq!(flown, [1, 1, 1, 2, 2]);
    let seen: Vec<u8> = (60..68).map(|index| bytes(pages.page(index).unwrap())).collect();
    assert_eq!(seen, [1, 1, 3, 1, 2, 2, 2, 2]);
    // Copied as one, over the end of what is in flight, to the end of the chunk.
    let mut copy = vec![0; 8 * PAGE_SIZE];
    assert_eq!(pages.read(60, 10, &mut copy), Some(4 * PAGE_SIZE - 10));
    assert_eq!((copy[0], copy[2 * PAGE_SIZE], copy[3 * PAGE_SIZE]), (1, 3, 1));
    let completed = pages.complete(61, 66, batch);
    assert_eq!((completed.stable, completed.older.len()), (4, 1));
    assert_eq!(pages.next_dirty(61), Some(62));
}

#[test]
fn a_page_used_lately_stays_once() {
    let mut pages = Pages::default();
    for index in 0..200 {
        assert!(pages.insert_clean(index, page_of(1), true));
    }
    let mut bytes = vec![0; 10 * PAGE_SIZE];
    assert_eq!(pages.read(100, 0, &mut bytes), Some(bytes.len()));
    let mut evict = |want| pages.evict(want, 10_000).pages;
    assert_eq!((evict(100), evict(50), evict(1000)), (100, 50, 40));
    // The clock hand starts from the beginning.
    assert_eq!((pages.next(0), pages.len()), (Some(100), 10));
    assert_eq!(pages.evict(3, 10_000).pages, 3);
    assert_eq!(pages.next(0), Some(103));
    assert_eq!(pages.read(103, 0, &mut bytes), Some(7 * PAGE_SIZE));
    let mut evict = || pages.evict(100, 1).pages;
    assert_eq!((evict(), evict(), evict()), (0, 0, 7));
    assert!(pages.is_empty());
}
