use std::collections::BTreeMap;
use std::ffi::OsString;

use super::*;

/// A directory in which interpreters and packages are laid out.
struct Layout(tempfile::TempDir);

impl Layout {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: &[u8]) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn interpreter(&self, path: &str) -> PathBuf {
        self.file(path, b"\x7fELF and so on")
    }

    fn link(&self, path: &str, target: &Path) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        path
    }

    fn torch(&self, directory: &str, version: &str) {
        self.file(
            &format!("{directory}/torch/__init__.py"),
            b"raise SystemExit",
        );
        let text = format!("from typing import Optional\n__version__ = '{version}'\ncuda = None\n");
        self.file(&format!("{directory}/torch/version.py"), text.as_bytes());
    }
}

fn plain(interpreter: &Path) -> Support {
    support(interpreter, |_| None)
}

fn with(interpreter: &Path, variables: &[(&str, &Path)]) -> Support {
    let variables: BTreeMap<_, OsString> = variables
        .iter()
        .map(|&(name, value)| (name, value.into()))
        .collect();
    support(interpreter, |name| {
        variables.get(name).map(OsString::as_os_str)
    })
}

fn known(version: &str) -> Support {
    Support::Known(version.to_owned())
}

#[test]
fn versions_are_judged() {
    let judge = |version: &str| judge(version.to_owned());
    for version in [
        "2.2.0",
        "2.4.1+cpu",
        "2.15.0+cu132",
        "2.6.0a0+git1234",
        "2.3.0.post1",
    ] {
        assert_eq!(judge(version), known(version));
    }
    for version in ["1.13.0a0", "2.1.2+cu118", "0.4.1"] {
        assert_eq!(judge(version), Support::TooOld(version.to_owned()));
    }
    for version in ["2.16.0", "3.0.0", "unknown", "", "2", "2.x"] {
        assert!(matches!(judge(version), Support::Unknown(_)), "{version}");
    }
}

#[test]
fn torch_is_found_in_an_environment_and_not_beside_it() {
    let layout = Layout::new();
    let base = layout.interpreter("usr/bin/python3.11");
    layout.torch("usr/lib/python3/dist-packages", "1.13.0a0");
    assert_eq!(plain(&base), Support::TooOld("1.13.0a0".to_owned()));

    let python = layout.link("venv/bin/python", &base);
    let configuration = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n";
    layout.file("venv/pyvenv.cfg", configuration.as_bytes());
    assert_eq!(plain(&python), Support::Absent);
    layout.torch("venv/lib/python3.12/site-packages", "2.4.0");
    assert_eq!(plain(&python), Support::Absent, "of another Python");
    layout.torch("venv/lib/python3.11/site-packages", "2.15.0+cu132");
    assert_eq!(plain(&python), known("2.15.0+cu132"));
}

#[test]
fn an_environment_may_use_the_packages_of_the_system() {
    let layout = Layout::new();
    let base = layout.interpreter("usr/bin/python3.12");
    layout.torch("usr/local/lib/python3.12/dist-packages", "2.6.0");
    layout.torch("usr/lib/python3/dist-packages", "1.13.0");
    let python = layout.link("venv/bin/python", &base);
    let home = layout.path("usr/bin");
    let text = format!(
        "home = {}\ninclude-system-site-packages = true\nversion = 3.12.1\n",
        home.display()
    );
    layout.file("venv/pyvenv.cfg", text.as_bytes());
    assert_eq!(plain(&python), known("2.6.0"));
    assert_eq!(plain(&base), known("2.6.0"));
}

#[test]
fn the_path_and_the_users_own_packages_come_first() {
    let layout = Layout::new();
    let python = layout.interpreter("usr/bin/python3.11");
    layout.torch("usr/lib/python3.11/site-packages", "2.2.0");
    layout.torch("home/.local/lib/python3.11/site-packages", "2.3.0");
    layout.torch("source", "2.5.0");
    let (home, source) = (layout.path("home"), layout.path("source"));
    assert_eq!(plain(&python), known("2.2.0"));
    assert_eq!(with(&python, &[("HOME", &home)]), known("2.3.0"));
    let without = [
        ("HOME", home.as_path()),
        ("PYTHONNOUSERSITE", Path::new("1")),
    ];
    assert_eq!(with(&python, &without), known("2.2.0"));
    let both = [("HOME", home.as_path()), ("PYTHONPATH", source.as_path())];
    assert_eq!(with(&python, &both), known("2.5.0"));
}

#[test]
fn torch_that_lies_elsewhere_is_found() {
    let layout = Layout::new();
    let python = layout.interpreter("env/bin/python3.10");
    let site = "env/lib/python3.10/site-packages";
    layout.torch("checkout", "2.7.0a0+git99");
    let checkout = layout.path("checkout");
    let lines = format!("# comment\nimport nothing\n{}\n", checkout.display());
    layout.file(&format!("{site}/torch.pth"), lines.as_bytes());
    assert_eq!(plain(&python), known("2.7.0a0+git99"));

    let layout = Layout::new();
    let python = layout.interpreter("env/bin/python3.10");
    layout.file(
        &format!("{site}/torch-2.8.1.dist-info/METADATA"),
        b"Name: torch\n",
    );
    layout.file(&format!("{site}/torchvision-0.1.dist-info/METADATA"), b"");
    assert_eq!(plain(&python), known("2.8.1"));
}

#[test]
fn an_interpreter_without_a_version_in_its_name_is_found() {
    let layout = Layout::new();
    let python = layout.interpreter("conda/bin/python");
    assert_eq!(plain(&python), Support::Absent);
    layout.torch("conda/lib/python3.9/site-packages", "2.2.1");
    assert_eq!(plain(&python), known("2.2.1"));
}

#[test]
fn what_cannot_be_known_is_unknown() {
    let layout = Layout::new();
    assert!(matches!(plain(&layout.path("absent")), Support::Unknown(_)));
    let shim = layout.file("shims/python3.11", b"#!/bin/sh\nexec something\n");
    assert!(matches!(plain(&shim), Support::Unknown(_)));
    let python = layout.interpreter("env/bin/python3.11");
    let torch = "env/lib/python3.11/site-packages/torch";
    layout.file(&format!("{torch}/__init__.py"), b"");
    assert!(matches!(plain(&python), Support::Unknown(_)));
    layout.file(&format!("{torch}/version.py"), b"__version__ = compute()\n");
    assert!(matches!(plain(&python), Support::Unknown(_)));
    // No package at all: a directory of that name is none.
    let layout = Layout::new();
    let python = layout.interpreter("env/bin/python3.11");
    layout.file("env/lib/python3.11/site-packages/torch/notes.txt", b"");
    assert_eq!(plain(&python), Support::Absent);
}
