//! The states that each promise leaves of short logs: all of them, and no others.

use std::collections::BTreeSet;

use vfscale::{Pool, Task};
use vfscale_crashlab::{Event, Lab, Promise, State};
use vfscale_fuse::recording::{Change, Name, Object};

use crate::{attributes, in_fork, name, object, pool};

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;

/// A log that is written by hand, on a branch with the files `/old`, of which the text is `old`,
/// `/other`, and `/long`, which has two sectors of `a`.
struct Case {
    pool: Pool,
    root: Object,
    old: Object,
    other: Object,
    long: Object,
    events: Vec<Event>,
}

/// An object that the branch does not have.
fn new(number: u64) -> Object {
    Object { ino: 1_000_000 + number, generation: 0 }
}

impl Case {
    fn new() -> Self {
        let pool = pool(|task| {
            task.write("/old", "old").unwrap();
            task.write("/other", "other").unwrap();
            task.write("/long", [b'a'; 1024]).unwrap();
        });
        let objects = in_fork(
            &pool,
            |_| (),
            |task| ["/", "/old", "/other", "/long"].map(|path| object(task, path)),
        );
        let [root, old, other, long] = objects;
        Self { pool, root, old, other, long, events: Vec::new() }
    }

    fn then(mut self, change: Change) -> Self {
        self.events.push(Event::Change(change));
        self
    }

    fn at(&self, path: &str) -> Name {
        name(self.root, path)
    }

    fn create(self, number: u64, path: &str) -> Self {
        let at = Some(self.at(path));
        self.made(number, at, FILE)
    }

    fn made(self, number: u64, at: Option<Name>, mode: u32) -> Self {
        self.then(Change::Made {
            object: new(number),
            at,
            attributes: attributes(mode),
            rdev: 0,
            target: Default::default(),
            xattrs: Vec::new(),
        })
    }

    fn write(self, object: Object, (offset, size): (u64, u64), data: &[u8]) -> Self {
        let (data, mtime) = (data.to_vec(), attributes(0).mtime);
        self.then(Change::Written { object, path: "/file".into(), offset, data, size, mtime })
    }

    fn truncate(self, object: Object, former: u64, size: u64) -> Self {
        let mtime = attributes(0).mtime;
        self.then(Change::Resized { object, path: "/file".into(), size, former, mtime })
    }

    fn rename(self, object: Object, from: &str, to: &str, replaced: Option<Object>) -> Self {
        let (from, to) = (self.at(from), self.at(to));
        self.then(Change::Renamed { object, from, to, replaced, exchanged: false })
    }

    fn sync(self, object: Object, data_only: bool) -> Self {
        self.then(Change::Synced { object, path: "/file".into(), data_only })
    }

    fn say(mut self, text: &str) -> Self {
        self.events.push(Event::Said(text.into()));
        self
    }

    /// Returns what `look` sees of the states behind the last step, or of all.
    fn seen(&self, promise: Promise, last: bool, look: fn(&Task) -> String) -> BTreeSet<String> {
        let lab = Lab::new(self.events.iter().cloned().collect(), promise);
        let states = lab.states().into_iter().filter(|it| !last || it.cut() == self.events.len());
        let build = |state| in_fork(&self.pool, |task| lab.build(&state, task).unwrap(), look);
        states.map(build).collect()
    }

    /// Compares what is seen of all states with what each promise leaves.
    fn leaves(&self, look: fn(&Task) -> String, posix: &[&str], ext4: &[&str], vfscale: &[&str]) {
        let expected =
            [(Promise::Posix, posix), (Promise::Ext4, ext4), (Promise::Vfscale, vfscale)];
        for (promise, expected) in expected {
            let expected: BTreeSet<String> = expected.iter().map(|it| (*it).into()).collect();
            assert_eq!(self.seen(promise, false, look), expected, "{promise}");
        }
    }
}

