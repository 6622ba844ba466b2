//! Branches that travel to another pool.

use std::io::{Read, Write};

pub use vfscale_pool::{Received, SendOptions, Sent};

use super::{Pool, PoolError};

impl Pool {
    /// Writes a branch as a stream, from which [`receive`](Self::receive) makes the same branch in
    /// another pool: the same trees with the same inode numbers. With [`SendOptions::since`] only
    /// the blocks are in it that differ from a branch that can only be read, as a
    /// [checkpoint](Self::checkpoint), and that the other pool has received. A branch that is open
    /// is sent as a [fork](Self::fork) would have it; it can be changed and deleted meanwhile.
    ///
    /// A branch that can only be read has the same stream each time. One that was cut goes on at
    /// any byte, by [`SendOptions::skip`]. Each part has a checksum, and none is a secret: encrypt
    /// the stream if it passes strangers.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pools = ["disk.vfs", "copy.vfs"].map(|name| {
    /// #     let path = dir.path().join(name);
    /// #     vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    /// #     vfscale::pool(&path).convert(true).open().unwrap()
    /// # });
    /// # let [pool, copy] = pools;
    /// # let write = |text: &str| -> Result<(), Box<dyn std::error::Error>> {
    /// #     let main = pool.open("main")?;
    /// #     main.task().write("/f", text)?;
    /// #     Ok(main.close()?)
    /// # };
    /// use vfscale::SendOptions;
    ///
    /// write("monday")?;
    /// let monday = pool.checkpoint("main", "monday")?;
    /// let mut stream = Vec::new();
    /// pool.send(&monday, &SendOptions::new(), &mut stream)?;
    /// copy.receive(None, &mut &stream[..])?;
    ///
    /// write("tuesday")?;
    /// let tuesday = pool.checkpoint("main", "tuesday")?;
    /// let (mut stream, options) = (Vec::new(), SendOptions::new().since(Some(&monday)));
    /// pool.send(&tuesday, &options, &mut stream)?;
    /// copy.receive(None, &mut &stream[..])?;
    ///
    /// assert_eq!(copy.open(&monday)?.task().read_to_string("/f")?, "monday");
    /// assert_eq!(copy.open(&tuesday)?.task().read_to_string("/f")?, "tuesday");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocks for the I/O: that of a fork if the branch can be written, and the reading of what is
    /// sent. Takes 1 MiB of memory.
    ///
    /// # Errors
    /// [`PoolError::Branches`]: there is no such branch; the one to go on from can be written, or
    /// is larger; the stream can't be written; damage, and errors of the device.
    /// [`PoolError::Sync`].
    pub fn send(
        &self,
        branch: &str,
        options: &SendOptions,
        out: &mut dyn Write,
    ) -> Result<Sent, PoolError> {
        let what = self.shared.look(branch)?;
        self.shared.call(self.shared.pool().send(&what, branch, options, out))
    }

    /// Makes a branch of a stream that [`send`](Self::send) has written: one that can only be read,
    /// with the name that it had, or another one. [Fork](Self::fork) it to change it, and leave it
    /// as long as streams are to come that go on from it. Reads no byte behind the stream.
    ///
    /// The branch is there when all of the stream has come, and durable. An error and a power cut
    /// leave none. Until then there is a temporary branch, `receive@1` or with the next number.
    ///
    /// Blocks for the I/O. Takes the memory of the part of the map that is written, 8 bytes for
    /// each KiB of contents, and 1 MiB.
    ///
    /// # Errors
    /// [`PoolError::Branches`]: the stream is damaged, cut or none; what it goes on from is not
    /// here; it has come already; the name exists; the pool is full; errors of the device.
    pub fn receive(&self, name: Option<&str>, input: &mut dyn Read) -> Result<Received, PoolError> {
        let received = self.shared.call(self.shared.to_change()?.receive(name, input));
        if received.is_err() {
            self.shared.reap_soon();
        }
        received
    }
}
