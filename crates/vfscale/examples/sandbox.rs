//! A sandbox: a tree with memory limits and an untrusted guest. The guest is an unprivileged user,
//! can't leave its root, and can't make the host follow links out of its directory.

use vfscale::{At, AtFlags, Credentials, Errno, Limits, Mode, OFlags, OpenHow, ResolveFlags};

fn main() -> vfscale::Result<()> {
    let limits = Limits::for_size(8 << 20)
        .open_files(200)
        .pipe_pages(256, 300)
        .socket_bytes(1 << 20)
        .locks(1000);
    let vfs = vfscale::memory().size(8 << 20).memory_files(1 << 20).limits(limits).build()?;
    let host = vfs.task();
    host.create_dir_all("/guests/eve/home", Mode::from_bits_retain(0o755))?;
    host.chown(At::Cwd, "/guests/eve/home", Some(1000), Some(1000), AtFlags::empty())?;
    host.write_file("/secret", "only the host may know")?;

    let guest = vfs.task();
    guest.chroot("/guests/eve")?;
    guest.chdir("/home")?;
    // Also limits the descriptor numbers it may choose; the highest determines the size of its
    // table.
    guest.set_descriptors_max(64)?;
    guest.set_credentials(Credentials::user(1000, 1000));
    guest.write_file("notes", "all mine")?;
    println!("the guest is at {}", guest.getcwd()?.display());

    let outside = guest.read_to_string("/../../secret").map_err(|error| error.errno());
    assert_eq!(outside, Err(Errno::NOENT));
    let denied = guest.write_file("/forbidden", "x").map_err(|error| error.to_string());
    println!("outside of its home: {denied:?}");

    // The host opens a path that the guest names, and follows no link out of the guest's directory.
    guest.symlink("/secret", At::Cwd, "trap")?;
    let home = host.open("/guests/eve/home", OFlags::PATH, Mode::empty())?;
    let how = OpenHow { resolve: ResolveFlags::BENEATH, ..OpenHow::new(OFlags::RDONLY) };
    assert!(host.openat2(At::File(&home), "notes", &how).is_ok());
    let trap = host.openat2(At::File(&home), "trap", &how).map_err(|error| error.to_string());
    println!("the trap: {:?}", trap.err());

    let full = guest.write_file("flood", vec![0; 16 << 20]).map_err(|error| error.errno());
    assert_eq!(full, Err(Errno::NOSPC));
    let descriptors = (0..).map_while(|_| guest.pipe2_fd(OFlags::empty()).ok()).count() * 2;
    assert_eq!(descriptors, 64);
    let handles: Vec<_> =
        (0..).map_while(|_| guest.open("notes", OFlags::RDONLY, Mode::empty()).ok()).collect();
    println!(
        "{descriptors} descriptors, and {} other open files; {:?}",
        handles.len(),
        vfs.usage()
    );
    println!("{:?}", host.statfs(At::Cwd, "/")?);
    Ok(())
}
