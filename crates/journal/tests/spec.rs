//! The argument of delayed changes as an executable specification: every interleaving of three
//! transactions and the pushes beside them, and a power cut after each step.
//!
//! A transaction makes an inode and its name. It logs the inode, and either logs the name too, or
//! notes it in the directory's changes, lists the directory, and leaves it to the push, or to a
//! transaction that has the directory for itself. A push closes the list, takes directories off it,
//! logs their changes, and ends the context if nothing is counted as delayed. All that is durable
//! then must have an inode for each name and a name for each inode, and a push that has ended must
//! have all transactions that had returned before.
//!
//! Each planted fault breaks one rule of `lists/delayed_list.rs` or of those who use it, and is
//! found.

use std::collections::BTreeSet;

use stateright::{Checker, Model, Property};

const TRANSACTIONS: usize = 3;
const PUSHES: u8 = 2;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A transaction commits before its directory is listed.
    CommitFirst,
    /// A transaction notes its change after it has listed the directory.
    ListFirst,
    /// A push looks for changes before it clears the mark of the list.
    LookFirst,
    /// A push logs changes beside a transaction that has not committed.
    NoLock,
    /// The context ends although a directory counts.
    NoCheck,
}

/// The next step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Begin,
    Note,
    /// Reads the mark of the list.
    See,
    List,
    Commit,
    Over,
}

/// The next step of the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Push {
    Idle,
    Take,
    /// Clears the mark of the list; or looks for changes.
    Clear,
    Look,
    Log,
    Written,
    Switch,
    Write,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Changes {
    inodes: BTreeSet<usize>,
    names: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    transactions: [Next; TRANSACTIONS],
    push: Push,
    pushes: u8,
    has_folded: bool,
    /// The list: whether changes may be delayed, how often it has the directory, what counts.
    is_open: bool,
    listed: u8,
    count: u8,
    /// The directory: its mark and its changes.
    is_listed: bool,
    noted: BTreeSet<usize>,
    /// Whether the push has seen changes, if it looks first.
    has_seen: bool,
    cil: Changes,
    context: Changes,
    durable: Changes,
    returned: BTreeSet<usize>,
    /// The transactions that the push under way has to make durable.
    goal: BTreeSet<usize>,
    is_promise_kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    Transaction(usize),
    Push,
    /// A transaction that has locked the directory alone logs its changes.
    Fold,
}

impl State {
    /// Whether a transaction has locked the directory shared.
    fn is_shared(&self) -> bool {
        self.transactions.iter().any(|next| !matches!(next, Next::Begin | Next::Over))
    }
}

struct Journal(Fault);

impl Journal {
    /// Does the next step of a transaction, which holds the directory shared from its first to its
    /// last one.
    fn transact(&self, state: &mut State, id: usize) {
        let fault = self.0;
        state.transactions[id] = match state.transactions[id] {
            Next::Begin if !state.is_open => {
                state.cil.inodes.insert(id);
                state.cil.names.insert(id);
                Next::Over
            }
            Next::Begin if fault == Fault::ListFirst => Next::See,
            Next::Begin => Next::Note,
            Next::Note => {
                state.noted.insert(id);
                match fault {
                    Fault::CommitFirst | Fault::ListFirst => Next::Commit,
                    _ => Next::See,
                }
            }
            Next::See | Next::List => self.list(state, state.transactions[id] == Next::List),
            Next::Commit => {
                state.cil.inodes.insert(id);
                if fault == Fault::CommitFirst { Next::See } else { Next::Over }
            }
            Next::Over => unreachable!("it is over"),
        };
        if state.transactions[id] == Next::Over {
            state.returned.insert(id);
        }
    }

    /// Lists the directory, unless its mark says that it is listed.
    fn list(&self, state: &mut State, is_locked: bool) -> Next {
        let then = match self.0 {
            Fault::CommitFirst => Next::Over,
            Fault::ListFirst => Next::Note,
            _ => Next::Commit,
        };
        match (state.is_listed, is_locked) {
            (true, _) => then,
            (false, false) => Next::List,
            (false, true) => {
                state.count += 1;
                state.listed += 1;
                state.is_listed = true;
                then
            }
        }
    }

