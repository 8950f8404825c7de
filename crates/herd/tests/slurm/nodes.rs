//! A program of one node that does something else for a test. Each node has mounts of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::user::User;

/// One that is replaced, until this value is dropped.
pub(crate) struct Replaced<'a> {
    user: &'a User<'a>,
    node: String,
    program: String,
}

impl<'a> Replaced<'a> {
    /// Puts a shell script in the place of a program by its path. `REAL` in it stands for the program.
    pub(crate) fn on(user: &'a User<'a>, node: u32, program: &str, script: &str) -> Self {
        let node = node.to_string();
        let name = program.rsplit('/').next().unwrap();
        let path = |kind: &str| {
            let path = user.path(&format!("{kind}-{node}-{name}"));
            path.to_string_lossy().into_owned()
        };
        let (real, script_path) = (path("real"), path("script"));
        user.lab.slurm(&["node", "in", &node, "cp", program, &real]);
        let script = format!("#!/bin/sh\n{}\n", script.replace("REAL", &real));
        fs::write(&script_path, script).unwrap();
        fs::set_permissions(&script_path, fs::Permissions::from_mode(0o755)).unwrap();
        let words = [
            "node",
            "in",
            &node,
            "mount",
            "--bind",
            &script_path,
            program,
        ];
        user.lab.slurm(&words);
        Self {
            user,
            node,
            program: program.to_owned(),
        }
    }
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        // One that is still running keeps its file.
        let words = ["node", "in", &self.node, "umount", "--lazy", &self.program];
        self.user.lab.slurm(&words);
    }
}
