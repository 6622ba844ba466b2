//! Tests of the command line.

use clap::CommandFactory;

use super::*;

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}