    /// Does the next step of the push. `None` if it waits.
    fn push(&self, state: &mut State) -> Option<()> {
        let fault = self.0;
        state.push = match state.push {
            Push::Idle => {
                state.is_open = false;
                state.goal = state.returned.clone();
                Push::Take
            }
            Push::Take if state.listed == 0 => Push::Switch,
            Push::Take => {
                state.listed -= 1;
                if fault == Fault::LookFirst { Push::Look } else { Push::Clear }
            }
            Push::Clear => {
                state.is_listed = false;
                match fault {
                    Fault::LookFirst if state.has_seen => Push::Log,
                    Fault::LookFirst => Push::Written,
                    _ => Push::Look,
                }
            }
            Push::Look => {
                state.has_seen = !state.noted.is_empty();
                match (fault, state.has_seen) {
                    (Fault::LookFirst, _) => Push::Clear,
                    (_, true) => Push::Log,
                    (_, false) => Push::Written,
                }
            }
            Push::Log => {
                if fault != Fault::NoLock && state.is_shared() {
                    return None;
                }
                state.cil.names.append(&mut state.noted);
                Push::Written
            }
            Push::Written => {
                state.count -= 1;
                Push::Take
            }
            // With commits locked out.
            Push::Switch if state.count != 0 && fault != Fault::NoCheck => Push::Take,
            Push::Switch => {
                state.context = std::mem::take(&mut state.cil);
                state.is_open = true;
                Push::Write
            }
            Push::Write => {
                let Changes { mut inodes, mut names } = std::mem::take(&mut state.context);
                state.durable.inodes.append(&mut inodes);
                state.durable.names.append(&mut names);
                state.is_promise_kept &= state.goal.is_subset(&state.durable.inodes);
                state.pushes += 1;
                Push::Idle
            }
        };
        Some(())
    }
}

impl Model for Journal {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            transactions: [Next::Begin; TRANSACTIONS],
            push: Push::Idle,
            pushes: 0,
            has_folded: false,
            is_open: true,
            listed: 0,
            count: 0,
            is_listed: false,
            noted: BTreeSet::new(),
            has_seen: false,
            cil: Changes::default(),
            context: Changes::default(),
            durable: Changes::default(),
            returned: BTreeSet::new(),
            goal: BTreeSet::new(),
            is_promise_kept: true,
        }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        let all = state.transactions.iter().enumerate();
        acts.extend(all.filter(|(_, it)| **it != Next::Over).map(|(id, _)| Act::Transaction(id)));
        if state.pushes < PUSHES {
            acts.push(Act::Push);
        }
        if !state.has_folded && !state.noted.is_empty() && !state.is_shared() {
            acts.push(Act::Fold);
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Transaction(id) => self.transact(&mut state, id),
            Act::Push => self.push(&mut state)?,
            Act::Fold => {
                state.has_folded = true;
                state.cil.names.append(&mut state.noted);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a checkpoint has names and inodes", |_, state: &State| {
                state.durable.names == state.durable.inodes
            }),
            Property::always("a push has what had returned", |_, it: &State| it.is_promise_kept),
            Property::sometimes("a push logs a delayed change", |_, state: &State| {
                state.push == Push::Log && state.noted.len() > 1
            }),
        ]
    }
}

#[test]
fn a_checkpoint_has_the_delayed_changes_of_its_transactions() {
    let checked = Journal(Fault::None).checker().spawn_bfs().join();
    println!("{} states", checked.unique_state_count());
    checked.assert_properties();
}

#[test]
fn each_broken_rule_of_delayed_changes_is_found() {
    let faults =
        [Fault::CommitFirst, Fault::ListFirst, Fault::LookFirst, Fault::NoLock, Fault::NoCheck];
    for fault in faults {
        let checked = Journal(fault).checker().spawn_bfs().join();
        let found = ["a checkpoint has names and inodes", "a push has what had returned"];
        let found = found.into_iter().find_map(|name| checked.discovery(name));
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
        println!("{fault:?}: {:?}", found.into_actions());
    }
}
