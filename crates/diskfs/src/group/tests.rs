mod failures;
mod growth;
mod inodes;
mod model;
mod pressure;
mod world;
