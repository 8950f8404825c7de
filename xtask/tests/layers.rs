//! The order of the crates: each uses only crates above it, so that none can grow a cycle or
//! reach past its layer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Helpers of tests: any crate may use it, in `[dev-dependencies]` alone; it uses none itself.
const TESTING: &str = "herd-testing";

/// Every crate with the crates of the workspace it may use.
const MAY_USE: [(&str, &[&str]); 13] = [
    (TESTING, &[]),
    ("herd-core", &[]),
    ("herd-jobdir", &["herd-core"]),
    ("herd-link", &["herd-core"]),
    ("herd-workdir", &[]),
    ("herd-login", &["herd-core", "herd-jobdir", "herd-workdir"]),
    ("herd-launch", &["herd-core", "herd-link"]),
    ("herd-python", &["herd-core", "herd-link", "herd-launch"]),
    ("herd-slurm", &["herd-core"]),
    (
        "herd-runtime",
        &["herd-core", "herd-jobdir", "herd-link", "herd-launch"],
    ),
    (
        "herd-backends",
        &[
            "herd-core",
            "herd-jobdir",
            "herd-link",
            "herd-launch",
            "herd-slurm",
            "herd-workdir",
            "herd-runtime",
        ],
    ),
    (
        "herd",
        &[
            "herd-core",
            "herd-jobdir",
            "herd-link",
            "herd-launch",
            "herd-login",
            "herd-slurm",
            "herd-workdir",
            "herd-runtime",
            "herd-backends",
        ],
    ),
    (
        "herd-node",
        &[
            "herd-core",
            "herd-jobdir",
            "herd-link",
            "herd-launch",
            "herd-runtime",
            "herd-backends",
        ],
    ),
];

fn crates_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

/// Names of the workspace's own crates among the keys of every table of dependencies, those of
/// tests and of single targets included: a test that reaches past its layer is a use as well, but
/// for [`TESTING`].
fn uses(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_dependencies = false;
    let mut for_tests = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            // `[dependencies.NAME]` puts the name in the header itself.
            let (table, name) = header.rsplit_once('.').unwrap_or(("", header));
            in_dependencies = name.ends_with("dependencies");
            for_tests = header.contains("dev-dependencies");
            if table.ends_with("dependencies") {
                found.extend(own(name).filter(|name| !(for_tests && name == TESTING)));
            }
        } else if in_dependencies {
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend(own(key).filter(|name| !(for_tests && name == TESTING)));
            // A renamed dependency keeps its real name in `package`.
            if let Some((_, rest)) = line.split_once("package") {
                found.extend(rest.split('"').nth(1).and_then(own));
            }
        }
    }
    found
}

fn own(name: &str) -> Option<String> {
    let name = name.trim_matches('"');
    (name == "herd" || name.starts_with("herd-")).then(|| name.to_owned())
}

#[test]
fn each_crate_uses_only_crates_above_it() {
    let allowed: BTreeMap<_, _> = MAY_USE.into_iter().collect();
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(crates_directory()).unwrap() {
        let directory = entry.unwrap().path();
        let path = directory.join("Cargo.toml");
        if !path.is_file() {
            continue;
        }
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(&path).unwrap();
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "directory {name} holds a crate of another name"
        );
        let may_use = allowed.get(name.as_str());
        let may_use = may_use.unwrap_or_else(|| panic!("crate {name} has no place in the order"));
        for used in uses(&manifest) {
            assert!(
                may_use.contains(&used.as_str()),
                "{name} must not use {used}"
            );
        }
        seen.insert(name);
    }
    let known: BTreeSet<_> = allowed.keys().map(|&name| name.to_owned()).collect();
    assert_eq!(
        seen, known,
        "crates in the directory and in the order differ"
    );
}

#[test]
fn a_use_is_found_however_it_is_written() {
    let manifest = "[package]\nname = \"herd-link\"\n[dependencies]\nherd-core.workspace = true\n\
        serde.workspace = true\nalias = { package = \"herd-launch\", path = \"x\" }\n\
        [dev-dependencies.herd-jobdir]\npath = \"../herd-jobdir\"\n\
        [target.'cfg(unix)'.build-dependencies]\n\"herd-runtime\" = { path = \"x\" }\n\
        [features]\nherd = []\n[dev-dependencies]\nherd-testing.workspace = true\n";
    let found: Vec<_> = uses(manifest).into_iter().collect();
    assert_eq!(
        found,
        ["herd-core", "herd-jobdir", "herd-launch", "herd-runtime"]
    );
    let beyond_tests = "[dependencies]\nherd-testing.workspace = true\n";
    assert!(uses(beyond_tests).contains(TESTING));
}
