//! Repairs of volumes whose device refuses writes, such as an image on a full file system.

use vfscale_testkit::Fault as Planned;

use super::*;

/// A volume on a device that can be made to refuse writes.
struct Refusing {
    cut: Cut,
    device: Arc<FaultyDevice<Shared>>,
}

impl Refusing {
    fn new(cut: &Cut) -> Self {
        let device = Arc::new(FaultyDevice::new(cut.copied().volume));
        Self { cut: Cut { volume: device.clone(), log: None }, device }
    }

    /// Repairs the volume while all writes from number `n` on are refused. Returns false if there
    /// were fewer.
    fn repair(&self, discard_log: bool, n: u64) -> bool {
        self.device.arm(Planned::on(Operation::Write).from(n).fail(OsError::NO_SPACE));
        let checked = self.cut.check(true, discard_log);
        let is_refused = self.device.fired() > 0;
        self.device.disarm();
        match checked {
            Ok(report) => assert!(!is_refused && report.left == 0, "{n}: {:?}", report.findings),
            Err(error) => assert!(is_refused && error.is_of_writing(), "{n}: {error}"),
        }
        is_refused
    }

    /// Asserts that all synced files are there.
    fn has_all(&self, what: &str) {
        let fs = self.cut.open().unwrap_or_else(|fault| panic!("{what}: {fault}"));
        let task = Vfs::new(fs.clone()).unwrap().task();
        for at in 0..HOME {
            assert!(task.read(name(at)).unwrap() == contents(at), "{what}: {at}");
        }
        for at in (0..60).filter(|at| at % 3 != 0) {
            let read = task.read(format!("/more 3/{at}"));
            assert!(read.is_ok_and(|read| read == vec![1; 50 * at]), "{what}: {at}");
        }
        drop(task);
        fs.close().unwrap();
    }
}

/// A new log for which there is no storage changes nothing.
#[test]
fn a_log_without_storage_for_another_one_is_kept() {
    let cut = Cut::new(false);
    for is_damaged in [false, true] {
        let refusing = Refusing::new(&cut);
        if is_damaged {
            refusing.cut.rot(cut.live()[0]);
        }
        let before = refusing.cut.bytes();
        refusing.device.arm(Planned::on(Operation::Reserve).fail(OsError::NO_SPACE));
        let error = refusing.cut.check(true, true).map(drop).unwrap_err();
        assert!(error.is_of_writing(), "{error}");
        refusing.device.disarm();
        if is_damaged {
            assert!(refusing.cut.bytes() == before, "nothing was written");
        } else {
            refusing.has_all("no storage");
        }
    }
}

#[test]
fn a_replay_that_cannot_be_written_is_no_damage_of_the_log() {
    let cut = Cut::new(false);
    let mut n = 1;
    loop {
        let refusing = Refusing::new(&cut);
        if !refusing.repair(false, n) {
            break;
        }
        refusing.has_all(&format!("write {n}"));
        n += 1;
    }
    assert!(n > 20, "{n}");
}

/// Throwing away a log that is whole loses nothing, wherever it is refused, and is refused before
/// the superblock says that a repair is under way unless something else has been changed.
#[test]
fn a_log_is_thrown_away_when_it_was_replayed() {
    let cut = Cut::new(false);
    let (mut n, mut before, mut between) = (1, 0, 0);
    loop {
        let refusing = Refusing::new(&cut);
        if !refusing.repair(true, n) {
            break;
        }
        let what = format!("write {n}");
        if refusing.cut.superblock().features.needs_repair() {
            between += 1;
            assert_eq!(refusing.cut.check(true, true).unwrap().left, 0, "{what}");
        } else {
            before += 1;
        }
        refusing.has_all(&what);
        n += 1;
    }
    assert!(before > 10 && between > 0, "{before}, {between}");
}
