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
//! | [`generate`] | cases that commute, as many as one likes |
//! | [`execute`] | the calls of a case, made in the library |
//! | [`check`] | does the library do what the model says? |

pub mod case;
pub mod check;
pub mod execute;
pub mod generate;
pub mod model;
