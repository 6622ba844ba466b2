//! Patches and layers: differences of branches as bytes or in files, and applying them.

use std::fs::File;
use std::io::Write;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vfscale::{Applied, ApplyOptions, DiffOptions, PoolError};

use super::Pool;
use crate::path::FsPath;

#[pymethods]
impl Pool {
    fn _patch<'py>(
        &self,
        py: Python<'py>,
        a: &str,
        b: &str,
        base: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let options = DiffOptions::new().with_base(base);
        let mut patch = Vec::new();
        self.call(py, |pool| {
            pool.patch(a, b, &options, &mut |part| {
                patch.extend_from_slice(part);
                true
            })
        })?;
        Ok(PyBytes::new(py, &patch))
    }

    fn _layer(&self, py: Python<'_>, a: &str, b: &str, out: FsPath, base: bool) -> PyResult<u64> {
        let options = DiffOptions::new().with_base(base);
        let path = out.path();
        self.call(py, |pool| {
            let failed = |error| PoolError::Output { path: path.to_owned(), error };
            let (mut file, mut written) = (File::create(path).map_err(failed)?, Ok(()));
            let count = pool.layer(a, b, &options, &mut |part| {
                written = file.write_all(part);
                written.is_ok()
            });
            written.map_err(failed).and(count)
        })
    }

    /// Applies bytes, or the contents of a file.
    #[pyo3(signature = (branch, bytes, path, dry_run, strip))]
    fn _apply(
        &self,
        py: Python<'_>,
        branch: &str,
        bytes: Option<Vec<u8>>,
        path: Option<FsPath>,
        dry_run: bool,
        strip: usize,
    ) -> PyResult<(bool, u64, u64, u64, bool)> {
        let options = ApplyOptions::new().dry_run(dry_run).strip(strip);
        let Applied { is_layer, written, removed, untold, is_done } = self.call(py, |pool| {
            let Some(path) = &path else {
                let bytes = bytes.unwrap_or_default();
                return pool.apply(branch, &mut &bytes[..], options);
            };
            let failed = |error| PoolError::Output { path: path.path().to_owned(), error };
            pool.apply(branch, &mut File::open(path.path()).map_err(failed)?, options)
        })?;
        Ok((is_layer, written, removed, untold, is_done))
    }
}
