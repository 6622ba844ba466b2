//! What every program begins with that records calls: the allocator that this needs, and a `main` that
//! says where calls can be recorded.

/// `main` calls `$print`, which is there only where calls can be recorded.
macro_rules! recording_main {
    ($print:path) => {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        #[global_allocator]
        static ALLOCATOR: vfscale_commute::arena::Arenas = vfscale_commute::arena::Arenas;

        fn main() -> std::io::Result<()> {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            $print()?;
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            eprintln!("Calls can be recorded on Linux on x86-64 only.");
            Ok(())
        }
    };
}
