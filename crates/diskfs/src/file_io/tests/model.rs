//! Random calls against a vector of bytes, with a cache that holds little, on a disk whose free
//! blocks are full of what nobody may read.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write { at: u64, len: usize },
    Read { at: u64, len: usize },
    SetSize { size: u64 },
    Allocate { at: u64, len: u64, keep: bool },
    Punch { at: u64, len: u64 },
    Zero { at: u64, len: u64, keep: bool },
    WriteBack,
    Reclaim { pages: u64 },
    Remount,
    Crash,
}

const SIZE: u64 = 40 * PAGE;

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let at = || prop_oneof![0..SIZE, 0..400_u64, (0..40_u64).prop_map(|page| page * PAGE)];
    let len =
        || prop_oneof![1..200_usize, 1..5 * PAGE_SIZE, (1..9_usize).prop_map(|n| n * PAGE_SIZE)];
    prop_oneof![
        8 => (at(), len()).prop_map(|(at, len)| Step::Write { at, len }),
        4 => (at(), len()).prop_map(|(at, len)| Step::Read { at, len }),
        3 => at().prop_map(|size| Step::SetSize { size }),
        1 => Just(Step::SetSize { size: 0 }),
        2 => (at(), len(), any::<bool>())
            .prop_map(|(at, len, keep)| Step::Allocate { at, len: len as u64, keep }),
        2 => (at(), len()).prop_map(|(at, len)| Step::Punch { at, len: len as u64 }),
        2 => (at(), len(), any::<bool>())
            .prop_map(|(at, len, keep)| Step::Zero { at, len: len as u64, keep }),
        3 => Just(Step::WriteBack),
        2 => (1..40_u64).prop_map(|pages| Step::Reclaim { pages }),
        2 => Just(Step::Remount),
        1 => Just(Step::Crash),
    ]
}

