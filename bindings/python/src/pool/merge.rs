//! Merges of branches, and rebases.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use vfscale::{Conflict, ConflictKind, MergeOptions, Merged, Strategy};

use super::Pool;

/// The members of a conflict: path, kind, the path of what stands beside.
type Told<'py> = (Bound<'py, PyAny>, &'static str, Option<Bound<'py, PyAny>>);

/// The counts of a merge, whether it was done, and the branch that has what a rebase has replaced.
type Counts = (u64, u64, u64, u64, u64, bool, Option<String>);

fn told<'py>(py: Python<'py>, conflict: &Conflict) -> PyResult<Told<'py>> {
    let name = |path: &std::path::Path| path.as_os_str().into_pyobject(py).map(Bound::into_any);
    let kind = match conflict.kind {
        ConflictKind::Xattrs => "xattrs",
        kind => kind.name(),
    };
    Ok((name(&conflict.path)?, kind, conflict.beside.as_deref().map(name).transpose()?))
}

#[pymethods]
impl Pool {
    fn _merge<'py>(
        &self,
        py: Python<'py>,
        from: &str,
        into: &str,
        strategy: &str,
        dry_run: bool,
        is_rebase: bool,
    ) -> PyResult<(Counts, Vec<Told<'py>>)> {
        let unknown = || {
            let names = Strategy::ALL.map(Strategy::name).join(", ");
            PyValueError::new_err(format!("{strategy:?} is no strategy: {names} are"))
        };
        let strategy = Strategy::ALL.into_iter().find(|it| it.name() == strategy);
        let options = MergeOptions::new().strategy(strategy.ok_or_else(unknown)?).dry_run(dry_run);
        let act = if is_rebase { vfscale::Pool::rebase } else { vfscale::Pool::merge };
        let Merged { added, removed, moved, changed, texts, kept, conflicts, is_done } =
            self.call(py, |pool| act(pool, from, into, options))?;
        let conflicts =
            conflicts.iter().map(|conflict| told(py, conflict)).collect::<Result<_, _>>()?;
        Ok(((added, removed, moved, changed, texts, is_done, kept), conflicts))
    }
}
