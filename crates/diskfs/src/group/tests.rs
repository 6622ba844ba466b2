mod failures;
mod inodes;
mod model;
mod pressure;
mod world;
