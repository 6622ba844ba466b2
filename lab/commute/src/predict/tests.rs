use super::*;

const MACHINE: fn() -> Machine = Machine::eight_sockets;

/// Returns an access after a number of instructions.
fn touch(line: u64, write: bool, role: Role, instructions: u64) -> Touch {
    Touch { line, write, role, instructions }
}

fn plain(line: u64, write: bool, instructions: u64) -> Touch {
    touch(line, write, Role::Plain, instructions)
}

/// Returns an operation of 1,000 instructions on lines of its own, and of the given accesses.
fn with(shared: &[Touch]) -> Program {
    let own = |line| [plain(line, true, 500), plain(line, false, 500)];
    let [first, second] = [100, 200].map(|line| [&own(line), shared].concat());
    Program::new(&first, &second)
}

fn at(program: &Program, cores: usize) -> f64 {
    throughput(&MACHINE(), program, cores)
}

#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.05, "{value} is not about {expected}");
}

#[test]
fn threads_without_shared_lines_scale() {
    let program = with(&[]);
    assert_eq!(program.shared_lines(), 0);
    for cores in CORES {
        assert_near(at(&program, cores), cores as f64 * MACHINE().hertz / 1000.0);
    }
}

#[test]
fn threads_that_only_read_a_line_scale() {
    let program = with(&[plain(1, false, 1)]);
    assert_eq!(program.shared_lines(), 0);
    assert_near(at(&program, 512), 512.0 * at(&program, 1));
}

#[test]
fn one_counter_can_be_written_as_often_as_its_line_can_travel() {
    let program = with(&[plain(1, true, 1)]);
    assert_eq!(program.shared_lines(), 1);
    let machine = MACHINE();
    // Within a socket, ten cores do not yet wait for each other: each one's work grows by one
    // transfer.
    assert_near(at(&program, 4), 4.0 * machine.hertz / (1001.0 + machine.transfer[0] as f64));
    let most = machine.hertz / machine.transfer[0] as f64;
    for cores in CORES {
        assert!(at(&program, cores) <= most, "{cores}");
    }
    // Beyond a socket, the line is fetched from a more distant core.
    assert!(at(&program, 512) < at(&program, 8));
}

#[test]
fn a_lock_lets_one_at_a_time_do_what_it_guards() {
    let held = [touch(1, true, Role::Acquire, 1), touch(1, true, Role::Release, 400)];
    let program = with(&held);
    let machine = MACHINE();
    // The cores proceed one at a time: each takes the work under the lock and one transfer of its
    // line.
    let most = machine.hertz / (400.0 + machine.transfer[0] as f64);
    assert_near(at(&program, 10), most);
    assert!(at(&program, 80) < most);
    // Without the lock in between, the accesses are two writes.
    let free = with(&[plain(1, true, 1), plain(1, true, 400)]);
    assert!(at(&free, 10) > 1.2 * at(&program, 10));
}

#[test]
fn a_lock_that_is_not_given_back_is_a_line() {
    let one = with(&[touch(1, true, Role::Acquire, 1)]);
    let other = with(&[plain(1, true, 1)]);
    assert_eq!(one, other);
    let wrong = with(&[touch(1, true, Role::Release, 1), touch(1, true, Role::Acquire, 1)]);
    assert_eq!(wrong, with(&[plain(1, true, 1), plain(1, true, 1)]));
}

#[test]
fn a_reader_waits_for_a_line_that_others_write() {
    let first = [plain(1, false, 300), plain(2, true, 1)];
    let second = [plain(1, true, 300), plain(3, true, 1)];
    let program = Program::new(&first, &second);
    assert_eq!(program.shared_lines(), 1);
    // In the first core's program, nothing writes: after the first read, the line is cached.
    assert_near(at(&program, 8), 8.0 * MACHINE().hertz / 301.0);
}

/// Reproduces the table of Long's lockref patches (2013) for a count that is taken and dropped
/// under a lock, compared with sharded counts. Before them, 8 nodes are slower than 1 node for all
/// numbers of users; with them, 8 nodes are several times as fast.
#[test]
fn the_seeds_machine_before_lockref_is_slower_with_eight_sockets_than_with_one() {
    let count =
        |first: u64| [touch(1, true, Role::Acquire, first), touch(1, true, Role::Release, 40)];
    let before = with(&[count(1), count(200)].concat());
    let after = with(&[]);
    let sockets = [1, 2, 4, 8].map(|sockets| at(&before, 10 * sockets));
    let [one, two, four, eight] = sockets;
    // The table has 2.5, 1.9, 1.4 and 1.1 million jobs per minute.
    assert!(one > two && two > four && four > eight, "{sockets:?}");
    assert!(eight < 0.6 * one, "{sockets:?}");
    assert!(at(&after, 80) > 4.0 * eight);
    assert_near(at(&after, 80), 8.0 * at(&after, 10));
}

#[test]
fn the_same_program_gives_the_same_figure() {
    let held =
        [touch(1, true, Role::Acquire, 7), plain(2, true, 9), touch(1, true, Role::Release, 9)];
    assert_eq!(curve(&MACHINE(), &with(&held)), curve(&MACHINE(), &with(&held)));
}
