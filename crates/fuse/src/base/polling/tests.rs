use std::cell::Cell;
use std::fs;

use super::*;

/// Polls once; returns whether the worker looked.
fn looks(poller: &mut Poller, is_ready: bool) -> bool {
    let looked = Cell::new(false);
    let found = poller.poll(|| {
        looked.set(true);
        is_ready
    });
    assert_eq!(found, looked.get().then_some(is_ready));
    looked.get()
}

/// Returns the pollers of two workers, where polling pays.
fn workers(cpus: usize) -> [Poller; 2] {
    let clients = Clients::on(cpus);
    clients.pays.store(true, Ordering::Relaxed);
    // The next block has just begun.
    clients.served.store(1, Ordering::Relaxed);
    [(); 2].map(|()| Poller::new(Arc::clone(&clients)))
}

#[test]
fn a_worker_polls_while_there_are_fewer_clients_than_cpus() {
    let [mut poller, other] = workers(3);
    assert!(!looks(&mut poller, true), "nobody is seen yet");
    poller.note(0);
    assert!(!looks(&mut poller, true), "nor now");
    for (thread, expected) in [(7, true), (7, true), (8, true), (9, false), (7, false)] {
        other.note(thread);
        assert_eq!(looks(&mut poller, true), expected, "{thread}");
    }
    (0..RECENT).for_each(|_| poller.note(7));
    assert!(looks(&mut poller, true) && looks(&mut poller, false), "the others are gone");
    poller.clients.pays.store(false, Ordering::Relaxed);
    assert!(!looks(&mut poller, true));
    let [mut idle, _] = workers(0);
    idle.note(7);
    assert!(!looks(&mut idle, true));
    assert_eq!(idle.clients.served.load(Ordering::Relaxed), 1);
}

#[test]
fn a_polling_worker_leads_until_it_finds_no_request() {
    let [mut one, mut other] = workers(2);
    one.note(7);
    assert!(looks(&mut one, true) && looks(&mut one, true));
    // While it serves the request that it found, the other one sees another, and fetches it.
    assert_eq!(other.poll(|| true), None);
    assert!(looks(&mut one, false));
    assert!(looks(&mut other, true), "nobody leads any more");
    other.clients.pays.store(false, Ordering::Relaxed);
    assert!(!looks(&mut other, true));
    other.clients.pays.store(true, Ordering::Relaxed);
    assert!(looks(&mut one, true), "the other has seen that polling does not pay");
    drop(one);
    assert!(looks(&mut other, true), "the leader has ended");
}

#[test]
fn the_others_stay_away_while_a_worker_leads() {
    let [mut one, mut other] = workers(2);
    one.note(7);
    assert!(looks(&mut one, true));
    let looks_of_other = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_ready = || {
                looks_of_other.fetch_add(1, Ordering::Relaxed);
                false
            };
            assert_eq!(other.poll(is_ready), None);
        });
        while looks_of_other.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        one.stop_leading();
    });
}

/// Lets blocks pass whose mean times are `asleep` without polling and `polling` with it. Returns in
/// how many of the last hundred workers polled.
fn polled(trial: &mut Trial, asleep: u32, polling: u32, is_mixed: bool) -> usize {
    let mut now = trial.began;
    let mut polled = false;
    let mut block = || {
        now += Duration::from_micros(if polled { polling } else { asleep }.into()) * BLOCK as u32;
        polled = trial.end_block(now, polled, is_mixed);
        polled
    };
    for _ in 0..1000 {
        block();
    }
    (0..100).filter(|_| block()).count()
}

#[test]
fn workers_poll_if_that_saves_a_tenth_of_the_time() {
    for (asleep, polling, pays) in [
        (100, 60, true),
        (100, 85, true),
        (100, 95, false),
        (100, 170, false),
        (900, 1100, false),
        // A client that is slow for other reasons.
        (1100, 900, false),
        (5000, 3000, false),
    ] {
        let mut trial = Trial::new(Instant::now());
        let share = polled(&mut trial, asleep, polling, false);
        assert!(if pays { share > 95 } else { share < 5 }, "{asleep} {polling}: {share}");
        // A change is seen.
        let share = polled(&mut trial, 100, 50, false);
        assert!(share > 95, "{asleep} {polling}, then better: {share}");
        let share = polled(&mut trial, 100, 150, false);
        assert!(share < 5, "{asleep} {polling}, then worse: {share}");
        let share = polled(&mut trial, 100, 50, true);
        assert!(share < 5, "{asleep} {polling}, by several clients: {share}");
    }
}

#[test]
fn choices_have_numbers() {
    for (number, choice) in PollingChoice::ALL.into_iter().enumerate() {
        assert_eq!(choice.number(), number as u64);
        assert_eq!(PollingChoice::from_number(choice.number()), choice);
    }
    assert_eq!(PollingChoice::from_number(5), PollingChoice::Never);
    assert_eq!(PollingChoice::of(Polling::Never), PollingChoice::Never);
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn limits_of_control_groups_are_found_above_and_in_both_versions() {
    for (groups, file, text, expected) in [
        ("0::/a/b\n", "a/b/cpu.max", "50000 100000\n", true),
        ("0::/a/b\n", "a/cpu.max", "50000 100000\n", true),
        ("0::/\n", "cpu.max", "50000 100000\n", true),
        ("0::/../c\n", "cpu.max", "50000 100000\n", true),
        ("0::/a/b\n", "a/b/cpu.max", "max 100000\n", false),
        ("0::/a/b\n", "c/cpu.max", "50000 100000\n", false),
        ("3:cpu,cpuacct:/a\n0::/\n", "cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n", true),
        ("3:cpu,cpuacct:/a\n0::/\n", "cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n", false),
        ("4:cpuset:/a\n", "cpuset/a/cpu.cfs_quota_us", "50000\n", false),
        ("nonsense\n", "cpu.max", "50000 100000\n", false),
    ] {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", groups);
        put(&root.path().join("sys/fs/cgroup"), file, text);
        assert_eq!(has_quota(root.path()), expected, "{groups} {file} {text}");
    }
    assert!(!has_quota(Path::new("/nowhere")));
}

#[test]
fn a_battery_that_discharges_is_seen_and_that_of_a_mouse_is_not() {
    for (status, scope, expected) in [
        ("Discharging", "System", true),
        ("Charging", "System", false),
        ("Discharging", "Device", false),
    ] {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "sys/class/power_supply/AC/type", "Mains\n");
        for (file, text) in [("type", "Battery"), ("status", status), ("scope", scope)] {
            put(root.path(), &format!("sys/class/power_supply/BAT0/{file}"), &format!("{text}\n"));
        }
        assert_eq!(is_on_battery(root.path()), expected, "{status} {scope}");
    }
    assert!(!is_on_battery(Path::new("/nowhere")));
}
