//! AIM7's mixes, reduced to their calls to a file system, as measured by Long (lockref, 2013) and
//! Piggin (vfs-scale, 2009).
//!
//! A mix has kinds of jobs, which each user does in an order of its own, and the result is jobs per
//! minute for a number of users. Long describes only the kind with the most contention,
//! `misc_rtns_1`: it looks up users and groups, so all users open, read and close the same two
//! files. The others are reconstructed from the names of AIM7's jobs, without their computing.
//! [`mixes`] has the hits of each kind. Users are distributed over the workers; a worker does a job
//! of one user after the other.

mod mixes;

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::expect::{
    expect_content, expect_equal, expect_gone, expect_names, write_at, write_file,
};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, name};
use mixes::Job;
pub(crate) use mixes::Mix;

/// Files that all users read: `/etc/passwd` and `/etc/group` of the user database.
const ACCOUNTS: [&str; 2] = ["etc/passwd", "etc/group"];
const ACCOUNTS_BYTES: usize = 2_000;
/// Directories that are searched for programs, which are in the last one.
const SEARCH_PATH: [&str; 4] = ["bin0", "bin1", "bin2", "bin3"];
const PROGRAM_BYTES: usize = 16 << 10;
/// Size of each user's file.
const DATA_BYTES: usize = 16 << 10;
const UNIT: usize = 1 << 10;
/// Names in each user's directory: `data`, `copy` and `list`.
const NAMES_PER_USER: usize = 3;
const LISTED: usize = 20;

const CREATE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::RDWR);

pub(super) struct Aim(pub(super) Mix);

impl Workload for Aim {
    type Work<C: Calls> = AimWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        calls.mkdir(c"etc")?;
        for file in ACCOUNTS {
            write_file(calls, &name(file), &[b'x'; ACCOUNTS_BYTES])?;
        }
        for dir in SEARCH_PATH {
            calls.mkdir(&name(dir))?;
        }
        write_file(calls, c"bin3/prog", &[0x7f; PROGRAM_BYTES])?;
        for user in 0..scene.users.max(scene.workers) {
            calls.mkdir(&name(format!("u{user}")))?;
            calls.mkdir(&name(format!("u{user}/list")))?;
            for n in 0..LISTED {
                write_file(calls, &name(format!("u{user}/list/l{n}")), b"")?;
            }
            write_file(calls, &name(format!("u{user}/data")), &[b'd'; DATA_BYTES])?;
            write_file(calls, &name(format!("u{user}/copy")), &[b'd'; DATA_BYTES])?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<AimWork<C>> {
        let mut rng = Rng::new(scene.random_seed ^ worker as u64);
        // Each worker has a user, even if there are fewer users than workers.
        let users = (worker..scene.users.max(scene.workers)).step_by(scene.workers.max(1));
        let users = users.map(|user| User::new(user, self.0, &mut rng)).collect();
        Ok(AimWork {
            calls,
            users,
            next: 0,
            rng,
            buf: vec![0; DATA_BYTES],
            accounts: ACCOUNTS.map(name),
            programs: SEARCH_PATH.map(|dir| name(format!("{dir}/prog"))),
        })
    }

    /// Checks that no file is missing, and none is left over.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let users = scene.users.max(scene.workers);
        for user in 0..users {
            expect_names(calls, &name(format!("u{user}")), NAMES_PER_USER)?;
            expect_names(calls, &name(format!("u{user}/list")), LISTED)?;
            for file in ["data", "copy"] {
                expect_content(calls, &name(format!("u{user}/{file}")), &[b'd'; DATA_BYTES])?;
            }
        }
        expect_names(calls, c".", users + SEARCH_PATH.len() + 1)
    }
}

/// A user: its files, and the order of its jobs.
struct User {
    jobs: Vec<Job>,
    at: usize,
    dir: CString,
    data: CString,
    copy: CString,
    list: CString,
    listed: Vec<CString>,
    /// Three names that are unused between jobs.
    free: [CString; 3],
    inner: CString,
}

