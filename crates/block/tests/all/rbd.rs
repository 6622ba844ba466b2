//! Images on a Ceph cluster, whose configuration `VFSCALE_CEPH_CONF` names: `scripts/ceph up` makes
//! one, and `scripts/test ceph` does both. Without it `devices` has no such device.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use vfscale_block::rbd::{Name, Watch};
use vfscale_block::{Ceph, Device, DeviceOptions, Error, Guarded, RbdDevice};
use vfscale_sync::page::Page;

const SIZE: u64 = 32 << 20;

/// Returns the cluster, if there is one.
fn found() -> Option<Ceph> {
    std::env::var_os("VFSCALE_CEPH_CONF").map(|conf| Ceph { conf: Some(conf.into()), id: None })
}

fn cluster() -> Ceph {
    found().expect("VFSCALE_CEPH_CONF names a cluster")
}

/// Returns the name of an image that is not there.
fn fresh() -> Name {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Name::parse(format!("rbd:rbd/test-{}-{number}", std::process::id())).unwrap()
}

/// An image that is removed when dropped.
struct Image {
    ceph: Ceph,
    name: Name,
}

impl Image {
    fn create(ceph: &Ceph, size: u64) -> (Self, RbdDevice) {
        let image = Self { ceph: ceph.clone(), name: fresh() };
        let device = RbdDevice::create(&image.name, size, &image.options()).unwrap();
        (image, device)
    }

    fn options(&self) -> DeviceOptions {
        DeviceOptions::new().ceph(self.ceph.clone())
    }

    fn open(&self) -> RbdDevice {
        RbdDevice::open(&self.name, &self.options()).unwrap()
    }

    fn take_over(&self) -> RbdDevice {
        RbdDevice::open(&self.name, &self.options().take_over(true)).unwrap()
    }

    fn spec(&self) -> String {
        self.name.to_string()[4..].to_owned()
    }

    /// Runs the program `rbd`; returns its output.
    fn rbd(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("rbd");
        command.arg("--conf").arg(self.ceph.conf.as_ref().unwrap()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A client that was refused may still watch the image for a moment.
        vfscale_harness::wait_until("the removal of the image", || {
            self.options().remove(self.name.to_string()).is_ok()
        });
    }
}

/// A device whose image is removed with it.
#[derive(Debug)]
struct Owned(RbdDevice, #[allow(dead_code, reason = "dropped after the device")] Removed);

struct Removed(#[allow(dead_code, reason = "removes the image when dropped")] Image);

impl std::fmt::Debug for Removed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name.to_string())
    }
}

impl std::ops::Deref for Owned {
    type Target = RbdDevice;

    fn deref(&self) -> &RbdDevice {
        &self.0
    }
}

