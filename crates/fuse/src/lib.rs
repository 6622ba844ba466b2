//! Mounts a vfscale file system on Linux through FUSE.