impl User {
    fn new(user: usize, mix: Mix, rng: &mut Rng) -> User {
        let mut jobs = mix.jobs();
        for i in (1..jobs.len()).rev() {
            jobs.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let own = |entry: &str| name(format!("u{user}/{entry}"));
        User {
            jobs,
            at: 0,
            dir: name(format!("u{user}")),
            data: own("data"),
            copy: own("copy"),
            list: own("list"),
            listed: (0..LISTED).map(|n| own(&format!("list/l{n}"))).collect(),
            free: ["x", "y", "z"].map(own),
            inner: own("z/in"),
        }
    }
}

pub(super) struct AimWork<C> {
    calls: C,
    users: Vec<User>,
    next: usize,
    rng: Rng,
    buf: Vec<u8>,
    accounts: [CString; 2],
    programs: [CString; 4],
}

impl<C: Calls> AimWork<C> {
    /// Reads a whole file, and returns its size.
    fn read(&mut self, path: &CString) -> Outcome<usize> {
        let file = self.calls.open(path, OFlags::RDONLY)?;
        let mut size = 0;
        loop {
            match self.calls.pread(&file, &mut self.buf[..UNIT], size as u64)? {
                0 => return Ok(size),
                n => size += n,
            }
        }
    }

    fn expect_size(&mut self, path: &CString, size: usize) -> Outcome<()> {
        let seen = self.read(path)?;
        expect_equal("the size of what was read", seen as u64, size as u64)
    }

    /// Overwrites a whole file, in units.
    fn write(&self, path: &CString, flags: OFlags, sync: bool) -> Outcome<()> {
        let file = self.calls.open(path, flags)?;
        for at in (0..DATA_BYTES).step_by(UNIT) {
            write_at(&self.calls, &file, &[b'd'; UNIT], at as u64)?;
        }
        if sync {
            self.calls.sync(&file)?;
        }
        Ok(())
    }

    /// Reads or writes units in random order.
    fn anywhere(&mut self, path: &CString, write: bool, sync: bool) -> Outcome<()> {
        let file = self.calls.open(path, OFlags::RDWR)?;
        for _ in 0..DATA_BYTES / UNIT {
            let at = self.rng.below((DATA_BYTES / UNIT) as u64) * UNIT as u64;
            if write {
                write_at(&self.calls, &file, &[b'd'; UNIT], at)?;
            } else if self.calls.pread(&file, &mut self.buf[..UNIT], at)? != UNIT {
                return Err(Fault::wrong("a file is too short"));
            }
        }
        if sync {
            self.calls.sync(&file)?;
        }
        Ok(())
    }

    /// Reads one file and writes another.
    fn copy(&mut self, user: &User, sync: bool) -> Outcome<()> {
        self.expect_size(&user.data, DATA_BYTES)?;
        self.write(&user.copy, OFlags::WRONLY | OFlags::TRUNC, sync)
    }

    fn disk(&mut self, job: Job, user: &User) -> Outcome<()> {
        match job {
            Job::DiskRr => self.anywhere(&user.data, false, false),
            Job::DiskRw => self.anywhere(&user.data, true, false),
            Job::SyncDiskRw => self.anywhere(&user.data, true, true),
            Job::DiskRd => self.expect_size(&user.data, DATA_BYTES),
            Job::DiskWrt => self.write(&user.data, OFlags::WRONLY, false),
            Job::SyncDiskWrt => self.write(&user.data, OFlags::WRONLY, true),
            Job::DiskCp => self.copy(user, false),
            Job::SyncDiskCp => self.copy(user, true),
            // Searches for files by name.
            _ => {
                for file in &user.listed {
                    self.calls.stat(file)?;
                }
                Ok(())
            }
        }
    }

    /// Lists a directory several times.
    fn list(&self, user: &User) -> Outcome<()> {
        let mut seen = 0;
        for _ in 0..5 {
            self.calls.list(&user.list, |_, _| seen += 1)?;
        }
        expect_equal("the number of names listed", seen, 5 * LISTED as u64)
    }

