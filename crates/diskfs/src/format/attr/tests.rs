use std::mem::offset_of;

use super::*;
use crate::format::documented;

#[test]
fn the_page_has_the_fields_of_an_attribute() {
    let fields = [
        (offset_of!(RawAttr, value_bytes), 4, "value bytes"),
        (offset_of!(RawAttr, name_bytes), 1, "name bytes"),
    ];
    assert_eq!(documented("### Attributes"), fields);
}
