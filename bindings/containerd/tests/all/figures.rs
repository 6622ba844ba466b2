//! The time of calls above a base of many files.

use std::fs;
use std::time::Instant;

use crate::client::{Snapshotter, can_mount};

const FILES: usize = 100_000;
const ROUNDS: usize = 15;

/// Prints the medians of milliseconds, the smallest and the largest: `cargo test --release --
/// --ignored --nocapture figures`.
#[test]
#[ignore = "it measures"]
fn figures_of_calls_above_a_large_base() {
    if !can_mount() {
        return;
    }
    let it = Snapshotter::with(8 << 30);
    it.within(&it.prepare("a", "").unwrap(), |root| {
        for number in 0..FILES {
            let dir = root.join(format!("d{}", number / 100));
            if number % 100 == 0 {
                fs::create_dir(&dir).unwrap();
            }
            fs::write(dir.join(number.to_string()), format!("file {number}\n")).unwrap();
        }
    });
    it.commit("base", "a").unwrap();
    let mut times: [(&str, Vec<f64>); 6] = [
        ("`Prepare` above the base, its view is made", Vec::new()),
        ("`Prepare` above the base, no other snapshot is above it", Vec::new()),
        ("`Prepare` above the base, others are above it", Vec::new()),
        ("`View` of the base", Vec::new()),
        ("`Commit` of ten small files", Vec::new()),
        ("`Prepare` above that layer, its view is made", Vec::new()),
    ];
    let mut timed = |at: usize, act: &dyn Fn()| {
        let begun = Instant::now();
        act();
        times[at].1.push(begun.elapsed().as_secs_f64() * 1e3);
    };
    timed(0, &|| _ = it.prepare("first", "base").unwrap());
    it.remove("first").unwrap();
    for round in 0..ROUNDS {
        let [alone, key, view, layer, next] =
            ["alone", "key", "view", "layer", "next"].map(|it| format!("{it} {round}"));
        timed(1, &|| _ = it.prepare(&alone, "base").unwrap());
        timed(2, &|| _ = it.prepare(&key, "base").unwrap());
        timed(3, &|| _ = it.view(&view, "base").unwrap());
        it.within(&it.mounts(&key).unwrap(), |root| {
            for number in 0..10 {
                fs::write(root.join(format!("d{}/new", number * 100)), "changed\n").unwrap();
            }
        });
        timed(4, &|| it.commit(&layer, &key).unwrap());
        timed(5, &|| _ = it.prepare(&next, &layer).unwrap());
        for name in [alone, view, next, layer] {
            it.remove(&name).unwrap();
        }
    }
    println!("| call | ms |\n| --- | ---: |");
    for (what, mut all) in times {
        all.sort_by(f64::total_cmp);
        let (median, last) = (all[all.len() / 2], all[all.len() - 1]);
        println!("| {what} | {median:.1} [{:.1}..{last:.1}] |", all[0]);
    }
}
