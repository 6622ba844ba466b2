//! An instance of a case: a file system with the case's files, and the workers in it.

use vfscale_vfs::lockstat;

use super::plan::Plan;
use super::team::{Failure, Team};
use crate::base::error::{Fault, Outcome};
use crate::base::interrupt::Interrupt;
use crate::base::machine::usable_cpus;
use crate::measure::seat::Seat;
use crate::targets::Target;
use crate::targets::memory::Memory;
use crate::targets::path::Directory;
use crate::targets::volume::{JournalLook, Volume};
use crate::workloads::{self, Description, Kind, Scene};

/// The file system of a case.
pub(super) enum CaseTarget {
    /// A file system in memory, of the case alone.
    Memory(Memory),
    /// A directory of a volume.
    Volume(Volume),
    /// A directory of a mounted file system.
    Directory(Directory),
}

/// Evaluates an expression with the target, whatever its type.
macro_rules! with_target {
    ($case:expr, $target:ident => $body:expr) => {
        match $case {
            CaseTarget::Memory($target) => $body,
            CaseTarget::Volume($target) => $body,
            CaseTarget::Directory($target) => $body,
        }
    };
}

impl CaseTarget {
    /// Creates the files of a case.
    pub(super) fn prepare(&self, kind: Kind, scene: &Scene) -> Result<(), Failure> {
        with_target!(self, target => aside(|| workloads::prepare(kind, target, scene)))
    }

    /// Checks the files of a case. Its workers have ended.
    pub(super) fn inspect(&self, kind: Kind, scene: &Scene) -> Result<(), Failure> {
        with_target!(self, target => aside(|| workloads::inspect(kind, target, scene)))
    }

    /// Removes the files of a case, unless its file system is dropped with them.
    pub(super) fn remove(&self) {
        match self {
            CaseTarget::Directory(directory) => directory.remove(),
            CaseTarget::Volume(volume) => volume.remove(),
            CaseTarget::Memory(_) => {}
        }
    }

    /// Starts the workers of a case.
    pub(super) fn team(
        &self,
        workload: &'static Description,
        scene: &Scene,
        plan: &Plan,
        stop: &Interrupt,
    ) -> Result<Team, Failure> {
        let seats = self.seats(scene, plan);
        if let (CaseTarget::Directory(directory), true) = (self, plan.processes) {
            let words = &plan.worker_command;
            let command = || {
                let mut command = std::process::Command::new(&words[0]);
                command.args(&words[1..]);
                command
            };
            return Team::of_processes(
                &seats,
                stop,
                &command,
                workload.name,
                directory.dir(),
                scene,
            );
        }
        with_target!(self, target => threads(target, workload.kind, scene, &seats, stop))
    }

    fn seats(&self, scene: &Scene, plan: &Plan) -> Vec<Seat> {
        let usable = usable_cpus();
        let in_library = !matches!(self, CaseTarget::Directory(_));
        let cpu = |worker: usize| usable.get(worker % usable.len().max(1)).copied();
        let seat = |worker: usize| Seat {
            cpu: plan.pinned.then(|| cpu(worker)).flatten(),
            pretended: plan.cpus.filter(|_| in_library).map(|cpus| (worker % cpus.max(1)) as u32),
        };
        (0..scene.workers).map(seat).collect()
    }

    /// Returns what the journal has done so far; `None` without a journal.
    pub(super) fn journal(&self) -> Option<JournalLook> {
        match self {
            CaseTarget::Volume(volume) => volume.journal(),
            CaseTarget::Memory(_) | CaseTarget::Directory(_) => None,
        }
    }

    /// Returns the owner of the threads of its volume, if it has one.
    pub(super) fn thread_owner(&self) -> lockstat::ThreadOwner {
        match self {
            CaseTarget::Volume(volume) => volume.thread_owner(),
            CaseTarget::Memory(_) | CaseTarget::Directory(_) => lockstat::ThreadOwner::NONE,
        }
    }
}

/// Runs a function on a thread of its own, since a thread that enters a target changes its working
/// directory.
fn aside(body: impl FnOnce() -> Outcome<()> + Send) -> Result<(), Failure> {
    let died = |_| Fault::wrong("a thread has died");
    std::thread::scope(|scope| scope.spawn(body).join().map_err(died)?).map_err(Failure::from)
}

fn threads<T: Target>(
    target: &T,
    kind: Kind,
    scene: &Scene,
    seats: &[Seat],
    stop: &Interrupt,
) -> Result<Team, Failure> {
    let (scene, target) = (scene.clone(), target.clone());
    Team::of_threads(seats, stop, move |worker| workloads::actor(kind, &target, &scene, worker))
}
