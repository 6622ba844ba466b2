use std::sync::Arc;

use rustix::io::Errno;

use super::Fault;
use crate::btree;
use crate::format::Damage;

fn damage() -> Damage {
    Damage::BlockSize { log2: 3 }
}

#[test]
fn each_fault_has_the_number_that_callers_expect() {
    let device: Arc<str> = "disk".into();
    let operation = vfscale_block::Operation::Write;
    let read_only = vfscale_block::Error::ReadOnly { device: device.clone(), operation };
    let full = vfscale_block::Error::Full { device: device.clone() };
    let source = vfscale_block::OsError::IO;
    let failed = vfscale_block::Error::Io { device, operation, offset: 0, length: 0, source };
    let cases = [
        (Fault::Device(read_only), Errno::ROFS),
        (Fault::Device(failed.clone()), Errno::IO),
        (Fault::Journal(failed.into()), Errno::IO),
        (Fault::Device(full.clone()), Errno::NOSPC),
        (Fault::Journal(full.into()), Errno::NOSPC),
        (Fault::Damage(damage()), Errno::UCLEAN),
        (Fault::Local(damage()), Errno::UCLEAN),
        (Fault::NeedsRepair, Errno::UCLEAN),
        (Fault::Journal(vfscale_journal::Error::Closed), Errno::IO),
        (Fault::NoSpace, Errno::NOSPC),
        (Fault::ReadOnly, Errno::ROFS),
        (Fault::TooLarge, Errno::FBIG),
        (Errno::NOTEMPTY.into(), Errno::NOTEMPTY),
    ];
    for (fault, errno) in cases {
        assert_eq!(fault.errno(), errno, "{fault}");
    }
}

#[test]
fn damage_stays_damage_through_a_tree() {
    let error = btree::Error::<Fault>::from(Fault::Damage(damage()));
    assert!(matches!(&error, btree::Error::Damage(found) if *found == damage()));
    assert!(matches!(Fault::from(error), Fault::Damage(found) if found == damage()));
    let error = btree::Error::from(Fault::NoSpace);
    assert!(matches!(Fault::from(error), Fault::NoSpace));
}
