use super::*;

#[test]
fn a_branch_that_is_written_has_one_place() {
    let served = Served::new(None, None);
    let first = served.reserve("a", false).map_err(drop).unwrap();
    assert_eq!(served.reserve("a", false).err(), Some(Refusal::Mounted(None)));
    assert_eq!(served.reserve("a", true).err(), Some(Refusal::Mounted(None)));
    let other = served.reserve("b", true).map_err(drop).unwrap();
    let again = served.reserve("b", true).map_err(drop).unwrap();
    drop((other, again));
    drop(first);
    drop(served.reserve("a", false).map_err(drop).unwrap());
}

#[test]
fn nothing_is_taken_after_the_end() {
    let served = Served::new(None, None);
    let ticket = served.reserve("a", false).map_err(drop).unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| served.wait_for_end());
        vfscale_harness::stays("it waits", Duration::from_millis(20), || !ended.is_finished());
        drop(ticket);
    });
    assert_eq!(served.reserve("a", false).err(), Some(Refusal::Ending));
}

#[test]
fn a_wait_ends_when_nobody_waits() {
    let served = Served::new(None, None);
    let _ticket = served.reserve("a", false).map_err(drop).unwrap();
    // There is no mount of this number.
    assert_eq!(served.wait_for((0, 1), || true), Ok(true));
    served.lock().places[0].device = Some((0, 1));
    assert_eq!(served.wait_for((0, 1), || false), Ok(true));
}

#[test]
fn a_volume_that_was_not_closed_is_told() {
    let served = Served::new(None, None);
    let ticket = served.reserve("a", false).map_err(drop).unwrap();
    served.lock().places[0].device = Some((0, 1));
    ticket.closed(&Err::<(), _>("the disk is full"));
    drop(ticket);
    assert_eq!(served.wait_for((0, 1), || true), Err("the disk is full".into()));
    assert_eq!(served.wait_for((0, 2), || true), Ok(false));
}

#[test]
fn device_numbers_are_read_as_they_are_written() {
    assert_eq!(device_of(OsStr::new(&device_text((0, 49)))), Some((0, 49)));
    assert_eq!(device_of(OsStr::new("1:")), None);
}

fn enter(served: &Arc<Served>) -> Result<Ticket, Refusal> {
    match served.enter("a", false, String::new())? {
        Entry::New(ticket) => Ok(ticket),
        Entry::Shared(_) => panic!("there is no mount to share"),
    }
}

/// Race: A run that begins, and the end of the mount of the run before it.
#[test]
fn a_run_waits_for_a_mount_that_ends() {
    let served = Served::new(None, None);
    let ticket = enter(&served).unwrap();
    assert!(served.leave(ticket.number()));
    std::thread::scope(|scope| {
        let next = scope.spawn(|| enter(&served).map(drop));
        vfscale_harness::stays("it waits", Duration::from_millis(20), || !next.is_finished());
        drop(ticket);
        assert_eq!(next.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_server_without_others_ends() {
    let served = Served::new(None, None);
    let ticket = enter(&served).unwrap();
    assert!(served.goes_on());
    let untold = ticket.end();
    assert!(served.goes_on(), "a command has to be told");
    drop(untold);
    assert!(!served.goes_on());
    assert_eq!(enter(&served).err(), Some(Refusal::Ending));
}
