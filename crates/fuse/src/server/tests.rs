//! Requests of no kernel: random ones, and damaged ones, to a server without a device. Each is
//! answered, with an error or not, and none makes the server panic.

#![allow(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]

use std::fs::File as HostFile;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use super::*;
use crate::base::device::Device;
use crate::base::polling::PollingChoice;
use crate::session::{Late, LateReplies, TRANSFER_MAX};
use crate::wire::request::Dialect;
use crate::wire::{IN_HEADER, OUT_HEADER};

/// Requests to each server, a few seconds for all.
const REQUESTS: u64 = 10_000;

/// Random numbers (splitmix64), and those of the server.
struct Random {
    state: u64,
    nodes: Vec<u64>,
    handles: Vec<u64>,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn node(&mut self) -> u64 {
        match self.below(10) {
            0 => self.number(),
            1 | 2 => 1,
            _ => {
                let at = self.below(self.nodes.len() as u64);
                self.nodes[at as usize]
            }
        }
    }

    /// Returns a file handle, often none, as in exclusive use.
    fn handle(&mut self) -> u64 {
        match self.below(10) {
            0 => self.number(),
            1..5 => 0,
            _ => {
                let at = self.below(self.handles.len() as u64);
                self.handles[at as usize]
            }
        }
    }

    /// Notes what a reply has granted.
    fn learn(&mut self, worker: &Worker) {
        let granted = worker.granted.iter().copied();
        self.nodes.extend(granted.filter(|node| *node != 1));
        self.handles.extend(worker.opened);
        let first = |known: &Vec<u64>| known.len().saturating_sub(50);
        self.nodes.drain(..first(&self.nodes));
        self.handles.drain(..first(&self.handles));
    }

    /// Returns a number that is often small, or at a border.
    fn number(&mut self) -> u64 {
        const BORDERS: [u64; 12] = [
            0,
            1,
            511,
            4095,
            4096,
            1 << 20,
            (1 << 20) + 1,
            u32::MAX as u64,
            i64::MAX as u64,
            i64::MAX as u64 + 1,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.pick(&BORDERS),
            1 => self.next(),
            _ => self.below(20),
        }
    }
}

/// A body under construction.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    /// Appends `longs` numbers of eight bytes.
    fn longs(&mut self, random: &mut Random, longs: usize) {
        (0..longs).for_each(|_| self.0.extend(random.number().to_ne_bytes()));
    }

    /// Appends `words` numbers of four bytes.
    fn words(&mut self, random: &mut Random, words: usize) {
        (0..words).for_each(|_| self.0.extend((random.number() as u32).to_ne_bytes()));
    }

    fn name(&mut self, random: &mut Random) {
        const NAMES: [&[u8]; 12] = [
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
            b"",
            b".",
            b"..",
            b"a/b",
            b"\xff\xfe",
            b"user.a",
            b"system.posix_acl_access",
        ];
        match random.below(30) {
            0 => self.0.extend(vec![b'n'; random.below(5000) as usize]),
            1 => self.0.extend(b"security.capability"),
            _ => self.0.extend(random.pick(&NAMES)),
        }
        self.0.push(0);
    }

    /// Appends bytes, whose length is told at `at` if the message is honest.
    fn bytes(&mut self, random: &mut Random, at: usize) {
        let len = random.pick(&[0_usize, 1, 7, 24, 264, 4096, 5000]);
        let byte = random.next() as u8;
        if !random.one_in(8) {
            self.0[at..at + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        }
        self.0.extend(vec![byte; len]);
    }
}

