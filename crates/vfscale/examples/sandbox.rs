//! A sandbox: a tree with memory limits and an untrusted guest. The guest is an unprivileged user,
//! can't leave its root, and can't make the host follow links out of its directory, neither in the
//! tree nor in what is exported of it.

use vfscale::posix::{At, OFlags, OpenHow, ResolveFlags};
use vfscale::{Credentials, Errno, Limits, Links, Transfer};

fn main() -> vfscale::Result<()> {
    let limits = Limits::for_size(8 << 20)
        .open_files(200)
        .pipe_pages(256, 300)
        .socket_bytes(1 << 20)
        .locks(1000);
    let vfs = vfscale::memory().size(8 << 20).memory_files(1 << 20).limits(limits).build()?;
    let host = vfs.task();
    host.create_dir_all("/guests/eve/home")?;
    host.chown("/guests/eve/home", Some(1000), Some(1000))?;
    host.write("/secret", "only the host may know")?;

    let guest = vfs.task_in("/guests/eve", Credentials::user(1000, 1000))?;
    guest.set_current_dir("/home")?;
    // Also limits the descriptor numbers it may choose; the highest determines the size of its
    // table.
    guest.posix().set_descriptors_max(64)?;
    guest.write("notes", "all mine")?;
    println!("the guest is at {}", guest.current_dir()?.display());

    let outside = guest.read_to_string("/../../secret").map_err(|error| error.errno());
    assert_eq!(outside, Err(Errno::NOENT));
    let denied = guest.write("/forbidden", "x").map_err(|error| error.to_string());
    println!("outside of its home: {denied:?}");

    // The host opens a path that the guest names, and follows no link out of the guest's directory.
    guest.symlink("/secret", "trap")?;
    let home = host.posix().open("/guests/eve/home", OFlags::PATH, 0)?;
    let how = OpenHow { resolve: ResolveFlags::BENEATH, ..OpenHow::new(OFlags::RDONLY) };
    assert!(host.posix().openat2(At::File(&home), "notes", &how).is_ok());
    let trap =
        host.posix().openat2(At::File(&home), "trap", &how).map_err(|error| error.to_string());
    println!("the trap: {:?}", trap.err());

    // Programs of the host may read what is exported, so no link in it leads elsewhere.
    let results = std::env::temp_dir().join(format!("vfscale-sandbox-{}", std::process::id()));
    let export = |links| {
        Transfer::new().links(links).export(
            &host,
            "/guests/eve/home",
            results.join(format!("{links:?}")),
        )
    };
    std::fs::create_dir(&results).map_err(|_| vfscale::Error::at("mkdir", Errno::IO, &results))?;
    let (refused, skipped) = (export(Links::Refuse), export(Links::Skip));
    // Gone with the results, whatever they are.
    let _ = std::fs::remove_dir_all(&results);
    println!("the trap: {:?}", refused.map_err(|error| error.to_string()).err());
    assert_eq!(skipped?.skipped, 1);

    let full = guest.write("flood", vec![0; 16 << 20]).map_err(|error| error.errno());
    assert_eq!(full, Err(Errno::NOSPC));
    let descriptors = (0..).map_while(|_| guest.posix().pipe2_fd(OFlags::empty()).ok()).count() * 2;
    assert_eq!(descriptors, 64);
    let handles: Vec<_> = (0..).map_while(|_| guest.open("notes").ok()).collect();
    println!(
        "{descriptors} descriptors, and {} other open files; {:?}",
        handles.len(),
        vfs.usage()
    );
    println!("{:?}", host.space("/")?);
    Ok(())
}
