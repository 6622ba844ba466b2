//! The jobs of AIM7 that call a file system, and how often each mix does them.
//!
//! The hits are those of AIM7's work files, as re-aim 7 has them (`data/workfile.alltests` and so
//! on), for the jobs that use files, pipes or sockets. Jobs that compute, allocate memory or start
//! processes are left out. Some jobs count as others: `disk_brr` and the like, which use larger
//! blocks, as those with small ones; `sync_disk_update` as `sync_disk_rw`; `fifo_test` as
//! `pipe_cpy`; and tests of datagrams and of TCP as `stream_pipe`, a pair of local sockets.

/// A kind of job, by AIM7's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    CreatClo,
    LinkTest,
    DirRtns,
    MiscRtns,
    DiskRr,
    DiskRw,
    DiskRd,
    DiskWrt,
    DiskCp,
    DiskSrc,
    SyncDiskRw,
    SyncDiskWrt,
    SyncDiskCp,
    ExecTest,
    ShellRtns1,
    ShellRtns2,
    ShellRtns3,
    PipeCpy,
    StreamPipe,
}

/// A mix of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// One job of each kind that uses named files: the reduced short mix.
    Short,
    Alltests,
    FiveSec,
    Fserver,
    HighSystime,
    NewFserver,
    Shared,
}

/// The greatest common divisor of all hits.
const HITS: usize = 5;

/// Returns jobs with their hits.
macro_rules! hits {
    ($($job:ident $hits:tt,)+) => { &[$((Job::$job, $hits)),+] };
}

const SHORT: &[(Job, usize)] = hits! {
    CreatClo HITS, LinkTest HITS, DirRtns HITS, MiscRtns HITS, DiskRr HITS, DiskRw HITS,
    DiskRd HITS, DiskWrt HITS, DiskCp HITS, DiskSrc HITS, SyncDiskRw HITS, SyncDiskWrt HITS,
    SyncDiskCp HITS, ExecTest HITS, ShellRtns1 HITS, ShellRtns2 HITS, ShellRtns3 HITS,
};

const ALLTESTS: &[(Job, usize)] = hits! {
    CreatClo 10, DirRtns 10, ExecTest 20, LinkTest 10, MiscRtns 10, PipeCpy 20, ShellRtns1 20,
    ShellRtns2 10, ShellRtns3 10, StreamPipe 40, DiskRr 40, DiskRw 40, DiskRd 40, DiskWrt 40,
    DiskCp 40, SyncDiskRw 40, SyncDiskWrt 20, SyncDiskCp 20, DiskSrc 20,
};

const FIVE_SEC: &[(Job, usize)] = hits! {
    DirRtns 20, DiskCp 20, DiskRd 20, DiskRr 20, DiskRw 20, DiskSrc 20, DiskWrt 20, LinkTest 20,
};

const FSERVER: &[(Job, usize)] = hits! {
    CreatClo 20, DirRtns 20, DiskCp 30, DiskRd 30, DiskRr 30, DiskRw 30, DiskSrc 30, DiskWrt 30,
    LinkTest 20, MiscRtns 20, SyncDiskCp 5, SyncDiskRw 5, SyncDiskWrt 5, StreamPipe 50,
};

const HIGH_SYSTIME: &[(Job, usize)] = hits! {
    CreatClo 20, DirRtns 10, ExecTest 20, LinkTest 20, MiscRtns 10, PipeCpy 30, ShellRtns1 20,
    ShellRtns2 10, ShellRtns3 10, StreamPipe 40,
};

const NEW_FSERVER: &[(Job, usize)] = hits! {
    CreatClo 20, DirRtns 20, DiskCp 30, DiskRd 30, DiskRr 30, DiskRw 30, DiskSrc 30, DiskWrt 30,
    LinkTest 20, MiscRtns 20, StreamPipe 50,
};

const SHARED: &[(Job, usize)] = hits! {
    CreatClo 10, DirRtns 10, DiskCp 20, DiskRd 20, DiskRr 20, DiskRw 20, DiskSrc 20, DiskWrt 20,
    ExecTest 20, LinkTest 10, MiscRtns 10, PipeCpy 10, ShellRtns1 20, StreamPipe 40,
    SyncDiskCp 10, SyncDiskRw 10, SyncDiskWrt 10,
};

impl Mix {
    /// Returns the kinds of jobs with their hits.
    pub(super) fn hits(self) -> &'static [(Job, usize)] {
        match self {
            Mix::Short => SHORT,
            Mix::Alltests => ALLTESTS,
            Mix::FiveSec => FIVE_SEC,
            Mix::Fserver => FSERVER,
            Mix::HighSystime => HIGH_SYSTIME,
            Mix::NewFserver => NEW_FSERVER,
            Mix::Shared => SHARED,
        }
    }

    /// Returns the jobs of a user, each as often as its share of the hits.
    pub(super) fn jobs(self) -> Vec<Job> {
        let all = self.hits().iter();
        all.flat_map(|(job, hits)| std::iter::repeat_n(*job, hits / HITS)).collect()
    }
}
