//! Budgets of memory that the caches of several volumes share.

use std::ffi::c_int;
use std::sync::Arc;

use vfscale::Errno;
use vfscale::volume::CacheBudget;

use crate::args::given;
use crate::border::{Failure, border};
use crate::handles::{Kind, Table, Used};
use crate::structs::{vfscale_cache_budget, vfscale_cache_usage};

static BUDGETS: Table<Arc<CacheBudget>> = Table::new(Kind::CacheBudget, false);

/// Returns the budget of a handle.
pub(crate) fn budget(budget: *mut vfscale_cache_budget) -> Result<Used<Arc<CacheBudget>>, Failure> {
    BUDGETS.get(budget as u64)
}

/// Makes a budget of `bytes` bytes for the caches of several volumes, which are opened with
/// cache_budget in their options, and stores its handle in `budget`: three quarters for data of
/// files, a quarter for metadata. A volume takes what it uses, and gives back what it has not used
/// for a while when another one needs it.
///
/// Errors: EINVAL for 0 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_cache_budget_new(
    bytes: u64,
    budget: *mut *mut vfscale_cache_budget,
) -> c_int {
    border("vfscale_cache_budget_new", || {
        let place = given!(place(budget))?;
        if bytes == 0 {
            return Err(Failure::new(Errno::INVAL, "the budget has 0 bytes"));
        }
        place.set(BUDGETS.insert(CacheBudget::new(bytes))? as *mut vfscale_cache_budget);
        Ok(())
    })
}

/// Stores in `usage` how much of a budget is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_cache_budget_usage(
    budget: *mut vfscale_cache_budget,
    usage: *mut vfscale_cache_usage,
) -> c_int {
    border("vfscale_cache_budget_usage", || {
        let place = given!(place(usage))?;
        let budget = self::budget(budget)?;
        let (data, metadata) = budget.used();
        place.set(vfscale_cache_usage { bytes: budget.bytes(), data, metadata, reserved: [0; 5] });
        Ok(())
    })
}

/// Frees the handle of a budget. Volumes that were opened with it keep it.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_cache_budget_free(budget: *mut vfscale_cache_budget) -> c_int {
    border("vfscale_cache_budget_free", || BUDGETS.remove(budget as u64))
}
