//! What other programs ask of the mount; see [`control`].

use rustix::ioctl;
use vfscale::{At, Errno};

use super::{Rights, Server, Turn};
use crate::control;
use crate::wire;

impl Server {
    pub(super) fn ioctl(
        &self,
        turn: &mut Turn<'_>,
        command: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        if turn.node != wire::ROOT || ioctl::Opcode::from(command) != control::GROW {
            return Err(Errno::NOTTY);
        }
        let bytes = control::bytes_of(data)?;
        let root = self.nodes.get(turn.node)?.file;
        let grown = if turn.caller.uid() == self.owner {
            self.base.grow_fs(At::File(&root), "", bytes)?
        } else {
            self.act(turn, Rights::Exact, |task| task.grow_fs(At::File(&root), "", bytes))?
        };
        turn.reply.ioctl(grown);
        Ok(())
    }
}
