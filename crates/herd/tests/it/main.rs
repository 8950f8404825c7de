//! The real binary, without anything running: help, job files, what is on disk.

#[cfg(test)]
mod fixture;
mod help;
mod job_files;
mod machine;
mod queries;
#[cfg(test)]
mod skypilot;
mod stdout;
