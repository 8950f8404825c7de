//! The table of invariants and their tests in CONTRIBUTING.md: each file that it names has a test of
//! that invariant.

use std::fs;
use std::path::Path;

#[test]
fn every_named_file_has_a_test_of_its_invariant() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let mut seen = Vec::new();
    for line in text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(name), Some(files)) = (cells.next(), cells.next()) else {
            continue;
        };
        let number = name.strip_prefix('I').and_then(|n| n.parse::<u32>().ok());
        let Some(number) = number else { continue };
        for file in files.split(',').map(|file| file.trim().trim_matches('`')) {
            let source = fs::read_to_string(root.join(file));
            let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(
                source.contains(&format!("fn i{number}_")),
                "{file} has no test of {name}"
            );
        }
        seen.push(number);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 12, 13]);
}
