mod contended;
mod failures;
mod growth;
mod inodes;
mod model;
mod parts;
mod pressure;
mod world;
