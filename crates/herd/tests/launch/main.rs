//! `herd launch` from outside, by the rows of the launcher specification §18. Workers are shell
//! scripts: what is shown holds for any program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod events;
mod fixture;
mod hang;
mod leftovers;
mod load;
mod numa;
mod report;
mod rows;
mod speed;
mod stopped;
mod tee;
