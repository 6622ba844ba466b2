use vfscale::Mode;
use vfscale::posix::Whence;

use super::*;

fn call(process: u8, op: Op) -> Call {
    Call { process, op }
}

fn open(path: &str, slot: u8) -> Op {
    let flags = OFlags::CREATE | OFlags::RDWR;
    Op::Open { path: path.into(), flags, mode: Mode::RUSR, slot }
}

#[test]
fn processes_have_slots_and_directories_of_their_own() {
    let vfs = vfscale::memory().size(1 << 20).build().unwrap();
    let mut world = World::new(vfs);
    assert_eq!(world.call(&call(0, open("a", 3))), Outcome::Done);
    let write = Op::Pwrite { slot: 3, len: 5, byte: 7, offset: 1 };
    assert_eq!(world.call(&call(1, write.clone())), Outcome::Error(Errno::BADF));
    assert_eq!(world.call(&call(0, write)), Outcome::Number(5));
    let read = Op::Read { slot: 3, len: 9 };
    assert_eq!(world.call(&call(0, read)), Outcome::Bytes(vec![0, 7, 7, 7, 7, 7]));
    let seek = Op::Lseek { slot: 3, to: Whence::Current(0) };
    assert_eq!(world.call(&call(0, seek)), Outcome::Number(6));
    assert_eq!(world.call(&call(0, Op::Close { slot: 3 })), Outcome::Done);
    assert_eq!(world.call(&call(0, Op::Close { slot: 3 })), Outcome::Error(Errno::BADF));
    let mkdir = Op::Mkdir { path: "d".into(), mode: Mode::RWXU };
    assert_eq!(world.call(&call(0, mkdir)), Outcome::Done);
    assert_eq!(world.call(&call(1, Op::Chdir { path: "d".into() })), Outcome::Done);
    assert_eq!(world.call(&call(0, Op::Getcwd {})), Outcome::Text("/".into()));
    assert_eq!(world.call(&call(1, Op::Getcwd {})), Outcome::Text("/d".into()));
    assert_eq!(world.call(&call(0, Op::Mount { path: "d".into() })), Outcome::Done);
    let pipe = Op::Pipe { reader: 0, writer: 1 };
    assert_eq!(world.call(&call(1, pipe)), Outcome::Done);
    assert_eq!(world.call(&call(1, Op::Write { slot: 1, len: 2, byte: 1 })), Outcome::Number(2));
    assert_eq!(world.call(&call(1, Op::Read { slot: 0, len: 4 })), Outcome::Bytes(vec![1, 1]));
    let dir = Op::Open { path: "/".into(), flags: OFlags::DIRECTORY, mode: Mode::empty(), slot: 2 };
    assert_eq!(world.call(&call(0, dir)), Outcome::Done);
    let Outcome::Entries(entries) = world.call(&call(0, Op::Readdir { slot: 2 })) else { panic!() };
    assert_eq!(entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!(world.call(&call(0, Op::Pass { slot: 3 })), Outcome::Error(Errno::BADF));
    assert_eq!(world.call(&call(0, Op::Pass { slot: 2 })), Outcome::Done);
    assert_eq!(world.call(&call(1, Op::DPath { slot: 2 })), Outcome::Text("/".into()));
    assert_eq!(world.call(&call(1, Op::DPath { slot: 0 })), Outcome::Text("pipe:[]".into()));
}
