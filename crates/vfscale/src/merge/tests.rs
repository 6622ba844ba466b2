//! Merges against the table of rules: by a model on random histories, and by planted faults.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_sync::random::{Random, seed};

use super::Decided;
use super::delta::{Delta, Id};
use super::objects::Content;
use super::report::{MergeOptions, Strategy};
use super::rules::Plan;
use crate::{Pool, Task};
use model::{Model, change, timeless};
use tree_common::{Tree, read_contents, read_tree, unequal};

mod model;
mod objects;
#[path = "../../tests/tree_common/mod.rs"]
mod tree_common;

/// Makes a pool whose volume is empty.
fn new_pool() -> Pool {
    let device = Arc::new(MemoryDevice::with_block_size(64 << 20, 4096).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    crate::pool_on(device).convert(true).open().unwrap()
}

fn within<T>(pool: &Pool, name: &str, act: impl FnOnce(&Task) -> T) -> T {
    let volume = pool.open(name).unwrap();
    let result = act(&volume.task());
    volume.close().unwrap();
    result
}

/// Fails if two trees differ.
fn same(one: &Tree, other: &Tree, what: &str) -> Result<(), String> {
    let found = unequal(one, other);
    if found.is_empty() { Ok(()) } else { Err(format!("{what}: {found:#?}")) }
}

/// Makes a random history, and merges it. Returns whether it had no conflict, or what is wrong.
fn play(
    pool: &Pool,
    random: &mut Random,
    moves: bool,
    decided: Decided<'_>,
) -> Result<bool, String> {
    pool.fork("main", "base").unwrap();
    let base = within(pool, "base", |task| {
        (0..14).for_each(|_| change(task, random, true));
        if !moves {
            // The model knows no links.
            for (path, known) in read_contents(task) {
                if known.first != path {
                    task.remove_file(&path).unwrap();
                }
            }
        }
        read_tree(task).unwrap()
    });
    for name in ["into", "from"] {
        pool.fork("base", name).unwrap();
        let count = 1 + random.below(9);
        within(pool, name, |task| (0..count).for_each(|_| change(task, random, moves)));
        pool.fork(name, &format!("{name} 2")).unwrap();
    }
    let judged = judge(pool, &base, moves, decided);
    for info in pool.branches() {
        if info.name != "main" {
            pool.delete(&info.name).unwrap();
        }
    }
    pool.reap().unwrap();
    judged
}

/// Returns a tree without what copies of a file do not have in common.
fn without_objects(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    tree.values_mut().for_each(|known| known.object = Default::default());
    tree
}

/// Merges in the branches that [`play`] has made.
fn judge(pool: &Pool, base: &Tree, moves: bool, decided: Decided<'_>) -> Result<bool, String> {
    let [ours, theirs] =
        ["into", "from"].map(|it| within(pool, it, |task| read_tree(task).unwrap()));
    let options = MergeOptions::new();
    let done = pool.merge_with(("from", "into"), options, decided);
    let done = done.map_err(|error| error.to_string())?;
    let after = within(pool, "into", read_contents);
    let timeless = |tree: Tree| tree.into_iter().map(|(path, known)| (path, timeless(known)));
    if moves && done.conflicts.is_empty() {
        let expected = objects::union(base, &ours, &theirs)?;
        same(&timeless(after.clone()).collect(), &expected, "the objects")?;
    }
    if !moves {
        let [base, ours, theirs] = [base, &ours, &theirs].map(without_objects);
        let model = Model::new(&base, &ours, &theirs);
        let told = done.conflicts.iter().cloned();
        let told: BTreeSet<_> = told.map(|it| (it.path, it.kind, it.beside)).collect();
        if model.conflicts != told {
            return Err(format!("conflicts: {:?} | {told:?}", model.conflicts));
        }
        same(&timeless(after.clone()).collect(), &model.tree, "the model")?;
    }
    let again = pool.merge("from", "into", options).unwrap();
    same(&within(pool, "into", read_contents), &after, &format!("again {again:?}"))?;
    if done.conflicts.is_empty() {
        pool.merge("into 2", "from 2", options).unwrap();
        same(&within(pool, "from 2", read_contents), &after, "the other way round")?;
    }
    let fail = options.strategy(Strategy::Fail);
    let forward = pool.merge("into", "into 2", fail).unwrap().conflicts;
    match forward.is_empty() {
        true => Ok(done.conflicts.is_empty()),
        false => Err(format!("fast-forward: {forward:?}")),
    }
}

/// Merges random histories: as many as `VFSCALE_MERGES` says, or few. Checks that a share of one in
/// `share` has no conflict.
fn campaign(moves: bool, share: u64) {
    let rounds = std::env::var("VFSCALE_MERGES").map_or(60, |text| text.parse().unwrap());
    let (seed, mut clean) = (seed(), 0);
    let (mut random, pool) = (Random::new(seed), new_pool());
    for round in 0..rounds {
        let judged = play(&pool, &mut random, moves, &|_, _| ());
        let judged = judged.unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}"));
        clean += u64::from(judged);
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
    assert!(clean * share > rounds, "{clean} of {rounds} had no conflict");
}

#[test]
fn random_histories_are_merged_as_the_model_says() {
    campaign(false, 20);
}

/// With moves and links: a merge is done, and without conflicts it is that of the model of objects,
/// and its direction makes no difference.
#[test]
fn random_moves_are_merged_alike_in_both_directions() {
    campaign(true, 20);
}

/// A rule of the table, and a fault of it.
type Fault = (&'static str, fn(&mut Plan, (&Delta<'_>, &Delta<'_>)));

/// Rules that the model of random histories knows.
const FAULTS: [Fault; 13] = [
    ("what one side has changed is taken", |plan, _| {
        plan.updates.retain(|_, update| update.content != Content::Theirs);
    }),
    ("the same change: once", |plan, (into, from)| {
        for id in into.changed.intersection(&from.changed).filter(|id| from.met(**id).count() > 0) {
            if plan.updates.get(id).is_none_or(|update| update.content == Content::Kept) {
                beside(plan, from, *id);
            }
        }
    }),
    ("contents here, attributes there: both", |plan, (into, _)| {
        let both = plan.updates.iter_mut().filter(|(id, _)| into.changed.contains(id));
        both.for_each(|(_, update)| update.mode = None);
    }),
    ("lines apart: merged by lines", |plan, _| {
        for update in plan.updates.values_mut() {
            if matches!(update.content, Content::Text(_)) {
                update.content = Content::Kept;
            }
        }
    }),
    ("other contents: INTO's stays", |plan, (into, from)| {
        for id in plan
            .copies
            .values()
            .filter(|id| into.changed.intersection(&from.changed).any(|it| it == *id))
        {
            plan.updates.entry(*id).or_default().content = Content::Theirs;
        }
    }),
    ("other contents: FROM's beside it", |plan, _| plan.copies.clear()),
    ("changed here, removed there: the changed one stays", |plan, (into, from)| {
        for (key, (before, after)) in &from.edges {
            let is_lost = |id: &Id| after.is_none() && into.changed.contains(id);
            plan.removes.extend(before.filter(is_lost).map(|id| (key.clone(), id)));
        }
    }),
    ("two new directories: one, with what is in both", |plan, _| {
        plan.adds.retain(|key, _| !matches!(key.0, Id::Into(_)));
    }),
    ("two files with equal contents: one", |plan, (into, from)| {
        for (key, (_, after)) in &from.edges {
            let twin = after.filter(|id| matches!(id, Id::Into(_)));
            let twin = twin.filter(|id| into.edges.get(key).is_some_and(|it| it.1 == Some(*id)));
            if let Some(id) = twin {
                plan.copies.insert((key.0, [&key.1, &b".from"[..]].concat()), id);
            }
        }
    }),
    ("other things under one name: FROM's beside it", |plan, _| {
        plan.adds.retain(|key, _| !key.1.ends_with(b".from"));
    }),
    ("a directory stays for what was added in it", |plan, (into, _)| {
        let is_there = |id| matches!(id, Id::From(_)) || into.version(id).unwrap().is_some();
        plan.adds.retain(|key, _| is_there(key.0));
    }),
    ("each attribute by itself", |plan, _| {
        plan.updates.values_mut().for_each(|update| update.xattrs.clear());
    }),
    ("the time of the side that changed it, or the later one", |plan, _| {
        plan.updates.values_mut().for_each(|update| update.mtime = None);
    }),
];

/// Puts FROM's version of a file beside it.
fn beside(plan: &mut Plan, from: &Delta<'_>, id: Id) {
    for (dir, name) in from.met(id) {
        plan.copies.insert((*dir, [name, &b".from"[..]].concat()), id);
    }
}

/// Each fault is found within some hundred histories.
#[test]
fn the_model_finds_a_fault_in_each_rule() {
    let (mut random, pool) = (Random::new(seed()), new_pool());
    for (rule, fault) in FAULTS {
        let found = (0..600).find(|_| play(&pool, &mut random, false, &fault).is_err());
        println!("{rule}: {found:?}");
        assert!(found.is_some(), "{rule}");
    }
}

/// The model of objects finds faults of names within some hundred histories: all but those that a
/// conflict is told of.
#[test]
fn the_model_of_objects_finds_faults_of_names() {
    let (mut random, pool) = (Random::new(seed()), new_pool());
    for at in [0, 4, 5] {
        let (rule, fault) = FAULTS_OF_NAMES[at];
        let found = (0..600).find(|_| play(&pool, &mut random, true, &fault).is_err());
        println!("{rule}: {found:?}");
        assert!(found.is_some(), "{rule}");
    }
}

/// A history with moves, and the paths that it ends with, each with what is there.
struct Moves {
    base: fn(&Task),
    into: fn(&Task),
    from: fn(&Task),
    outcome: &'static [&'static str],
}

/// Files have the names of their first paths as contents, unless they are changed.
const MOVES: [Moves; 7] = [
    Moves {
        base: |task| task.write("/a", "a").unwrap(),
        into: |task| task.rename("/a", "/ours").unwrap(),
        from: |task| task.write("/a", "changed").unwrap(),
        outcome: &["/", "/ours changed"],
    },
    Moves {
        base: |task| task.write("/a", "a").unwrap(),
        into: |task| task.rename("/a", "/ours").unwrap(),
        from: |task| task.rename("/a", "/theirs").unwrap(),
        outcome: &["/", "/ours a"],
    },
    Moves {
        base: |task| task.write("/a", "a").unwrap(),
        into: |task| task.rename("/a", "/ours").unwrap(),
        from: |task| task.remove_file("/a").unwrap(),
        outcome: &["/", "/ours a"],
    },
    Moves {
        base: |task| ["/p", "/q"].iter().for_each(|path| task.create_dir(path).unwrap()),
        into: |task| task.rename("/p", "/q/p").unwrap(),
        from: |task| task.rename("/q", "/p/q").unwrap(),
        outcome: &["/", "/q", "/q/p"],
    },
    Moves {
        base: |task| {
            task.write("/a", "a").unwrap();
            task.hard_link("/a", "/b").unwrap();
        },
        into: |task| task.hard_link("/a", "/ours").unwrap(),
        from: |task| {
            task.hard_link("/a", "/theirs").unwrap();
            task.remove_file("/b").unwrap();
        },
        outcome: &["/", "/a a", "/ours a", "/theirs a"],
    },
    Moves {
        base: |task| task.create_dir("/d").unwrap(),
        into: |task| task.rename("/d", "/e").unwrap(),
        from: |task| task.write("/d/new", "new").unwrap(),
        outcome: &["/", "/e", "/e/new new"],
    },
    // A move that is a copy and a removal.
    Moves {
        base: |task| task.create_dir("/d").unwrap(),
        into: |task| {
            task.remove_dir_all("/d").unwrap();
            task.create_dir("/e").unwrap();
        },
        from: |task| {
            task.rename("/d", "/e").unwrap();
            task.write("/e/new", "new").unwrap();
        },
        outcome: &["/", "/e", "/e/new new"],
    },
];

/// Rules about names.
const FAULTS_OF_NAMES: [Fault; 7] = [
    ("contents here, name there: both", |plan, _| plan.updates.clear()),
    ("renamed to two names: INTO's name", |plan, (into, from)| {
        for (key, (_, after)) in &from.edges {
            let is_twice = |id: &Id| into.edges.values().any(|edge| edge.1 == Some(*id));
            plan.adds.extend(after.filter(is_twice).map(|id| (key.clone(), id)));
        }
    }),
    ("renamed here, removed there: stays", |plan, (into, from)| {
        for (key, (_, after)) in &into.edges {
            let is_gone = |id: &Id| from.version(*id).unwrap().is_none();
            plan.removes.extend(after.filter(is_gone).map(|id| (key.clone(), id)));
        }
    }),
    ("directories moved into each other: INTO's places", |plan, (into, from)| {
        for (key, edge) in &from.edges {
            let is_dir = |id: &Id| {
                let ino = into.version(*id).unwrap();
                ino.is_some_and(|ino| into.side.inode(ino, Path::new("/")).unwrap().is_directory())
            };
            plan.adds.extend(edge.1.filter(is_dir).map(|id| (key.clone(), id)));
            plan.removes.extend(edge.0.filter(is_dir).map(|id| (key.clone(), id)));
        }
    }),
    ("names of one file: all that a side has added", |plan, (into, _)| {
        plan.adds.retain(|_, id| into.version(*id).unwrap().is_none());
    }),
    ("names of one file: none that one has removed", |plan, _| plan.removes.clear()),
    ("a directory is itself under each name", |plan, _| plan.adds.clear()),
];

/// Plays the histories with moves. Returns what is wrong.
fn play_moves(decided: Decided<'_>) -> Result<(), String> {
    for Moves { base, into, from, outcome } in MOVES {
        let pool = new_pool();
        within(&pool, "main", base);
        for (name, act) in [("into", into), ("from", from)] {
            pool.fork("main", name).unwrap();
            within(&pool, name, act);
        }
        let merged = pool.merge_with(("from", "into"), MergeOptions::new(), decided);
        merged.map_err(|error| error.to_string())?;
        let tree = within(&pool, "into", read_contents);
        let found = tree.iter().map(|(path, known)| {
            let content = String::from_utf8_lossy(&known.content);
            format!("{} {content}", path.display()).trim_end().to_owned()
        });
        let found: Vec<String> = found.collect();
        if found != outcome {
            return Err(format!("{found:?}, not {outcome:?}"));
        }
    }
    Ok(())
}

#[test]
fn histories_with_moves_find_a_fault_in_each_rule_of_names() {
    play_moves(&|_, _| ()).unwrap();
    for (rule, fault) in FAULTS_OF_NAMES {
        let found = play_moves(&fault);
        println!("{rule}: {found:?}");
        assert!(found.is_err(), "{rule}");
    }
}
