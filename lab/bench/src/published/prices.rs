//! Prices of patches where only one worker is there to pay them, as profiles have shown, and rows
//! that are slower by chance.
//!
//! A report shows a price beside the rows of its workload that are slower with the patch. The
//! figures are instructions, counted with and without the patch; `docs/SCALING.md` tells how.

/// A price that a patch has in some workloads.
struct Price {
    workloads: &'static [&'static str],
    patch: &'static str,
    text: &'static str,
}

const PRICES: &[Price] = &[
    Price {
        workloads: &["rename-same-dir"],
        patch: "dcache-hash",
        text: "the names of a directory are in two lines instead of one: as many locks, 0.6 % \
               more instructions",
    },
    Price {
        workloads: &["aim-short"],
        patch: "dcache-hash",
        text: "a new directory has 16 lines of names, 1 KiB, instead of one: listing reads all of \
               them, rmdir locks all of them, and 2,000 users have 4 MiB of them",
    },
    Price {
        workloads: &["find-size"],
        patch: "lockref",
        text: "none: opening a directory takes 7 % fewer instructions, stat as many. Where the two \
               trees lie in memory makes 6 % of difference from run to run, either way",
    },
];

/// Returns the known price in a workload of one of these patches.
pub(crate) fn price_of(workload: &str, patches: &[String]) -> Option<&'static str> {
    let is_paid = |price: &&Price| {
        price.workloads.contains(&workload) && patches.iter().any(|patch| patch == price.patch)
    };
    PRICES.iter().find(is_paid).map(|price| price.text)
}

#[cfg(test)]
mod tests;
