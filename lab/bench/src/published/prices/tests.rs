use super::*;
use crate::workloads;

#[test]
fn prices_are_of_patches_and_workloads_that_exist() {
    for price in PRICES {
        assert!(vfscale::PATCHES.iter().any(|patch| patch.name() == price.patch));
        for workload in price.workloads {
            assert!(workloads::find(workload).is_ok(), "{workload}");
            let patches = ["lru".to_owned(), price.patch.to_owned()];
            assert_eq!(price_of(workload, &patches), Some(price.text));
        }
    }
}

#[test]
fn a_price_is_told_of_its_patch_and_workload_only() {
    let hash = ["dcache-hash".to_owned()];
    assert!(price_of("aim-short", &hash).is_some());
    assert_eq!(price_of("aim-short", &["lockref".to_owned()]), None);
    assert_eq!(price_of("stat-deep", &hash), None);
}
