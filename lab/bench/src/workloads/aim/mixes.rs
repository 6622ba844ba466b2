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

const SHORT: &[(Job, usize)] = &[
    (Job::CreatClo, HITS),
    (Job::LinkTest, HITS),
    (Job::DirRtns, HITS),
    (Job::MiscRtns, HITS),
    (Job::DiskRr, HITS),
    (Job::DiskRw, HITS),
    (Job::DiskRd, HITS),
    (Job::DiskWrt, HITS),
    (Job::DiskCp, HITS),
    (Job::DiskSrc, HITS),
    (Job::SyncDiskRw, HITS),
    (Job::SyncDiskWrt, HITS),
    (Job::SyncDiskCp, HITS),
    (Job::ExecTest, HITS),
    (Job::ShellRtns1, HITS),
    (Job::ShellRtns2, HITS),
    (Job::ShellRtns3, HITS),
];

const ALLTESTS: &[(Job, usize)] = &[
    (Job::CreatClo, 10),
    (Job::DirRtns, 10),
    (Job::ExecTest, 20),
    (Job::LinkTest, 10),
    (Job::MiscRtns, 10),
    (Job::PipeCpy, 20),
    (Job::ShellRtns1, 20),
    (Job::ShellRtns2, 10),
    (Job::ShellRtns3, 10),
    (Job::StreamPipe, 40),
    (Job::DiskRr, 40),
    (Job::DiskRw, 40),
    (Job::DiskRd, 40),
    (Job::DiskWrt, 40),
    (Job::DiskCp, 40),
    (Job::SyncDiskRw, 40),
    (Job::SyncDiskWrt, 20),
    (Job::SyncDiskCp, 20),
    (Job::DiskSrc, 20),
];

const FIVE_SEC: &[(Job, usize)] = &[
    (Job::DirRtns, 20),
    (Job::DiskCp, 20),
    (Job::DiskRd, 20),
    (Job::DiskRr, 20),
    (Job::DiskRw, 20),
    (Job::DiskSrc, 20),
    (Job::DiskWrt, 20),
    (Job::LinkTest, 20),
];

const FSERVER: &[(Job, usize)] = &[
    (Job::CreatClo, 20),
    (Job::DirRtns, 20),
    (Job::DiskCp, 30),
    (Job::DiskRd, 30),
    (Job::DiskRr, 30),
    (Job::DiskRw, 30),
    (Job::DiskSrc, 30),
    (Job::DiskWrt, 30),
    (Job::LinkTest, 20),
    (Job::MiscRtns, 20),
    (Job::SyncDiskCp, 5),
    (Job::SyncDiskRw, 5),
    (Job::SyncDiskWrt, 5),
    (Job::StreamPipe, 50),
];

const HIGH_SYSTIME: &[(Job, usize)] = &[
    (Job::CreatClo, 20),
    (Job::DirRtns, 10),
    (Job::ExecTest, 20),
    (Job::LinkTest, 20),
    (Job::MiscRtns, 10),
    (Job::PipeCpy, 30),
    (Job::ShellRtns1, 20),
    (Job::ShellRtns2, 10),
    (Job::ShellRtns3, 10),
    (Job::StreamPipe, 40),
];

const NEW_FSERVER: &[(Job, usize)] = &[
    (Job::CreatClo, 20),
    (Job::DirRtns, 20),
    (Job::DiskCp, 30),
    (Job::DiskRd, 30),
    (Job::DiskRr, 30),
    (Job::DiskRw, 30),
    (Job::DiskSrc, 30),
    (Job::DiskWrt, 30),
    (Job::LinkTest, 20),
    (Job::MiscRtns, 20),
    (Job::StreamPipe, 50),
];

const SHARED: &[(Job, usize)] = &[
    (Job::CreatClo, 10),
    (Job::DirRtns, 10),
    (Job::DiskCp, 20),
    (Job::DiskRd, 20),
    (Job::DiskRr, 20),
    (Job::DiskRw, 20),
    (Job::DiskSrc, 20),
    (Job::DiskWrt, 20),
    (Job::ExecTest, 20),
    (Job::LinkTest, 10),
    (Job::MiscRtns, 10),
    (Job::PipeCpy, 10),
    (Job::ShellRtns1, 20),
    (Job::StreamPipe, 40),
    (Job::SyncDiskCp, 10),
    (Job::SyncDiskRw, 10),
    (Job::SyncDiskWrt, 10),
];

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
