use super::*;

#[test]
fn a_holder_is_known_by_its_address() {
    let since = UNIX_EPOCH + Duration::from_secs(1_763_784_845);
    let holder = Holder { pid: 7, program: "a b".into(), host: "node-1".into(), since };
    let value = encode(&holder, "127.0.0.1:0/12");
    assert_eq!(decode(&value, "127.0.0.1:0/12"), Some(holder));
    assert_eq!(decode(&value, "127.0.0.1:0/13"), None);
}

#[test]
fn other_values_name_nobody() {
    for value in ["", "a", "a\n7", "a\nx\n1\np\nh", "a\n7\n1\np"] {
        assert_eq!(decode(value, "a"), None, "{value:?}");
    }
}

#[test]
fn a_client_is_the_same_by_either_protocol() {
    assert!(is_same("v1:10.0.0.1:0/5", "10.0.0.1:0/5"));
    assert!(!is_same("10.0.0.1:0/5", "10.0.0.1:0/55"));
}