/// Returns what a path has: `-` for nothing.
fn text(task: &Task, path: &str) -> String {
    task.read(path).map_or("-".into(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn old(task: &Task) -> String {
    text(task, "/old")
}

/// A new file that is written and renamed over an old one.
fn replaced_without_a_sync() -> Case {
    let case = Case::new();
    let replaced = Some(case.old);
    let case = case.create(1, "/tmp").write(new(1), (0, 0), b"ab");
    case.rename(new(1), "/tmp", "/old", replaced)
}

#[test]
fn a_file_renamed_over_another_without_a_sync_may_be_empty_by_posix_only() {
    let case = replaced_without_a_sync();
    // By posix a write arrives in part.
    case.leaves(old, &["old", "", "ab", "a", "\0b"], &["old", "ab"], &["old", "ab"]);
}

#[test]
fn a_file_renamed_over_another_after_a_sync_is_the_old_or_the_new_one() {
    let case = Case::new();
    let replaced = Some(case.old);
    let case = case.create(1, "/tmp").write(new(1), (0, 0), b"ab").sync(new(1), true);
    let case = case.rename(new(1), "/tmp", "/old", replaced);
    let all = &["old", "ab"];
    case.leaves(old, all, all, all);
}

#[test]
fn a_truncated_and_rewritten_file_may_be_empty() {
    let case = Case::new();
    let file = case.old;
    let case = case.truncate(file, 3, 0).write(file, (0, 0), b"ab");
    // By posix the truncation may be late.
    let posix = &["old", "", "ab", "a", "\0b", "abd", "ald", "obd"];
    let seen = case.seen(Promise::Posix, false, old);
    assert!(seen.is_superset(&["old", "", "ab", "abd"].map(String::from).into()), "{seen:?}");
    assert!(seen.iter().all(|it| posix.contains(&it.as_str())), "{seen:?}");
    assert_eq!(case.seen(Promise::Ext4, false, old), ["old", "", "ab"].map(String::from).into());
}

#[test]
fn a_truncation_keeps_the_mode_and_the_attributes() {
    let case = Case::new();
    let (object, path) = (case.old, std::path::PathBuf::from("/old"));
    let (name, value) = ("user.colour".into(), Some(b"blue".to_vec()));
    let attributes = attributes(0o100_600);
    let case = case.then(Change::Attributes { object, path: path.clone(), attributes });
    let case = case.then(Change::Xattr { object, path, name, value, attributes });
    let case = case.write(object, (3, 3), b"!").truncate(object, 4, 0);
    let look = |task: &Task| {
        let at = vfscale::posix::At::Cwd;
        let flags = vfscale::posix::AtFlags::empty();
        let value = task.posix().getxattrat(at, "/old", "user.colour", flags).unwrap();
        let mode = task.symlink_metadata("/old").unwrap().mode;
        format!("{mode:o} {} {}", String::from_utf8(value).unwrap(), text(task, "/old"))
    };
    let lab = Lab::new(case.events.iter().cloned().collect(), Promise::Posix);
    let seen = in_fork(&case.pool, |task| lab.build(&lab.whole(), task).unwrap(), look);
    assert_eq!(seen, "100600 blue ");
}

#[test]
fn a_sync_of_another_file_writes_a_truncated_one_by_vfscale_only() {
    let case = Case::new();
    let (file, other) = (case.old, case.other);
    let case = case.truncate(file, 3, 0).write(file, (0, 0), b"ab").sync(other, false).say("done");
    assert_eq!(case.seen(Promise::Ext4, true, old), ["old", "", "ab"].map(String::from).into());
    // Its truncation itself is no change of the other file.
    assert_eq!(case.seen(Promise::Vfscale, true, old), ["ab"].map(String::from).into());
}

#[test]
fn a_file_ends_where_an_append_began_unless_posix_alone_promises() {
    let case = Case::new();
    let file = case.old;
    let case = case.write(file, (3, 3), b"A").write(file, (4, 4), b"B");
    case.leaves(
        old,
        &["old", "oldA", "oldAB", "old\0B"],
        &["old", "oldA", "oldAB"],
        &["old", "oldA", "oldAB"],
    );
}

#[test]
fn sectors_of_an_overwrite_are_old_or_new() {
    let case = Case::new();
    let file = case.long;
    let case = case.write(file, (0, 1024), &[b'b'; 1024]);
    let look = |task: &Task| {
        let bytes = task.read("/long").unwrap();
        assert_eq!(bytes.len(), 1024);
        let sector = |at: usize| char::from(bytes[at]);
        assert!(bytes.chunks(512).all(|it| it.iter().all(|byte| *byte == it[0])));
        [sector(0), sector(512)].into_iter().collect()
    };
    let all = &["aa", "ab", "ba", "bb"];
    case.leaves(look, all, all, all);
}

#[test]
fn fsync_of_a_new_file_makes_its_name_durable_except_by_posix() {
    let case =
        Case::new().create(1, "/new").write(new(1), (0, 0), b"n").sync(new(1), false).say("done");
    let look = |task: &Task| text(task, "/new");
    assert_eq!(case.seen(Promise::Posix, true, look), ["-", "n"].map(String::from).into());
    assert_eq!(case.seen(Promise::Ext4, true, look), ["n"].map(String::from).into());
    assert_eq!(case.seen(Promise::Vfscale, true, look), ["n"].map(String::from).into());
}

#[test]
fn fdatasync_of_a_directory_makes_its_names_durable_and_of_a_file_its_data_and_length() {
    let case = Case::new();
    let root = case.root;
    let case = case
        .create(1, "/new")
        .sync(root, true)
        .write(new(1), (0, 0), b"n")
        .sync(new(1), true)
        .say("done");
    let look = |task: &Task| text(task, "/new");
    for promise in [Promise::Posix, Promise::Ext4, Promise::Vfscale] {
        assert_eq!(case.seen(promise, true, look), ["n"].map(String::from).into(), "{promise}");
    }
}

#[test]
fn names_come_in_their_order_except_by_posix() {
    let case = Case::new();
    let old = case.old;
    let case = case.create(1, "/one").rename(old, "/old", "/two", None);
    let look = |task: &Task| {
        let has = |path: &str| usize::from(task.exists(path).unwrap()).to_string();
        ["/one", "/two", "/old"].map(has).concat()
    };
    let ordered = &["001", "101", "110", "010"];
    case.leaves(look, ordered, &ordered[..3], &ordered[..3]);
}

#[test]
fn a_write_into_a_new_file_needs_the_names_before_it() {
    let case = Case::new();
    let old = case.old;
    // The last write can't arrive without the rename before it, as its length is an attribute.
    let case = case.rename(old, "/old", "/moved", None).write(old, (3, 3), b"!");
    let look = |task: &Task| format!("{} {}", text(task, "/old"), text(task, "/moved"));
    let posix = &["old -", "- old", "- old!", "old! -"];
    case.leaves(look, posix, &posix[..3], &posix[..3]);
}

#[test]
fn exchanged_files_have_their_data_by_vfscale_only() {
    let case = Case::new();
    let (from, to, old) = (case.at("/new"), case.at("/old"), case.old);
    let case = case.create(1, "/new").write(new(1), (0, 0), b"n");
    let case = case.then(Change::Renamed {
        object: new(1),
        from,
        to,
        replaced: Some(old),
        exchanged: true,
    });
    let look = |task: &Task| format!("{} {}", text(task, "/new"), text(task, "/old"));
    let ext4 = &["- old", " old", "n old", "old n", "old "];
    case.leaves(look, ext4, ext4, &ext4[..4]);
}

#[test]
fn what_is_in_a_lost_directory_is_lost() {
    let case = Case::new();
    let dir = case.at("/dir");
    let case = case.made(1, Some(dir), DIR).made(2, Some(name(new(1), "/dir/file")), FILE);
    let look = |task: &Task| {
        ["/dir", "/dir/file"]
            .map(|path| usize::from(task.exists(path).unwrap()).to_string())
            .concat()
    };
    let all = &["00", "10", "11"];
    case.leaves(look, all, all, all);
}

#[test]
fn a_file_without_a_name_appears_with_its_first_link() {
    let case = Case::new();
    let at = case.at("/linked");
    let case = case.made(1, None, FILE).write(new(1), (0, 0), b"t");
    let case = case.then(Change::Linked { object: new(1), at });
    let look = |task: &Task| text(task, "/linked");
    case.leaves(look, &["-", "", "t"], &["-", "", "t"], &["-", "", "t"]);
}

#[test]
fn a_state_within_another_has_lost_no_more() {
    let case = replaced_without_a_sync();
    let lab = Lab::new(case.events.iter().cloned().collect(), Promise::Posix);
    let states = lab.states();
    let has_lost = |it: &&State| it.cut() == 3 && it.torn().is_none() && it.lost().eq([1]);
    let lost = states.iter().find(has_lost).unwrap();
    let torn = states.iter().find(|it| it.cut() == 3 && it.torn().is_some()).unwrap();
    assert!(lab.whole().is_within(lost) && !lost.is_within(&lab.whole()));
    assert!(lost.is_within(torn));
    let story: Vec<String> = lab.story(lost).iter().map(ToString::to_string).collect();
    assert_eq!(
        story,
        [
            "  kept  create /tmp",
            "  LOST  write /file, bytes 0 to 2",
            "  kept  rename /tmp over /old"
        ]
    );
}

/// Shrinks the state that has lost most of those in which a step is lost, and the last one is not
/// cut off. Returns what that has lost.
fn shrunk(case: &Case, promise: Promise, step: usize) -> Vec<usize> {
    let lab = Lab::new(case.events.iter().cloned().collect(), promise);
    let matters =
        |state: &State| state.cut() == case.events.len() && state.lost().any(|lost| lost == step);
    let states = lab.states();
    let most = states.iter().filter(|it| matters(it)).max_by_key(|it| it.lost().count()).unwrap();
    assert!(most.lost().count() > 9, "{most:?}");
    let mut tries = 0;
    let shrunk = lab.shrink(most, |state| {
        tries += 1;
        Ok::<bool, ()>(matters(state))
    });
    assert!(tries <= 64);
    shrunk.unwrap().lost().collect()
}

#[test]
fn a_failing_state_shrinks_to_the_changes_that_matter() {
    let mut case = Case::new();
    for number in 0..10 {
        case = case.create(number, &format!("/{number}"));
    }
    let file = case.long;
    let case = case.write(file, (0, 1024), b"text");
    assert_eq!(shrunk(&case, Promise::Posix, 5), [5]);
    // Names are in their order.
    assert_eq!(shrunk(&case, Promise::Ext4, 5), [5, 6, 7, 8, 9]);
}

/// A long log has too many states to look at: a part of them is tried, and soon.
#[test]
fn a_long_log_has_a_part_of_its_states() {
    let mut case = Case::new();
    for number in 0..3000 {
        case = case.create(number, &format!("/{number}")).write(new(number), (0, 0), b"text");
    }
    let lab = Lab::new(case.events.iter().cloned().collect(), Promise::Posix);
    let states = lab.states();
    assert!((300..5000).contains(&states.len()), "{}", states.len());
    assert_eq!(states.last().unwrap().cut(), 6000);
}
