use proptest::prelude::*;

use super::*;

#[test]
fn new_ids_are_random_and_say_so() {
    let (one, other) = (Uuid::random().unwrap(), Uuid::random().unwrap());
    assert_ne!(one, other);
    assert_eq!((one.0[6] >> 4, one.0[8] >> 6), (4, 2));
}

proptest! {
    #[test]
    fn ids_are_read_as_they_are_shown(bytes in any::<[u8; 16]>()) {
        let id = Uuid::from_bytes(bytes);
        let text = id.to_string();
        prop_assert_eq!(text.len(), 36);
        prop_assert_eq!(text.parse(), Ok(id));
        prop_assert_eq!(text.to_uppercase().parse(), Ok(id));
        prop_assert_eq!(format!("{text}0").parse::<Uuid>(), Err(NoUuid));
        prop_assert_eq!(text[1..].parse::<Uuid>(), Err(NoUuid));
    }

    #[test]
    fn other_texts_are_no_ids(text in "\\PC{0,40}|[0-9a-f+ü-]{36}") {
        if let Ok(id) = text.parse::<Uuid>() {
            prop_assert_eq!(id.to_string(), text.to_lowercase());
        }
    }
}
