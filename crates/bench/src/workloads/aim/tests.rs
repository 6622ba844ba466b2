//! Tests of users and their jobs.

use super::*;

#[test]
fn every_user_does_every_kind_in_an_order_of_its_own() {
    let mut rng = Rng::new(1);
    let orders: Vec<_> = (0..3).map(|user| User::new(user, &mut rng).jobs).collect();
    assert_ne!(orders[0], orders[1]);
    for order in orders {
        assert!(JOBS.iter().all(|job| order.contains(job)));
    }
}
