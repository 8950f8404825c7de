//! Where a key stands in a job file or task file, for faults that are found after it was read.

use std::collections::BTreeSet;

use super::looks_like_skypilot;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::jobfile;
use crate::yaml::{self, Node, Value};

/// A job's keys as a SkyPilot task calls them.
const TASK_NAMES: &[(&str, &str)] = &[
    ("nodes", "num_nodes"),
    ("env", "envs"),
    ("resources.gpus", "resources.accelerators"),
    ("resources.gpu_type", "resources.accelerators"),
];

/// A file that was read, asked where its keys stand.
#[derive(Debug)]
pub struct Places<'f> {
    file_name: &'f str,
    bytes: &'f [u8],
    root: Node,
    is_task: bool,
}

impl<'f> Places<'f> {
    /// The places in a file of either kind; nothing where it is no YAML.
    pub fn new(bytes: &'f [u8], file_name: &'f str) -> Option<Self> {
        let root = yaml::parse(bytes).ok()?.root;
        Some(Self {
            is_task: looks_like_skypilot(&root),
            file_name,
            bytes,
            root,
        })
    }

    /// A fault of a job's key at the place where the file has the key; nothing where it has not.
    pub fn fault(&self, key: &str, message: &str, hint: Option<&str>) -> Option<Diagnostic> {
        let key = self.name(key);
        let node = find(&self.root, &key)?;
        Some(Diagnostic {
            position: node.position,
            width: node.width,
            path: key,
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        })
    }

    /// The faults with the lines they stand in.
    pub fn show(&self, faults: Vec<Diagnostic>) -> Diagnostics {
        let hidden: BTreeSet<u32> = jobfile::secret_lines(&self.root);
        Diagnostics::new(self.file_name, self.bytes, faults, &hidden)
    }

    fn name(&self, key: &str) -> String {
        let names = TASK_NAMES.iter().filter(|_| self.is_task);
        for (ours, theirs) in names {
            match key.strip_prefix(ours) {
                Some("") => return (*theirs).to_owned(),
                Some(rest) if rest.starts_with('.') => return format!("{theirs}{rest}"),
                _ => {}
            }
        }
        key.to_owned()
    }
}

/// The node at a path, whose keys may hold dots themselves.
fn find<'n>(node: &'n Node, path: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Mapping(entries) => entries.iter().find_map(|entry| {
            match path.strip_prefix(entry.key.as_str())? {
                "" => Some(&entry.value),
                rest => match rest.strip_prefix('.') {
                    Some(inner) => find(&entry.value, inner),
                    // `after[0]`: the list will do.
                    None => rest.starts_with('[').then_some(&entry.value),
                },
            }
        }),
        Value::Scalar(_) | Value::Sequence(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stands_where_the_file_has_the_key() {
        let text = b"num_nodes: 2\nresources:\n  accelerators: H100:1\nfile_mounts:\n  /a.b/c: ./d\nsecrets:\n  T: x\n";
        let places = Places::new(text, "sky.yaml").unwrap();
        let shown = |key: &str| {
            let fault = places.fault(key, "no", Some("try"));
            fault.map(|fault| places.show(vec![fault]).to_string())
        };
        assert_eq!(
            shown("resources.gpus").unwrap(),
            "sky.yaml:3:17: resources.accelerators: no\n  |\n3 |   accelerators: H100:1\n  |                 \
             ^^^^^^\nhint: try"
        );
        assert!(
            shown("nodes")
                .unwrap()
                .starts_with("sky.yaml:1:12: num_nodes: no")
        );
        assert!(
            shown("file_mounts./a.b/c")
                .unwrap()
                .starts_with("sky.yaml:5:11:")
        );
        assert!(!shown("secrets.T").unwrap().contains("| "));
        assert_eq!(shown("walltime"), None);
        let job = Places::new(b"nodes: 2\nafter: [a]\n", "j").unwrap();
        for (key, place) in [("nodes", "j:1:8"), ("after[0]", "j:2:8")] {
            let fault = job.fault(key, "no", None).unwrap();
            assert!(
                job.show(vec![fault]).to_string().starts_with(place),
                "{key}"
            );
        }
    }
}
