use super::*;

/// A directory with the files of a group, and the machine's file.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let root = std::env::temp_dir().join(format!("vfscale-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("group")).unwrap();
        let files = Files(root);
        files.stalls("machine", 0);
        files
    }

    fn stalls(&self, file: &str, total: u64) {
        let line =
            |kind, total| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        fs::write(self.0.join(file), line("some", total) + &line("full", total / 2)).unwrap();
    }

    fn events(&self, high: u64, max: u64) {
        let text = format!("low 7\nhigh {high}\nmax {max}\noom 0\noom_kill 0\n");
        fs::write(self.0.join("group/memory.events"), text).unwrap();
    }

    fn pressure(&self) -> Pressure {
        Pressure::of(Some(&self.0.join("group")), &self.0.join("machine"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn stalls_of_the_machine_count_where_the_group_has_no_file() {
    let files = Files::new("machine-pressure");
    files.stalls("machine", 1_000_000);
    let mut pressure = files.pressure();
    assert!(!pressure.is_short(), "what was before the first look is over");
    files.stalls("machine", 1_000_000 + STALL - 1);
    assert!(!pressure.is_short());
    files.stalls("machine", 1_000_000 + 2 * STALL);
    assert!(pressure.is_short());
    assert!(!pressure.is_short(), "nothing has happened since");
}

#[test]
fn the_group_counts_where_it_has_files() {
    let files = Files::new("group-pressure");
    files.stalls("group/memory.pressure", 0);
    files.events(3, 4);
    let mut pressure = files.pressure();
    assert!(!pressure.is_short());
    files.stalls("machine", 9_000_000);
    assert!(!pressure.is_short(), "others stall");
    files.stalls("group/memory.pressure", STALL);
    assert!(pressure.is_short());
    for (high, max) in [(4, 4), (4, 5)] {
        files.events(high, max);
        assert!(pressure.is_short());
        assert!(!pressure.is_short());
    }
}

#[test]
fn without_files_nothing_is_short() {
    let files = Files::new("no-pressure");
    fs::remove_file(files.0.join("machine")).unwrap();
    let mut pressure = files.pressure();
    assert!(!pressure.is_short());
    files.stalls("machine", 9_000_000);
    assert!(!pressure.is_short(), "the first figure");
    fs::write(files.0.join("machine"), "some nonsense\n").unwrap();
    assert!(!pressure.is_short());
}
