use super::*;

#[test]
fn a_compound_tells_what_it_does() {
    let fsync = Compound::fsync("/f");
    assert_eq!(fsync.synced(), Some(("/f", false)));
    assert_eq!(Compound::fdatasync("/f").synced(), Some(("/f", true)));
    assert!(Compound::fsync_dir("/d").is_fsync_of_dir() && !fsync.is_fsync_of_dir());
    assert!(Compound::sync().syncs_all() && !fsync.syncs_all());
    let publish = Compound::publish("/d/f", 10, 1);
    assert_eq!(publish.synced(), None);
    assert_eq!(publish.paths(), ["/d", "/d/f"]);
    assert_eq!(Compound::rename("/a", "/b", 2).renamed(), Some(("/a", "/b", 2)));
    assert_eq!(Compound::fallocate("/f", Space::Punch, 0, 1).allocated(), Some(Space::Punch));
}

#[test]
fn a_compound_of_data_changes_no_name() {
    let of_data = [
        Compound::empty("/f"),
        Compound::write("/f", 0, 1, 1),
        Compound::append("/f", 1, 1),
        Compound::truncate("/f", 1),
        Compound::copy_range("/f", 0, 1, 1),
    ];
    let others = [Compound::create("/f"), Compound::publish("/f", 1, 1), Compound::fsync("/f")];
    assert!(of_data.iter().all(Compound::is_of_data));
    assert!(!others.iter().any(Compound::is_of_data));
}

#[test]
fn the_rest_of_a_write_has_the_rest_of_its_bytes() {
    let data = Data::Tagged { tag: 3, at: 5, len: 100 };
    let run = Data::Run { seed: 9, len: 100 };
    for op in [
        Op::Pwrite { fd: 0, data, off: 7 },
        Op::Write { fd: 0, data: run },
        Op::Writev { fd: 0, parts: vec![run, data], off: Some(7) },
    ] {
        for done in [0, 1, 99, 100] {
            let rest = op.rest(done);
            let bytes = |op: &Op| match op {
                Op::Write { data, .. } | Op::Pwrite { data, .. } => data.bytes(),
                Op::Writev { parts, .. } => parts.iter().flat_map(|data| data.bytes()).collect(),
                _ => unreachable!(),
            };
            assert_eq!(bytes(&rest), bytes(&op)[done as usize..]);
            assert_eq!(rest.to_write(), op.to_write().map(|len| len - done));
        }
    }
}