    /// Passes bytes through a pipe or a pair of sockets, to the first end from the second.
    fn pass(&mut self, (to, from): (C::File, C::File)) -> Outcome<()> {
        for n in 0..DATA_BYTES / UNIT {
            let unit = [n as u8; UNIT];
            expect_equal("the bytes sent", self.calls.write(&from, &unit)? as u64, UNIT as u64)?;
            let seen = self.calls.read(&to, &mut self.buf[..UNIT])?;
            expect_equal("the bytes received", seen as u64, UNIT as u64)?;
            if self.buf[..UNIT] != unit {
                return Err(Fault::wrong("other bytes were received than sent"));
            }
        }
        Ok(())
    }

    /// Searches the directories of programs for one, and reads it.
    fn exec(&mut self) -> Outcome<()> {
        for n in 0..self.programs.len() {
            if self.calls.stat(&self.programs[n]).is_ok() {
                let program = self.programs[n].clone();
                return self.expect_size(&program, PROGRAM_BYTES);
            }
        }
        Err(Fault::wrong("the program was not found"))
    }

    fn names(&mut self, job: Job, user: &User) -> Outcome<()> {
        let [x, y, z] = &user.free;
        let calls = &self.calls;
        match job {
            Job::CreatClo => {
                for _ in 0..10 {
                    drop(calls.open(x, CREATE)?);
                    calls.unlink(x)?;
                }
            }
            Job::LinkTest => {
                for _ in 0..10 {
                    calls.link(&user.data, x)?;
                    calls.unlink(x)?;
                }
            }
            Job::ShellRtns2 => {
                write_file(calls, x, b"#!/bin/sh\n")?;
                calls.rename(x, y)?;
                calls.unlink(y)?;
            }
            _ => {
                calls.mkdir(z)?;
                write_file(calls, &user.inner, b"#!/bin/sh\n")?;
                calls.unlink(&user.inner)?;
                calls.rmdir(z)?;
            }
        }
        Ok(())
    }

    fn job(&mut self, job: Job, user: &User) -> Outcome<()> {
        match job {
            Job::CreatClo | Job::LinkTest | Job::ShellRtns3 => self.names(job, user),
            Job::DirRtns => self.list(user),
            Job::PipeCpy => self.pass(self.calls.pipe()?),
            Job::StreamPipe => {
                let (one, other) = self.calls.socket_pair()?;
                self.pass((other, one))
            }
            // getpwnam, getpwuid and getgrgid, a few times.
            Job::MiscRtns => {
                for _ in 0..3 {
                    for n in [0, 0, 1] {
                        let file = self.accounts[n].clone();
                        self.expect_size(&file, ACCOUNTS_BYTES)?;
                    }
                }
                Ok(())
            }
            Job::ExecTest => self.exec(),
            Job::ShellRtns1 => {
                self.exec()?;
                self.list(user)
            }
            Job::ShellRtns2 => {
                self.exec()?;
                self.names(job, user)
            }
            _ => self.disk(job, user),
        }
    }
}

impl<C: Calls> Work for AimWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        // Moved out, since a job borrows all other fields.
        let mut users = std::mem::take(&mut self.users);
        let user = &mut users[self.next];
        let job = user.jobs[user.at];
        user.at = (user.at + 1) % user.jobs.len();
        let outcome = self.job(job, user);
        self.next = (self.next + 1) % users.len();
        self.users = users;
        outcome.map(|()| 1)
    }

    /// Does all jobs of a user once more, then checks each user's files and unused names.
    fn end(&mut self) -> Outcome<()> {
        for _ in 0..self.users[0].jobs.len() {
            self.next = 0;
            self.op()?;
        }
        for user in &self.users {
            for file in &user.free {
                expect_gone(&self.calls, file)?;
            }
            expect_names(&self.calls, &user.dir, NAMES_PER_USER)?;
            expect_content(&self.calls, &user.data, &[b'd'; DATA_BYTES])?;
            expect_equal("the links of a file", self.calls.stat(&user.data)?.nlink, 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