/// A file, wherever it is.
pub(crate) trait Subject {
    fn size(&self) -> u64;
    fn write(&self, at: u64, bytes: &[u8]) -> Result<usize, Fault>;
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Fault>;
    fn set_size(&self, size: u64) -> Result<(), Fault>;
    fn allocate(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault>;
    fn punch(&self, at: u64, len: u64) -> Result<(), Fault>;
    fn zero_range(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault>;
    fn seek_data(&self, at: u64) -> Option<u64>;
    fn seek_hole(&self, at: u64) -> Option<u64>;
    fn write_back(&self);
    fn reclaim(&self, pages: u64);
    /// Everything is written, and found again by somebody who knows nothing but the disk.
    fn remount(&mut self);
    /// Crashes without writing anything first. Returns false if the world cannot.
    fn crash(&mut self) -> bool;
    /// Checks that the counts are exact.
    fn check(&self);
}

/// A file of a [`Disk`].
struct Simple {
    cache: Arc<PageCache>,
    file: File,
}

impl Simple {
    fn new(blocks: u64, claim_max: u32) -> Self {
        let cache = PageCache::new(0, 1);
        let disk = Disk::new(blocks);
        disk.state.lock().unwrap().claim_max = claim_max;
        let file = disk.open(&cache);
        Self { cache, file }
    }
}

impl Subject for Simple {
    fn size(&self) -> u64 {
        self.file.data().size()
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<usize, Fault> {
        self.file.data().write(at, bytes)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Fault> {
        self.file.data().read(at, into)
    }

    fn set_size(&self, size: u64) -> Result<(), Fault> {
        self.file.data().set_size(size)
    }

    fn allocate(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.file.data().allocate(at, len, keep_size)
    }

    fn punch(&self, at: u64, len: u64) -> Result<(), Fault> {
        self.file.data().punch(at, len)
    }

    fn zero_range(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.file.data().zero_range(at, len, keep_size)
    }

    fn seek_data(&self, at: u64) -> Option<u64> {
        self.file.data().seek_data(at).unwrap()
    }

    fn seek_hole(&self, at: u64) -> Option<u64> {
        self.file.data().seek_hole(at).unwrap()
    }

    fn write_back(&self) {
        self.file.data().write_back().unwrap();
        assert!(!self.file.data().is_dirty());
        assert_eq!(self.file.disk_size(), self.size());
    }

    fn reclaim(&self, pages: u64) {
        self.cache.reclaim(pages);
    }

    fn remount(&mut self) {
        self.write_back();
        self.crash();
    }

    fn crash(&mut self) -> bool {
        self.cache = PageCache::new(0, 1);
        self.file = self.file.disk.open(&self.cache);
        true
    }

    fn check(&self) {
        check_counts(&self.file, &self.cache);
    }
}

/// A file, and what it ought to hold.
pub(crate) struct Both<S> {
    pub(crate) subject: S,
    model: Vec<u8>,
    stamp: u8,
}

impl<S: Subject> Both<S> {
    pub(crate) fn new(subject: S) -> Self {
        Self { subject, model: Vec::new(), stamp: 0 }
    }

    fn zero(&mut self, at: u64, len: u64) {
        let end = ((at + len) as usize).min(self.model.len());
        if let Some(range) = self.model.get_mut(at as usize..end) {
            range.fill(0);
        }
    }

    fn grow(&mut self, end: u64) {
        let size = self.model.len().max(end as usize);
        self.model.resize(size, 0);
    }

    /// True unless there was no space.
    fn had_space(outcome: Result<(), Fault>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(Fault::NoSpace) => false,
            Err(fault) => panic!("{fault}"),
        }
    }

    fn write(&mut self, at: u64, len: usize) {
        self.stamp = self.stamp % 200 + 1;
        let mut written = 0;
        let outcome = self.subject.write(at, &vec![self.stamp; len]);
        Self::had_space(outcome.map(|bytes| written = bytes));
        if written > 0 {
            self.grow(at + written as u64);
            self.model[at as usize..][..written].fill(self.stamp);
        }
    }

    fn read(&self, at: u64, len: usize) {
        let mut bytes = vec![9; len];
        let read = self.subject.read(at, &mut bytes).unwrap();
        let expected = self.model.get(at as usize..).unwrap_or_default();
        assert_eq!(read, expected.len().min(len));
        assert!(bytes[..read] == expected[..read]);
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![1; self.subject.size() as usize + 100];
        let read = self.subject.read(0, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let subject = &mut self.subject;
        match *step {
            Step::Write { at, len } => self.write(at, len),
            Step::Read { at, len } => self.read(at, len),
            Step::SetSize { size } => {
                subject.set_size(size).unwrap();
                self.model.resize(size as usize, 0);
            }
            Step::Allocate { at, len, keep } => {
                if Self::had_space(subject.allocate(at, len, keep)) && !keep {
                    self.grow(at + len);
                }
            }
            Step::Punch { at, len } => {
                if Self::had_space(subject.punch(at, len)) {
                    self.zero(at, len);
                }
            }
            Step::Zero { at, len, keep } => {
                if Self::had_space(subject.zero_range(at, len, keep)) {
                    self.zero(at, len);
                    self.grow(if keep { 0 } else { at + len });
                }
            }
            Step::WriteBack => subject.write_back(),
            Step::Reclaim { pages } => subject.reclaim(pages),
            Step::Remount => subject.remount(),
            Step::Crash => {
                if subject.crash() {
                    self.model = self.contents();
                    assert!(!self.model.contains(&POISON), "bytes of somebody else");
                }
            }
        }
        assert_eq!(self.subject.size(), self.model.len() as u64);
        self.subject.check();
    }

    pub(crate) fn check(&self) {
        let found = self.contents();
        let wrong = found.iter().zip(&self.model).position(|(found, model)| found != model);
        assert_eq!((wrong, found.len()), (None, self.model.len()));
        // No hole has bytes.
        let mut at = 0;
        while let Some(hole) = self.subject.seek_hole(at) {
            let end = self.subject.seek_data(hole).unwrap_or(self.subject.size());
            assert!(self.model[hole as usize..end as usize].iter().all(|byte| *byte == 0));
            at = end;
        }
    }

    pub(crate) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        self.check();
        self.step(&Step::Remount);
        self.check();
        self.step(&Step::SetSize { size: 0 });
    }
}

fn run(blocks: u64, claim_max: u32, steps: &[Step]) {
    let mut both = Both::new(Simple::new(blocks, claim_max));
    both.run(steps);
    assert_eq!(both.subject.file.disk.free_blocks(), blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_file_is_as_a_vector(
        steps in prop::collection::vec(step(), 1..80),
        claim_max in 1..20_u32,
    ) {
        run(200, claim_max, &steps);
    }

    #[test]
    fn a_file_on_a_full_disk_is_as_a_vector(steps in prop::collection::vec(step(), 1..80)) {
        run(20, 4, &steps);
    }
}
