//! Scaling proven by counting: which cache lines do calls that commute conflict on?
//!
//! Calls whose results do not depend on their order can be made so that none writes a cache line that
//! another touches, and what shares no line scales (Clements, Kaashoek, Zeldovich, Morris, Kohler: The
//! Scalable Commutativity Rule, SOSP 2013). That needs no machine with many CPUs: it is enough to count.
//!
//! # The pieces
//!
//! | module | what |
//! | --- | --- |
//! | [`case`] | a small starting state and two calls |
//! | [`model`] | what the calls do, and which commute |
//! | [`execute`] | the calls of a case, made in the library |

pub mod case;
pub mod execute;

pub mod model;
