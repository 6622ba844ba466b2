//! Tests of reading credentials.

use super::*;

#[test]
fn status_of_a_process_is_read() {
    let status = "Name:\tx\nUid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nNStgid:\t1\nCapInh:\t0\n\
                  CapEff:\t000000000000000a\n";
    let (groups, caps) = parse_status(status).unwrap();
    assert_eq!(groups, [4, 24, 1000]);
    assert_eq!(caps, Capabilities::DAC_OVERRIDE | Capabilities::FOWNER);
}

#[test]
fn a_caller_without_groups_gets_none() {
    let (groups, caps) = parse_status("Groups:\t \nCapEff:\t0000000000000000\n").unwrap();
    assert!(groups.is_empty());
    assert!(caps.is_empty());
}

#[test]
fn a_status_without_the_fields_is_not_believed() {
    assert!(parse_status("Name:\tx\n").is_none());
    assert!(parse_status("Groups:\t1\nCapEff:\tzz\n").is_none());
}

#[test]
fn own_credentials_are_found() {
    let caller =
        Caller { uid: 7, gid: 8, pid: std::process::id(), group: Some(9), checks: Checks::Server };
    let exact = caller.exact_credentials().unwrap();
    assert_eq!((exact.uid, exact.gid), (7, 8));
    assert!(exact.groups.contains(&9));
}

#[test]
fn processes_that_cannot_be_examined_are_not_believed() {
    let caller = |uid, pid| Caller { uid, gid: uid, pid, group: None, checks: Checks::Server };
    assert!(caller(7, std::process::id()).is_in_user_namespace());
    assert!(!caller(7, u32::MAX).is_in_user_namespace());
    assert!(caller(0, u32::MAX).is_in_user_namespace());
}

#[test]
fn an_exited_caller_has_only_the_credentials_of_the_request() {
    let caller = Caller { uid: 7, gid: 8, pid: u32::MAX, group: None, checks: Checks::Server };
    assert!(caller.exact_credentials().is_none());
}

/// Where a mount may map ids, an unknown process has no right of its own.
#[test]
fn unknown_processes_have_no_rights_where_ids_are_mapped() {
    let own = rustix::process::geteuid().as_raw();
    let caller =
        |pid| Caller { uid: NOBODY, gid: NOBODY, pid, group: None, checks: Checks::Kernel };
    assert!(caller(std::process::id()).is_user(own) && !caller(u32::MAX).is_user(own));
    assert!(!caller(u32::MAX).is_user(NOBODY));
    assert!(!caller(u32::MAX).has(Capabilities::SYS_ADMIN));
    let gid = rustix::process::getegid().as_raw();
    assert!(!caller(std::process::id()).is_in_group(gid));
    let status = "Name:\tx\nUid:\t5\t6\t7\t8\n";
    assert_eq!((parse_user(status), parse_user("Uid:\t5\n")), (Some(8), None));
}
