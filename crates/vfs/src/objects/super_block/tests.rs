use std::cell::Cell;

use super::*;

/// Runs a call for which there is too little space `failures` times, and returns its result and
/// how often it was made. `reclaimed` are the results of reclaiming; the last one stays.
fn try_for_space(failures: u32, reclaimed: &[(bool, u64)]) -> (Result<(), Errno>, u32) {
    let (calls, reclaims) = (Cell::new(0), Cell::new(0));
    let reclaim = || {
        let at = reclaims.replace(reclaims.get() + 1);
        let (has_freed, changes) = reclaimed[at.min(reclaimed.len() - 1)];
        Reclaimed { has_freed, changes }
    };
    let call = || {
        calls.set(calls.get() + 1);
        if calls.get() > failures { Ok(()) } else { Err(Errno::NOSPC) }
    };
    (again_for_space(reclaim, call), calls.get())
}

#[test]
fn a_call_is_repeated_while_space_comes_back() {
    assert_eq!(try_for_space(0, &[(false, 0)]), (Ok(()), 1));
    assert_eq!(try_for_space(1, &[(false, 0)]), (Err(Errno::NOSPC), 1), "nothing was freed");
    assert_eq!(try_for_space(2, &[(true, 1), (true, 2), (true, 3)]), (Ok(()), 3));
    let always = try_for_space(u32::MAX, &[(true, 0)]);
    assert_eq!(always, (Err(Errno::NOSPC), SPACE_TRIES + 1), "others take it each time");
}

/// Another thread frees space that is withheld during the call, and available when the caller
/// reclaims: nothing is left to wait for, and the call has not seen it.
///
/// Race: A call that lacks space against space that becomes free.
#[test]
fn a_call_is_repeated_after_space_that_came_back_during_it() {
    assert_eq!(try_for_space(1, &[(false, 5), (false, 7)]), (Ok(()), 2));
    assert_eq!(try_for_space(2, &[(false, 5), (false, 7)]), (Err(Errno::NOSPC), 2));
}
