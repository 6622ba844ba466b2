use super::*;

#[test]
fn pages_of_zeros_are_found() {
    assert!(!has_zero_page(&[]));
    assert!(has_zero_page(&[0; 3]));
    let mut bytes = [1; 2 * PAGE + 5];
    assert!(!has_zero_page(&bytes));
    bytes[2 * PAGE..].fill(0);
    assert!(has_zero_page(&bytes));
    bytes[2 * PAGE + 4] = 1;
    bytes[PAGE - 1..2 * PAGE - 1].fill(0);
    assert!(!has_zero_page(&bytes), "no whole page");
    bytes[2 * PAGE - 1] = 0;
    assert!(has_zero_page(&bytes));
}
