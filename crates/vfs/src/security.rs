//! Credentials, access control lists, and the name spaces of extended attributes.

pub mod acl;
pub mod cred;
pub mod xattr;
