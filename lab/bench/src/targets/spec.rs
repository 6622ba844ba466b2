//! Targets as the command line names them, and names for the directories of runs.

use std::path::PathBuf;

use vfscale::Patch;

use crate::base::error::Error;

/// A target as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// The library in this process.
    Memory,
    /// A volume, by the library in this process: an existing image, or one made for the run.
    Volume(PathBuf),
    /// A directory of a mounted file system.
    Path(PathBuf),
    /// A mount that is made for the run.
    Mount(MountSpec),
}

/// A mount that is made for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountSpec {
    /// An image that exists, or is made for the run too; memory if there is none.
    pub image: Option<PathBuf>,
    /// Options as `vfscale mount -o` takes them, such as `noxattr,writeback`.
    pub options: Option<String>,
}

impl TargetSpec {
    /// Returns whether the target is the library in this process, which can disable patches and
    /// pretend CPUs.
    #[must_use]
    pub fn is_library(&self) -> bool {
        matches!(self, TargetSpec::Memory | TargetSpec::Volume(_))
    }

    /// Returns whether a patch affects the target.
    #[must_use]
    pub fn has_patch(&self, patch: &Patch) -> bool {
        match self {
            TargetSpec::Memory => !patch.is_of_volumes(),
            TargetSpec::Volume(_) => true,
            TargetSpec::Path(_) | TargetSpec::Mount(_) => false,
        }
    }

    /// Parses `memory`, `volume:FILE`, `path:DIR`, `mount:memory` or `mount:FILE`, the last two
    /// also with options, as in `mount+noxattr,writeback:memory`.
    ///
    /// # Errors
    /// Returns [`Error::UnknownTarget`] for any other text.
    pub fn parse(text: &str) -> std::result::Result<TargetSpec, Error> {
        let mount = |what: &str, options: Option<&str>| {
            TargetSpec::Mount(MountSpec {
                image: (what != "memory").then(|| what.into()),
                options: options.map(str::to_owned),
            })
        };
        match text.split_once(':') {
            None if text == "memory" => Ok(TargetSpec::Memory),
            Some((kind, what)) if !what.is_empty() => match (kind, kind.split_once('+')) {
                ("path", _) => Ok(TargetSpec::Path(what.into())),
                ("volume", _) => Ok(TargetSpec::Volume(what.into())),
                ("mount", _) => Ok(mount(what, None)),
                (_, Some(("mount", options))) => Ok(mount(what, Some(options))),
                _ => Err(Error::UnknownTarget(text.to_owned())),
            },
            _ => Err(Error::UnknownTarget(text.to_owned())),
        }
    }
}

impl std::fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetSpec::Memory => f.write_str("memory"),
            TargetSpec::Volume(file) => write!(f, "volume:{}", file.display()),
            TargetSpec::Path(dir) => write!(f, "path:{}", dir.display()),
            TargetSpec::Mount(MountSpec { image, options }) => {
                f.write_str("mount")?;
                options.as_ref().map_or(Ok(()), |options| write!(f, "+{options}"))?;
                match image {
                    None => f.write_str(":memory"),
                    Some(file) => write!(f, ":{}", file.display()),
                }
            }
        }
    }
}

/// Makes a directory for a run under the first free name. `make` returns whether it made the
/// directory, or the name was taken.
///
/// # Errors
/// Any error of `make`.
pub(super) fn own_directory<E>(
    mut make: impl FnMut(&str) -> std::result::Result<bool, E>,
) -> std::result::Result<String, E> {
    let pid = std::process::id();
    let mut n = 0_u32;
    loop {
        let name = format!("vfscale-bench-{pid}-{n}");
        if make(&name)? {
            return Ok(name);
        }
        n += 1;
    }
}
