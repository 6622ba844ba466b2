use super::*;

#[test]
fn names_are_parsed_and_shown() {
    for text in ["rbd:a/b", "rbd:a/n/b", "rbd:a/b@s", "rbd:a/n/b@s.1-2"] {
        assert_eq!(Name::parse(text).unwrap().to_string(), text);
    }
    let name = Name::parse("rbd:a/n/b@s").unwrap();
    assert_eq!((name.pool(), name.namespace()), ("a", Some("n")));
    assert_eq!((name.image(), name.snapshot()), ("b", Some("s")));
}

#[test]
fn other_texts_are_refused() {
    for text in ["a/b", "rbd:", "rbd:a", "rbd:a/", "rbd:/b", "rbd:a//b", "rbd:a/b/c/d", "rbd:a/b@"]
    {
        assert!(matches!(Name::parse(text), Err(Error::Refused { .. })), "{text}");
    }
    for text in ["rbd:a/b@s@t", "rbd:a/b@s/t", "rbd:a/b\0"] {
        assert!(Name::parse(text).is_err(), "{text:?}");
    }
}
