use super::*;

#[test]
fn requests_are_decoded_as_they_were_encoded() {
    let (name, to, parent) = ("a b".to_owned(), "n".repeat(NAME_BYTES), "main".to_owned());
    let mut requests = vec![
        BranchRequest::Delete { name: name.clone() },
        BranchRequest::Rename { name: name.clone(), to },
        BranchRequest::Rollback { name: name.clone() },
    ];
    let kinds = [(false, false), (true, false), (false, true)];
    for ((read_only, temporary), as_synced) in
        kinds.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let (parent, name) = (parent.clone(), name.clone());
        requests.push(BranchRequest::Create { parent, name, read_only, as_synced, temporary });
    }
    for request in requests {
        let raw = request.encode().unwrap();
        assert_eq!(BranchRequest::decode(&raw), Ok(request));
    }
}

#[test]
fn wrong_requests_are_refused() {
    let long = BranchRequest::Delete { name: "n".repeat(NAME_BYTES + 1) };
    assert_eq!(long.encode(), Err(Errno::INVAL));
    let zero = BranchRequest::Delete { name: "a\0b".into() };
    assert_eq!(zero.encode(), Err(Errno::INVAL));
    let mut raw = BranchRequest::Delete { name: "a".into() }.encode().unwrap();
    assert_eq!(BranchRequest::decode(&raw[1..]), Err(Errno::INVAL));
    raw[4] = 1;
    assert_eq!(BranchRequest::decode(&raw), Err(Errno::INVAL));
    raw[4] = 0;
    raw[0] = 9;
    assert_eq!(BranchRequest::decode(&raw), Err(Errno::INVAL));
    (raw[0], raw[8]) = (2, 0xff);
    assert_eq!(BranchRequest::decode(&raw), Err(Errno::INVAL));
}

/// A list that takes more than one reply.
#[test]
fn a_long_list_is_read_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(16 << 20).open().unwrap().close().unwrap();
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    for n in 0..PAGE {
        pool.fork("main", &format!("b{n}")).unwrap();
    }
    let first = list(&pool, &0_u64.to_ne_bytes()).unwrap();
    assert_eq!(super::long(&first[..8]), Ok(PAGE as u64 + 1));
    let shown: Vec<BranchInfo> =
        first[8..].chunks_exact(INFO_BYTES).map(|raw| info(raw).unwrap()).collect();
    assert_eq!(shown, pool.branches()[..PAGE]);
    let rest = list(&pool, &(PAGE as u64).to_ne_bytes()).unwrap();
    assert_eq!(super::long(&rest[..8]), Ok(1));
    let behind = list(&pool, &u64::MAX.to_ne_bytes()).unwrap();
    assert_eq!(super::long(&behind[..8]), Ok(0));
    assert_eq!(list(&pool, &[0; 3]), Err(Errno::INVAL));
}