/// Returns a body that the operation may have.
fn body(random: &mut Random, operation: u32) -> Vec<u8> {
    use crate::wire::opcode as op;
    let mut body = Body::default();
    match operation {
        op::LOOKUP | op::UNLINK | op::RMDIR | op::REMOVEXATTR => body.name(random),
        op::SYMLINK => (0..2).for_each(|_| body.name(random)),
        op::MKNOD => {
            let kind = random.pick(&[0o100_000, 0o040_000, 0o010_000, 0o020_000, 0o120_000, 0_u32]);
            body.0.extend((kind | random.below(0o10_000) as u32).to_ne_bytes());
            body.words(random, 3);
            body.name(random);
        }
        op::MKDIR => {
            body.words(random, 2);
            body.name(random);
        }
        op::RENAME | op::LINK | op::RENAME2 => {
            body.0.extend(random.node().to_ne_bytes());
            body.longs(random, usize::from(operation == op::RENAME2));
            (0..2).for_each(|_| body.name(random));
        }
        op::CREATE | op::TMPFILE => {
            body.words(random, 4);
            body.name(random);
        }
        op::SETXATTR => {
            body.words(random, 4);
            body.name(random);
            body.bytes(random, 0);
        }
        op::GETXATTR => {
            body.words(random, 2);
            body.name(random);
        }
        op::WRITE => {
            body.0.extend(random.handle().to_ne_bytes());
            body.longs(random, 1);
            body.words(random, 2);
            body.longs(random, 1);
            body.words(random, 2);
            body.bytes(random, 16);
        }
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => {
            body.0.extend(random.handle().to_ne_bytes());
            body.longs(random, 1);
            body.0.extend(random.node().to_ne_bytes());
            body.0.extend(random.handle().to_ne_bytes());
            body.longs(random, 3);
        }
        op::IOCTL => {
            body.longs(random, 1);
            body.words(random, 1);
            let command = random.pick(&COMMANDS);
            body.0.extend(command.to_ne_bytes());
            body.longs(random, 1);
            body.words(random, 2);
            body.bytes(random, 24);
        }
        op::BATCH_FORGET => {
            body.words(random, 2);
            let count = random.pick(&[0, 1, 3, 100]);
            body.longs(random, count);
        }
        _ => {
            body.0.extend(random.handle().to_ne_bytes());
            let count = random.below(14) as usize;
            body.longs(random, count);
        }
    }
    body.0
}

/// The commands that the server knows, and one that it does not.
const COMMANDS: [u32; 12] = [
    0xc008_e701,
    0xe702,
    0x8008_e703,
    0x4108_e704,
    0xd308_e705,
    0x8040_e706,
    0x4008_e707,
    0xc018_5879,
    0x8008_6601,
    0x4008_6602,
    0x401c_5820,
    77,
];