/// Returns a device for the tests of all devices.
pub(crate) fn device(size: u64) -> Option<(&'static str, Arc<dyn Device>)> {
    let (image, device) = Image::create(&found()?, size);
    Some(("image of Ceph RBD", Arc::new(Owned(device, Removed(image)))))
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn an_image_has_one_writer_whom_others_are_told() {
    let ceph = cluster();
    let (image, device) = Image::create(&ceph, SIZE);
    for options in [image.options(), image.options().read_only(true)] {
        let Err(Error::Locked { holder, client, .. }) = RbdDevice::open(&image.name, &options)
        else {
            panic!("it is not locked");
        };
        assert_eq!(holder.unwrap().pid, std::process::id());
        assert_eq!(client.as_deref(), device.client());
    }
    assert!(matches!(
        image.options().check_free(image.name.to_string()),
        Err(Error::Locked { .. })
    ));
    let owner = Watch::open(&image.name, &ceph).unwrap().owner().unwrap().unwrap();
    assert!(owner.is_watching);
    device.release();
    image.options().check_free(image.name.to_string()).unwrap();
    assert!(matches!(device.write_at(0, &[0; 512]), Err(Error::ReadOnly { .. })));
    drop(image.open());
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_client_that_lost_an_rbd_image_writes_nothing_more() {
    let ceph = cluster();
    let (image, old) = Image::create(&ceph, SIZE);
    old.write_at(4096, &[1; 4096]).unwrap();
    old.flush().unwrap();
    let new = image.take_over();
    let begun = Instant::now();
    assert!(matches!(old.prove(), Err(Error::Fenced { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(old.is_fenced());
    assert!(matches!(old.write_at(4096, &[2; 4096]), Err(Error::Fenced { .. })));
    assert!(matches!(old.flush(), Err(Error::Fenced { .. })));
    let mut found = [0; 4096];
    new.read_at(4096, &mut found).unwrap();
    assert_eq!(found, [1; 4096]);
    new.write_at(0, &[3; 512]).unwrap();
    new.flush().unwrap();
    drop((old, new));
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_write_that_nothing_has_warned_fails_too() {
    let ceph = cluster();
    let (image, old) = Image::create(&ceph, SIZE);
    let new = image.take_over();
    // All blocks of all objects: the first calls of the old client after it was taken over.
    let pages = Arc::new(Page::many_with(SIZE as usize / 4096, 0, &vec![7; SIZE as usize]));
    let wrote = old.begin_write_pages(0, &pages).wait();
    assert!(wrote.is_err() && old.flush().is_err());
    let mut found = vec![1; SIZE as usize];
    new.read_at(0, &mut found).unwrap();
    // An OSD that did not know yet may have served the old client before the new one's first call;
    // no flush has covered that. From that call on nothing changes.
    let first = found.clone();
    assert!(old.write_pages(0, &pages).is_err());
    new.read_at(0, &mut found).unwrap();
    assert!(found == first);
    drop((old, new));
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_flush_fails_without_the_lock_even_if_the_client_is_not_refused() {
    let ceph = cluster();
    let (image, device) = Image::create(&ceph, SIZE);
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    let listed = image.rbd(&["lock", "ls", "--format", "json", &image.spec()]);
    let field = |name: &str| {
        let value = listed.split_once(&format!("\"{name}\":\"")).unwrap().1;
        value.split_once('"').unwrap().0.to_owned()
    };
    let no_fence = "--rbd-blocklist-on-break-lock=false";
    image.rbd(&["lock", "rm", no_fence, &image.spec(), &field("id"), &field("locker")]);
    assert!(matches!(device.flush(), Err(Error::Fenced { .. })));
    assert!(matches!(device.write_at(0, &[2; 512]), Err(Error::Fenced { .. })));
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_snapshot_is_read_beside_the_writer() {
    let ceph = cluster();
    let (image, device) = Image::create(&ceph, SIZE);
    device.write_at(0, &[1; 4096]).unwrap();
    image.rbd(&["snap", "create", "--no-progress", &format!("{}@then", image.spec())]);
    device.write_at(0, &[2; 4096]).unwrap();
    let then = Name::parse(format!("{}@then", image.name)).unwrap();
    assert!(matches!(RbdDevice::open(&then, &image.options()), Err(Error::ReadOnly { .. })));
    let snapshot = RbdDevice::open(&then, &image.options().read_only(true)).unwrap();
    let mut found = [0; 4096];
    snapshot.read_at(0, &mut found).unwrap();
    assert_eq!(found, [1; 4096]);
    assert!(matches!(snapshot.write_at(0, &[0; 512]), Err(Error::ReadOnly { .. })));
    drop((snapshot, device));
    image.rbd(&["snap", "rm", "--no-progress", &format!("{}@then", image.spec())]);
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn many_requests_are_in_flight_at_a_time() {
    let ceph = cluster();
    let (_image, device) = Image::create(&ceph, SIZE);
    let bytes: Vec<u8> = (0..SIZE as usize).map(|i| (i / 4096 % 251) as u8).collect();
    let pages = Arc::new(Page::many_with(bytes.len() / 4096, 0, &bytes));
    let half = bytes.len() / 2;
    let begun = device.begin_write_pages(0, &pages);
    // Pages that the caller has dropped stay until the write has ended.
    drop(pages);
    begun.wait().unwrap();
    let (mut low, mut high) = (vec![0; half], vec![0; half]);
    device.read_many(&mut [(half as u64, &mut high), (0, &mut low)]).unwrap();
    assert!(low == bytes[..half] && high == bytes[half..]);
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn an_image_grows_and_is_discarded() {
    let ceph = cluster();
    let (image, device) = Image::create(&ceph, SIZE);
    // By the object map, which is right at every moment.
    let used = || {
        let told = image.rbd(&["du", "--format", "json", &image.spec()]);
        let number = told.split_once("\"used_size\":").unwrap().1;
        number.split_once(['}', ',']).unwrap().0.parse::<u64>().unwrap()
    };
    device.write_at(0, &vec![9; 8 << 20]).unwrap();
    assert_eq!(used(), 8 << 20);
    device.discard(0, 8 << 20).unwrap();
    assert_eq!(used(), 0);
    let mut found = vec![1; 8 << 20];
    device.read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "whole objects read as zeros");
    device.set_size(2 * SIZE).unwrap();
    assert!(matches!(device.set_size(SIZE), Err(Error::Unsupported { .. })));
    assert!(matches!(device.set_size(2 * SIZE + 1), Err(Error::Misaligned { .. })));
    drop(device);
    image.rbd(&["object-map", "check", "--no-progress", &image.spec()]);
    assert_eq!(image.open().size(), 2 * SIZE);
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn an_rbd_error_names_what_is_missing() {
    let ceph = cluster();
    let open = |ceph: &Ceph, name: &str| {
        DeviceOptions::new().ceph(ceph.clone()).open(name).unwrap_err().to_string()
    };
    assert!(open(&ceph, "rbd:none/x").contains("no pool `none`"));
    assert!(open(&ceph, "rbd:rbd/none").contains("No such file"));
    assert!(open(&ceph, "rbd:rbd").contains("rbd:POOL"));
    let nowhere = Ceph { conf: Some("/no/ceph.conf".into()), id: None };
    assert!(open(&nowhere, "rbd:rbd/x").contains("cannot read /no/ceph.conf"));
    let nobody = Ceph { id: Some("nobody".into()), ..ceph.clone() };
    let refused = open(&nobody, "rbd:rbd/x");
    assert!(refused.contains("--id"), "{refused}");
    let (image, device) = Image::create(&ceph, SIZE);
    drop(device);
    image.rbd(&["feature", "disable", &image.spec(), "object-map,exclusive-lock"]);
    let unlockable = open(&ceph, &image.name.to_string());
    assert!(unlockable.contains("rbd feature enable"), "{unlockable}");
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_namespace_and_a_user_of_their_own() {
    let ceph = cluster();
    let conf = ceph.conf.clone().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).arg("--conf").arg(&conf).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let space = format!("space-{}", std::process::id());
    run("rbd", &["namespace", "create", &format!("rbd/{space}")]);
    let caps = ["mon", "profile rbd", "osd", "profile rbd pool=rbd"];
    let key = run("ceph", &[&["auth", "get-or-create", "client.vfscale"][..], &caps].concat());
    let folder = tempfile::tempdir().unwrap();
    let keyring = folder.path().join("keyring");
    std::fs::write(&keyring, key).unwrap();
    let own = std::fs::read_to_string(&conf).unwrap();
    let own = own.replace("keyring = ", &format!("keyring = {},", keyring.display()));
    let own_conf = folder.path().join("ceph.conf");
    std::fs::write(&own_conf, own).unwrap();
    let user = Ceph { conf: Some(own_conf), id: Some("vfscale".into()) };
    let name = Name::parse(format!("rbd:rbd/{space}/x")).unwrap();
    let options = DeviceOptions::new().ceph(user);
    let old = RbdDevice::create(&name, SIZE, &options).unwrap();
    let new = RbdDevice::open(&name, &options.clone().take_over(true)).unwrap();
    assert!(matches!(old.flush(), Err(Error::Fenced { .. })));
    new.flush().unwrap();
    drop((old, new));
    assert!(options.exists(name.to_string()).unwrap());
    drop(Image { ceph, name });
    run("rbd", &["namespace", "remove", &format!("rbd/{space}")]);
}
