//! Random calls against a vector of bytes, with a cache that holds little, on a disk whose free
//! blocks are full of what nobody may read.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
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

struct Both {
    cache: Arc<PageCache>,
    file: File,
    model: Vec<u8>,
    stamp: u8,
}

impl Both {
    fn new(blocks: u64, claim_max: u32) -> Self {
        let cache = PageCache::new(0, 1);
        let disk = Disk::new(blocks);
        disk.state.lock().unwrap().claim_max = claim_max;
        let file = disk.open(&cache);
        Self { cache, file, model: Vec::new(), stamp: 0 }
    }

    fn reopen(&mut self) {
        self.cache = PageCache::new(0, 1);
        self.file = self.file.disk.open(&self.cache);
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
        let outcome = self.file.data().write(&self.file, at, &vec![self.stamp; len]);
        Self::had_space(outcome.map(|bytes| written = bytes));
        if written > 0 {
            self.grow(at + written as u64);
            self.model[at as usize..][..written].fill(self.stamp);
        }
    }

    fn read(&self, at: u64, len: usize) {
        let mut bytes = vec![9; len];
        let read = self.file.data().read(&self.file, at, &mut bytes).unwrap();
        let expected = self.model.get(at as usize..).unwrap_or_default();
        assert_eq!(read, expected.len().min(len));
        assert!(bytes[..read] == expected[..read]);
    }

    fn step(&mut self, step: &Step) {
        let (file, data) = (&self.file, Arc::clone(self.file.data()));
        match *step {
            Step::Write { at, len } => self.write(at, len),
            Step::Read { at, len } => self.read(at, len),
            Step::SetSize { size } => {
                data.set_size(file, size).unwrap();
                self.model.resize(size as usize, 0);
            }
            Step::Allocate { at, len, keep } => {
                if Self::had_space(data.allocate(file, at, len, keep)) && !keep {
                    self.grow(at + len);
                }
            }
            Step::Punch { at, len } => {
                if Self::had_space(data.punch(file, at, len)) {
                    self.zero(at, len);
                }
            }
            Step::Zero { at, len, keep } => {
                if Self::had_space(data.zero_range(file, at, len, keep)) {
                    self.zero(at, len);
                    self.grow(if keep { 0 } else { at + len });
                }
            }
            Step::WriteBack => {
                data.write_back(file).unwrap();
                assert!(!data.is_dirty(file));
            }
            Step::Reclaim { pages } => {
                self.cache.reclaim(pages);
            }
            Step::Remount => {
                data.write_back(file).unwrap();
                assert_eq!(file.disk_size(), data.size());
                self.reopen();
            }
            Step::Crash => {
                self.reopen();
                self.model = contents(&self.file);
                assert!(!self.model.contains(&POISON), "bytes of somebody else");
            }
        }
        assert_eq!(self.file.data().size(), self.model.len() as u64);
        check_counts(&self.file, &self.cache);
    }

    fn check(&self) {
        let found = contents(&self.file);
        let wrong = found.iter().zip(&self.model).position(|(found, model)| found != model);
        assert_eq!((wrong, found.len()), (None, self.model.len()));
        // No hole has bytes.
        let (data, file) = (self.file.data(), &self.file);
        let mut at = 0;
        while let Some(hole) = data.seek_hole(file, at).unwrap() {
            let end = data.seek_data(file, hole).unwrap().unwrap_or(data.size());
            assert!(self.model[hole as usize..end as usize].iter().all(|byte| *byte == 0));
            at = end;
        }
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        self.check();
        self.step(&Step::Remount);
        self.check();
        self.step(&Step::SetSize { size: 0 });
        let blocks = self.file.disk.state.lock().unwrap().free.len() as u64;
        assert_eq!(self.file.disk.free_blocks(), blocks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_file_is_as_a_vector(
        steps in prop::collection::vec(step(), 1..80),
        claim_max in 1..20_u32,
    ) {
        Both::new(200, claim_max).run(&steps);
    }

    #[test]
    fn a_file_on_a_full_disk_is_as_a_vector(steps in prop::collection::vec(step(), 1..80)) {
        Both::new(20, 4).run(&steps);
    }
}