/// Returns a message, which may be damaged.
fn message(random: &mut Random, unique: u64) -> Vec<u8> {
    use crate::wire::opcode as op;
    let operation = match random.below(40) {
        0 => random.number() as u32,
        1..4 => op::MKNOD,
        4 | 5 => op::LOOKUP,
        6 | 7 => op::OPEN,
        8 | 9 => op::READ,
        _ => random.below(54) as u32,
    };
    // Else there are hardly any nodes.
    let forgets = matches!(operation, op::FORGET | op::BATCH_FORGET);
    let operation = if forgets && !random.one_in(4) { op::GETATTR } else { operation };
    let body = body(random, operation);
    let extension: Vec<u8> = match random.below(10) {
        0 => [16_u32, 1 << 29, 1, 7].iter().flat_map(|word| word.to_ne_bytes()).collect(),
        1 => (0..8 * random.below(4)).map(|_| random.next() as u8).collect(),
        _ => Vec::new(),
    };
    let mut message = Vec::new();
    message.extend(((IN_HEADER + body.len() + extension.len()) as u32).to_ne_bytes());
    message.extend(operation.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(random.node().to_ne_bytes());
    message.extend(random.pick(&[0_u32, 0, 7, u32::MAX]).to_ne_bytes());
    message.extend(random.pick(&[0_u32, 7]).to_ne_bytes());
    message.extend(random.pick(&[0, 1, std::process::id()]).to_ne_bytes());
    message.extend(((extension.len() / 8) as u16).to_ne_bytes());
    message.extend([0; 2]);
    message.extend(body);
    message.extend(extension);
    damage(random, &mut message);
    message
}

/// Damages one message in three.
fn damage(random: &mut Random, message: &mut Vec<u8>) {
    match random.below(9) {
        0 => {
            let at = random.below(message.len() as u64) as usize;
            message[at] = random.next() as u8;
        }
        1 => message.truncate(random.below(message.len() as u64) as usize),
        2 => message.extend(vec![random.next() as u8; random.below(64) as usize]),
        _ => return,
    }
    // Else the parser looks no further.
    if !random.one_in(4) && message.len() >= 4 {
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
    }
}

#[derive(Debug, Default)]
struct Answers(Mutex<Vec<u64>>);

impl LateReplies for Answers {
    fn answer(&self, unique: u64, _: Result<Late, Errno>) {
        self.0.lock().unwrap().push(unique);
    }
}

/// Serves random requests.
fn attack(vfs: &Vfs, config: Config, seed: u64) {
    let counters = Arc::new(Counters::new(1, PollingChoice::Never));
    let server = Server::new(vfs, config, VolumeRights::default(), None, counters).unwrap();
    let null = HostFile::options().write(true).open("/dev/null").unwrap();
    server.unsent.connect(&Arc::new(Device::from_fd(OwnedFd::from(null))));
    let answers = Arc::new(Answers::default());
    let mut random = Random { state: seed, nodes: vec![1], handles: vec![1] };
    let (mut worker, mut reply) = (Worker::default(), Reply::new());
    let (mut served, mut deferred) = (0, 0);
    for unique in 1..=REQUESTS {
        let bytes = message(&mut random, unique);
        let dialect = Dialect { setxattr_ext: random.one_in(2) };
        let parsed = if bytes.len() < IN_HEADER || !random.one_in(4) {
            Request::parse(&bytes, dialect)
        } else {
            // As io_uring passes it.
            let (head, body) = bytes.split_at(IN_HEADER);
            let (first, others) = body.split_at(random.below(body.len() as u64 + 1) as usize);
            Request::parse_pieces(head, first, others, dialect)
        };
        let Ok(request) = parsed else { continue };
        if matches!(request.operation, Operation::Init(_) | Operation::Destroy) {
            continue;
        }
        let later = || DeferredReply::new(Arc::clone(&answers) as _, unique);
        let _ = server.takes_long(&request.operation);
        let serve = || server.serve(&mut worker, &request, &mut reply, &later);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}, {unique}: {request:?}"));
        let sent = reply.finish_with(unique, outcome.map(|_| ()));
        assert!(sent.len() <= OUT_HEADER + TRANSFER_MAX + 4096, "seed {seed}, {unique}");
        served += u64::from(outcome.is_ok());
        deferred += usize::from(outcome == Ok(Served::Deferred));
        random.learn(&worker);
        if random.one_in(10) {
            server.undelivered(&mut worker);
        }
    }
    assert!(served > REQUESTS / 10, "seed {seed}: {served} requests made sense");
    server.ended();
    assert_eq!(answers.0.lock().unwrap().len(), deferred, "seed {seed}");
}

const CONFIG: Config = Config {
    sharing: Sharing::Exclusive,
    volatile: false,
    writeback: false,
    has_xattrs: true,
    syncing: Syncing::OnRequest,
    checks_open: false,
    idmap: false,
    is_permitted: true,
};

#[test]
fn no_request_makes_the_server_panic() {
    let shared = Sharing::Shared { cache: Duration::ZERO };
    let configs = [
        CONFIG,
        Config { sharing: shared, is_permitted: false, ..CONFIG },
        Config { writeback: true, checks_open: true, syncing: Syncing::All, ..CONFIG },
        Config { idmap: true, volatile: true, ..CONFIG },
    ];
    let dir = tempfile::tempdir().unwrap();
    // Set to a number that a failure has shown, to repeat it.
    let seed = std::env::var("VFSCALE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    for (i, config) in configs.into_iter().enumerate() {
        let seed = seed.unwrap_or(1000 + i as u64);
        let vfs = vfscale::memory().size(16 << 20).build().unwrap();
        attack(&vfs, config, seed);
        let image = dir.path().join(format!("image{i}"));
        let volume = vfscale::volume(image).create(64 << 20).open().unwrap();
        attack(volume.vfs(), config, seed);
        volume.close().unwrap();
    }
}
